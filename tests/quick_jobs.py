"""Imported by the server from which processes of tests are forked, and by some others, so that their runs are quick.

As a program it is `etlrun` with quick runs.
"""

import sys

import pytest

import etlrun.cli.launch  # what processes of tests would import, each for itself
import etlrun.cli.main
import etlrun.results.report
import etlrun.sweep.preview
from tests.quick import quick_probes, shallow

patch = pytest.MonkeyPatch()
quick_probes(patch)
shallow(patch)

if __name__ == "__main__":
    etlrun.cli.main.main(sys.argv[1:])
