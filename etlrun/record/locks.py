"""Whose the folder of a sweep or a run is: that of the process that holds its lock."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from etlrun.errors import WorldError
from etlrun.locks import LONGEST_S, acquire, lock_of
from etlrun.record import record as records

LOCK = "lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The sweep in `folder` is this process's for as long as the block lasts; `WorldError` where it is another's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise records.unwritable(folder, error) from error
    with _acquired(folder, 0, found="a sweep that another process runs now", expected="one process for a sweep"):
        yield


@contextmanager
def held_if_there(folder: Path, file: str) -> Iterator[None]:
    """The same, but for a folder without that file, in which nothing is to be left."""
    with held(folder) if (folder / file).is_file() else nullcontext():
        yield


@contextmanager
def nobodys(folder: Path) -> Iterator[None]:
    """Wait until the process of the run in `folder` has ended, and keep others out; `WorldError` where it doesn't."""
    told = {"found": "a run that still goes on", "expected": "a run that has ended"}
    with _acquired(folder, LONGEST_S, **told):
        yield


def is_nobodys(folder: Path) -> bool:
    """Whether no process is at work in a run's folder, which may be one that nothing can be written to."""
    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who ask are not in each other's way
    except BlockingIOError:
        return False
    except (FileNotFoundError, NotADirectoryError):
        return True
    return True


@contextmanager
def _acquired(folder: Path, longest_s: float, *, found: str, expected: str) -> Iterator[None]:
    lock = lock_of(folder / LOCK)
    waiting = f"waits at most {longest_s:.0f} s for the end of the run in {folder}"
    try:
        acquire(lock, longest_s=longest_s, waiting=waiting)
    except TimeoutError:
        remedy = "wait for its end, or stop it"
        raise WorldError(where=str(folder), found=found, expected=expected, remedy=remedy) from None
    except OSError as error:
        raise records.unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()
