"""The end of a process with its parent, whatever has ended that."""

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
