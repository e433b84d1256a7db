"""Locks of sweep and run folders: a folder belongs to the process that holds its lock."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from etlrun.record import record as records
from etlrun.system.errors import WorldError
from etlrun.system.files import LONGEST_S, Lock, acquire

LOCK = "lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of the sweep in `folder` during the block; `WorldError` if another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise records.unwritable(folder, error) from error
    with _acquired(folder, 0, found="a sweep that another process is running", expected="one process per sweep"):
        yield


@contextmanager
def held_if_there(folder: Path, file: str) -> Iterator[None]:
    """Hold the lock if `file` is in the folder; otherwise leave the folder untouched."""
    with held(folder) if (folder / file).is_file() else nullcontext():
        yield


@contextmanager
def nobodys(folder: Path) -> Iterator[None]:
    """Wait for the process of the run in `folder` to end, and lock others out; `WorldError` if it doesn't end."""
    with _acquired(folder, LONGEST_S, found="a run that is still running", expected="a run that has ended"):
        yield


def is_nobodys(folder: Path) -> bool:
    """Return whether no process is at work in a run's folder, which may be read-only."""
    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: concurrent checks don't exclude each other
    except BlockingIOError:
        return False
    except (FileNotFoundError, NotADirectoryError):
        return True
    return True


@contextmanager
def _acquired(folder: Path, longest_s: float, *, found: str, expected: str) -> Iterator[None]:
    lock = Lock(folder / LOCK)
    waiting = f"waiting up to {longest_s:.0f} s for the run in {folder} to end"
    try:
        acquire(lock, longest_s=longest_s, waiting=waiting)
    except TimeoutError:
        remedy = "wait for it to end, or stop it"
        raise WorldError(where=str(folder), found=found, expected=expected, remedy=remedy) from None
    except OSError as error:
        raise records.unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()
