"""Locks between processes, of the operating system: each ends with the process that holds it, however that ends."""

from __future__ import annotations

import errno
import os
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from etlrun.cache.folders import named

SILENT_S, LONGEST_S = 1.0, 60.0
"""For which a lock of moments is waited for without a word, and after it has been said."""


def lock_of(path: Path) -> FileLock:
    """Of a process, not of a thread: TensorFlow's threads take what others give back.

    All users who may write to the folder share its file, whatever the umask of the one who made it.
    """
    return FileLock(path, mode=0o666, thread_local=False, fallback_to_soft=False)


def acquire(lock: FileLock) -> None:
    """Take a lock that others hold for moments only; `TimeoutError` where one keeps it, `OSError` where it can't be."""
    path = Path(lock.lock_file)
    for timeout_s in (0.0, SILENT_S, LONGEST_S):
        try:
            lock.acquire(timeout=timeout_s)
        except Timeout:
            if not os.path.lexists(path):  # which filelock takes for a moment's absence: /proc takes no files
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        else:
            return
        if timeout_s == SILENT_S:
            print(f"etlrun: waiting for another process, which holds {path}", file=sys.stderr)
    raise TimeoutError(errno.ETIMEDOUT, f"{path}, which another process holds for more than {LONGEST_S:g} s", str(path))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock in `path` for as long as the block lasts, which is a moment."""
    lock = lock_of(path)
    acquire(lock)
    try:
        yield
    finally:
        lock.release()


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
