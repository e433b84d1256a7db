"""Locks between processes, of the operating system: each ends with the process that holds it, however that ends."""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

SILENT_S, LONGEST_S = 1.0, 60.0
"""For which a lock is waited for without a word, and once it is said: moments, or until a job sees it is alone."""


def lock_of(path: Path) -> FileLock:
    """Of a process, not of a thread: TensorFlow's threads take what others give back.

    All users who may write to the folder share its file, whatever the umask of the one who made it.
    """
    return FileLock(path, mode=0o666, thread_local=False, fallback_to_soft=False)


def acquire(lock: FileLock, *, longest_s: float | None = None, waiting: str | None = None) -> None:
    """Take a lock: at once, after a second without a word, or later once `waiting` is said on standard error.

    Args:
        lock: Which another process may hold.
        longest_s: For which it is waited for in all, `LONGEST_S` for None; at most `SILENT_S` is no wait that is said,
            and `math.inf` one for as long as the other process lives.
        waiting: What is said; by default that another process holds it.

    Raises:
        TimeoutError: Another process keeps it.
        OSError: It can't be had, since its folder takes no files.
    """
    path, longest_s = Path(lock.lock_file), LONGEST_S if longest_s is None else longest_s
    for timeout_s in (0.0, min(SILENT_S, longest_s), longest_s):
        try:
            lock.acquire(timeout=-1 if math.isinf(timeout_s) else timeout_s)
        except Timeout:
            if not os.path.lexists(path):  # which filelock takes for a moment's absence: /proc takes no files
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        else:
            return
        if longest_s > SILENT_S == timeout_s:
            print(f"etlrun: {waiting or f'waiting for another process, which holds {path}'}", file=sys.stderr)
    raise TimeoutError(errno.ETIMEDOUT, f"{path}, which another process holds for more than {longest_s:g} s", str(path))


@contextmanager
def alone(path: Path, *, longest_s: float | None = None, waiting: str | None = None) -> Iterator[None]:
    """Hold the lock in `path` for as long as the block lasts; waits and raises as `acquire` does."""
    lock = lock_of(path)
    acquire(lock, longest_s=longest_s, waiting=waiting)
    try:
        yield
    finally:
        lock.release()
