"""Whose a folder is: that of a sweep its process's, that of a run its job's. No lock outlives its process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock, Timeout

from etlrun import record as records
from etlrun.errors import WorldError

LOCK = "lock"
_LONGEST_END_S = 60.0
"""In which the job of a killed sweep notices that it is alone."""


def lock_of(folder: Path) -> FileLock:
    """The lock of a folder that is there."""
    return FileLock(folder / LOCK, fallback_to_soft=False)


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
    """Wait until the process of a run has ended; `WorldError` where it doesn't."""
    told = {"found": "a run that still goes on", "expected": "a run that ended with its sweep"}
    with _acquired(folder, _LONGEST_END_S, **told):
        yield


def is_nobodys(folder: Path) -> bool:
    """Whether no process is at work in a run's folder."""
    try:
        with lock_of(folder).acquire(timeout=0):
            return True
    except Timeout:
        return False


@contextmanager
def _acquired(folder: Path, timeout_s: float, *, found: str, expected: str) -> Iterator[None]:
    lock = lock_of(folder)
    try:
        lock.acquire(timeout=timeout_s)
    except Timeout:
        remedy = "wait for its end, or stop it"
        raise WorldError(where=str(folder), found=found, expected=expected, remedy=remedy) from None
    except OSError as error:
        raise records.unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()
