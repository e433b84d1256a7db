"""The part of one host in a run on several: `python -m etlrun.run.hosts.member FOLDER`, as `watch` starts it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from etlrun.run import run


def main(folder: str) -> None:
    """Run what is frozen in `folder`, silent about errors, which the summary has; end with the process that asks."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    status = run.run(Path(folder), is_part=True)
    sys.stdout.flush()
    sys.stderr.flush()
    if status in (run.OK, run.TOO_SLOW):
        sys.exit(status)
    os._exit(status)  # at once: what is left of a collective operation may wait for a host that is lost


def _end_with_input() -> None:
    """Wait for the end of the standard input, which is that of the process at its other end, and end this one."""
    while os.read(0, 1):
        continue
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
