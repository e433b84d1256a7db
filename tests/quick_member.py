"""The part of a host in a run on several, as quick as the runs of other tests."""

import sys

import tests.quick_jobs  # noqa: F401 - makes it quick
from etlrun.run.hosts import member

if __name__ == "__main__":
    member.main(sys.argv[1])
