"""Locks between processes, of the operating system: each ends with the process that holds it, however that ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

SILENT_S, LONGEST_S = 1.0, 60.0
"""For which a lock of moments is waited for without a word, and after it has been said."""


def lock_of(path: Path) -> FileLock:
    """Of a process, not of a thread: TensorFlow's threads take what others give back."""
    return FileLock(path, thread_local=False, fallback_to_soft=False)


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
