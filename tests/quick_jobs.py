"""Imported by the server from which the processes of tests are forked, so that their runs are quick, too."""

import pytest

from tests.quick import quick_probes, shallow

patch = pytest.MonkeyPatch()
quick_probes(patch)
shallow(patch)
