"""Inter-process file locks, which the operating system releases when the process that holds them ends."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

SILENT_S, LONGEST_S = 1.0, 60.0
"""Seconds to wait for a lock before a message is printed, and in all."""


def lock_of(path: Path) -> FileLock:
    """Return a lock that belongs to the process, not to a thread: TensorFlow's threads release each other's locks.

    Every user who may write to the folder can use its file, whatever the umask of the user who created it.
    """
    return FileLock(path, mode=0o666, thread_local=False, fallback_to_soft=False)


def acquire(lock: FileLock, *, longest_s: float | None = None, waiting: str | None = None) -> None:
    """Acquire a lock; after a second of waiting, print `waiting` to standard error.

    Args:
        lock: The lock, which another process may hold.
        longest_s: Seconds to wait in all, `LONGEST_S` if None. Up to `SILENT_S` nothing is printed; `math.inf` waits
            until the other process releases the lock or ends.
        waiting: The message to print; by default that another process holds the lock.

    Raises:
        TimeoutError: Another process still holds the lock.
        OSError: The lock file cannot be created in its folder.
    """
    path, longest_s = Path(lock.lock_file), LONGEST_S if longest_s is None else longest_s
    for timeout_s in (0.0, min(SILENT_S, longest_s), longest_s):
        try:
            lock.acquire(timeout=-1 if math.isinf(timeout_s) else timeout_s)
        except Timeout:
            if not os.path.lexists(path):  # filelock keeps retrying where files cannot be created, as in /proc
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        else:
            return
        if longest_s > SILENT_S == timeout_s:
            print(f"etlrun: {waiting or f'waiting for another process, which holds {path}'}", file=sys.stderr)
    raise TimeoutError(errno.ETIMEDOUT, f"{path}, held by another process for more than {longest_s:g} s", str(path))


@contextmanager
def alone(path: Path, *, longest_s: float | None = None, waiting: str | None = None) -> Iterator[None]:
    """Hold the lock in `path` during the block; waits and raises as `acquire` does."""
    lock = lock_of(path)
    acquire(lock, longest_s=longest_s, waiting=waiting)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked(folder: Path, *, waits: bool) -> Iterator[bool]:
    """Lock a folder itself, without a file in it; yield whether it is locked, which it is not if another process has.

    `waits` waits for that process. A file system without such locks locks nothing.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
