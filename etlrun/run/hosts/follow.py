"""The run on a host that doesn't write the results."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from etlrun.planning.plan import Plan
from etlrun.record.record import Record
from etlrun.run import run
from etlrun.run.hosts.here import Place

_OUTPUT = "output.txt"


def followed(place: Place, plan: Plan, freeze: Callable[[Path], None]) -> int:
    """Run `plan`, frozen by `freeze` in a folder that is removed, and return the exit status; print an error alone.

    The folder is kept if the message names a file in it, such as the traceback of an error.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"etlrun_host_{place.number}_")) / "run"
    freeze(folder)
    with (folder / _OUTPUT).open("w") as output, redirect_stdout(output), redirect_stderr(output):
        status = run.run(folder, planned=plan)
    error = Record(folder).summary.error
    if error:
        print(f"etlrun: {'' if error.startswith('host ') else f'host {place.number}: '}{error}", file=sys.stderr)
    if error is None or str(folder) not in error:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return status
