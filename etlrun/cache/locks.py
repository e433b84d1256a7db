"""Marks of use: one lock of the operating system per user of a cache, which ends with its process in any case."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

from etlrun.cache.folders import named
from etlrun.system.locks import Lock, acquire


def mark(path: Path) -> Lock:
    """Mark what the name of `path` begins with as in use by this process, until `unmark`."""
    lock = Lock(path.with_name(f"{path.name}.in_use.{os.getpid()}.{uuid.uuid4().hex[:8]}"))
    acquire(lock)
    return lock


def unmark(lock: Lock) -> None:
    """Remove the mark."""
    lock.release()
    with suppress(OSError):
        lock.path.unlink()


def is_marked(path: Path) -> bool:
    """Return whether a process uses it. Removes marks of dead processes; one that can't be inspected counts as held."""
    return bool(marks_of(path))


def marks_of(path: Path) -> list[Path]:
    """Return the marks that processes hold, as `is_marked` does."""
    held = []
    marks = re.compile(rf"{re.escape(path.name)}\.in_use\.[0-9]+\.[0-9a-f]{{8}}")
    for found in named(path.parent, marks):
        lock = Lock(found)
        try:
            lock.acquire()
        except OSError:  # includes `TimeoutError`
            held.append(found)
        else:
            with suppress(OSError):  # before it is released: a process that is about to hold it creates it again
                found.unlink()
            lock.release()
    return held
