"""Imported by the server from which processes of tests are forked, and by some others, so that their runs are quick."""

import pytest

import etlrun.cli.launch
import etlrun.cli.main
import etlrun.cli.multirun  # noqa: F401 - what processes of tests would import, each for itself
from tests.quick import quick_probes, shallow

patch = pytest.MonkeyPatch()
quick_probes(patch)
shallow(patch)
