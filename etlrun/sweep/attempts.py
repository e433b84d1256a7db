"""Earlier attempts of runs, which are kept beside the run that has taken their place."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from etlrun.record.locks import nobodys

ATTEMPTS = "attempts"


def put_aside(folder: Path, home: Path) -> None:
    """Move the folder of a run to the attempts in `home`, once no process is at work there."""
    with nobodys(folder):
        attempts = home / ATTEMPTS
        attempts.mkdir(exist_ok=True)
        free = (attempts / f"{folder.name}-{number}" for number in count(1))
        kept = next(path for path in free if not path.exists())
        shutil.move(folder, kept)
