"""The part of a host in a run on several, as quick as the runs of other tests."""

import sys

import pytest

from etlrun.run.hosts import member
from tests.quick import quick_probes, shallow

if __name__ == "__main__":
    patch = pytest.MonkeyPatch()
    quick_probes(patch)
    shallow(patch)
    member.main(sys.argv[1])
