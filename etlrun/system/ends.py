"""The end of a process: with its parent, whatever has ended that; and how it ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import connection

_POLL_S = 0.5
"""Interval of the checks that the fork server is alive."""


def end_with_parent() -> None:
    """Wait for the end of the process that has asked for this one, or of its fork server, and end this one."""
    parent, server = multiprocessing.parent_process(), os.getppid()
    if parent is not None:
        while not connection.wait([parent.sentinel], timeout=_POLL_S) and os.getppid() == server:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def how_ended(status: int) -> str:
    """Return the name of the signal that ended a process of this status, or its exit status."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
