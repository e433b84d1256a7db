"""State of a run: its status, unless its process has been killed."""

from __future__ import annotations

import time
from pathlib import Path

from etlrun.record.locks import LOCK, is_nobodys
from etlrun.record.summary import RUNNING, Summary

KILLED = "killed"
"""State of a run that no process is at work in, though its summary says `running`."""
_STARTING_S = 600.0
"""Time that the process of a new run may take to lock its folder."""


def state_of(folder: Path, summary: Summary) -> str:
    """Return the status of the run in `folder`, or `killed`; one whose process has not locked it yet is running."""
    if summary.status != RUNNING or not is_nobodys(folder):
        return summary.status
    is_new = time.time() - (summary.created_s or 0.0) < _STARTING_S and not (folder / LOCK).exists()
    return RUNNING if is_new else KILLED
