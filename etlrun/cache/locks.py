"""Marks of use: a lock of the operating system for each user, which ends with its process, however that ends."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from etlrun.cache.folders import named
from etlrun.locks import acquire, lock_of


def mark(path: Path) -> FileLock:
    """Say that this process uses what the name of `path` begins with, until `unmark`."""
    lock = lock_of(path.with_name(f"{path.name}.in_use.{os.getpid()}.{uuid.uuid4().hex[:8]}"))
    acquire(lock)
    return lock


def unmark(lock: FileLock) -> None:
    """Say that it is used no longer."""
    lock.release()
    with suppress(OSError):
        Path(lock.lock_file).unlink()


def is_marked(path: Path) -> bool:
    """Whether a process uses it. Forgets the marks of dead ones; one that can't be looked at counts as held."""
    held = False
    marks = re.compile(rf"{re.escape(path.name)}\.in_use\.[0-9]+\.[0-9a-f]{{8}}")
    for found in named(path.parent, marks):
        lock = lock_of(found)
        try:
            lock.acquire(timeout=0)
        except OSError:  # `Timeout` is one
            held = True
        else:
            with suppress(OSError):  # before it is released: a process that is about to hold it makes it anew
                found.unlink()
            lock.release()
    return held
