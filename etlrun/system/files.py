"""Files that appear whole: atomic replacement, flushing to disk, whether a folder can be written to; and locks."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from etlrun.system.errors import WorldError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_PROBE_BYTES = 4096
"""Size of a block, which a full disk can't provide."""


def write_atomically(path: Path, text: str) -> None:
    """Replace `path`: a reader sees the old or the new text, never a part; what is no Unicode is escaped."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with the same suffix, that atomically replaces it after the block."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class _Named(io.FileIO):
    """A file that the errors of writing it name, as those of opening it do."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.name
            raise


@contextmanager
def appearing(path: Path, key: str, errors: str = "backslashreplace") -> Iterator[TextIO]:
    """Yield a file that replaces `path`, the value of `key`, when it is complete; its folder is made.

    What a link leads to is replaced, and a pipe or a device is written to. `errors` is what becomes of names of files
    in it that are no Unicode. `WorldError` if it can't be written; errors of other files remain theirs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    is_file = not path.exists() or path.is_file()
    with replacing(path.resolve()) if is_file else nullcontext(path) as temporary:
        try:
            raw = io.BufferedWriter(_Named(temporary, "w"))
            with io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="") as file:
                yield file
        except OSError as error:
            if error.filename != temporary:
                raise
            found, expected = f"{path}: {error.strerror}", "a file that can be written"
            raise WorldError(key, found, expected, elsewhere(key, error)) from error


def elsewhere(key: str, error: OSError) -> str:
    """Return the remedy for a file or a folder, the value of `key`, that can't be written to."""
    is_refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    other = "copy the run" if key == "RUN" else f"choose another {key}"
    return f"{other}, or {'make the folder writable' if is_refused else 'free disk space'}"


def as_unicode(name: str) -> str:
    """Return the name of a file, or a text with names, in which bytes that are no UTF-8 are escaped."""
    return name.encode(errors="backslashreplace").decode()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk, so that after a rename no power failure leaves a part of it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_unwritable(folder: Path, key: str, size_bytes: int = _PROBE_BYTES) -> None:
    """Raise `WorldError` if `folder`, the value of `key`, can't be created or take so many bytes."""
    there, is_there = folder.absolute(), False
    try:
        while not is_there:
            try:
                is_there = bool(there.lstat())
            except (FileNotFoundError, NotADirectoryError):
                there = there.parent
        with tempfile.TemporaryDirectory(prefix=".etlrun", dir=there) as probe:
            Path(probe, "probe").write_bytes(bytes(size_bytes))  # a full disk still accepts folders
    except OSError as error:
        raise WorldError(
            key, f"{folder}: {error.strerror}", "a folder that can be created and written to", elsewhere(key, error)
        ) from error


SILENT_S, LONGEST_S = 1.0, 60.0
"""Seconds to wait for a lock before a message is printed, and in all."""

_POLL_S = 0.05


class Lock:
    """A lock of the operating system on a file, which stays when the lock is released.

    It belongs to the process, not to a thread, since TensorFlow's threads release each other's locks. Every user who
    may write to the folder can use its file, whatever the umask of the user who created it, also in a folder with the
    sticky bit, where libraries for locks refuse the files of other users.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, timeout_s: float = 0.0, waiting: str = "") -> None:
        """Acquire the lock, which is tried at least once; waits for up to `timeout_s` while another process holds it.

        After `SILENT_S`, `waiting` is printed to standard error. `TimeoutError` if another process still holds it;
        `OSError` if the file can't be opened, or its file system has no locks.
        """
        begun = time.monotonic()
        while not self._try():
            waited_s = time.monotonic() - begun
            if waited_s >= timeout_s:
                reason = f"held by another process for more than {timeout_s:g} s"
                raise TimeoutError(errno.ETIMEDOUT, reason, str(self.path))
            if waiting and waited_s >= SILENT_S:
                print(f"etlrun: {waiting}", file=sys.stderr)
                waiting = ""
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Release the lock; does nothing if it isn't held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _try(self) -> bool:
        """Return whether the lock was acquired: not if another process holds it, or has just removed its file."""
        try:
            try:  # without O_CREAT, which systems refuse for files of others in a sticky folder
                descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW)
            except FileNotFoundError:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(descriptor, 0o666)  # whatever the umask
        except FileExistsError:  # created by another process in between
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.path.samestat(os.fstat(descriptor), self.path.stat())
        except (BlockingIOError, FileNotFoundError):
            there = False
        except BaseException:
            os.close(descriptor)
            raise
        if there:
            self._descriptor = descriptor
        else:
            os.close(descriptor)
        return there


@contextmanager
def alone(path: Path, *, longest_s: float | None = None, waiting: str | None = None) -> Iterator[None]:
    """Hold the lock in `path` during the block, and print `waiting`, or that another process has it, while it waits.

    It waits for `longest_s`, `LONGEST_S` if None, and for ever with `math.inf`; it raises as `Lock.acquire` does.
    """
    lock = Lock(path)
    waiting = waiting or f"waiting for another process, which holds {path}"
    lock.acquire(timeout_s=LONGEST_S if longest_s is None else longest_s, waiting=waiting)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked(folder: Path, *, waits: bool) -> Iterator[bool]:
    """Lock a folder itself, and yield whether it is locked: not if another process has it and this doesn't wait."""
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
