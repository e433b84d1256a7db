"""Files that appear whole: atomic replacement, flushing to disk, and whether a folder can be written to."""

from __future__ import annotations

import io
import os
import tempfile
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
    """Replace `path` atomically: a reader sees the old text or the new one, never a part.

    Names of files in it that are no Unicode are escaped.
    """
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
        """Write `data`."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.name
            raise


@contextmanager
def appearing(path: Path, key: str, errors: str = "backslashreplace") -> Iterator[TextIO]:
    """Yield a file that replaces `path`, the value of `key`, when it is complete; its folder is made.

    What a link leads to is replaced, and a pipe or a device is written to. `errors` is what becomes of names of files
    in it that are no Unicode.

    Raises:
        WorldError: It can't be written; errors of other files remain theirs.
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
            remedy = f"choose another {key}, or free disk space"
            raise WorldError(where=key, found=found, expected=expected, remedy=remedy) from error


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
    """Raise `WorldError` if `folder`, the value of `key`, can't be created, or take a file of that size.

    Nothing is left there.
    """
    there = folder.absolute()
    try:
        while not _is_there(there):
            there = there.parent
        with tempfile.TemporaryDirectory(prefix=".etlrun", dir=there) as probe:
            Path(probe, "probe").write_bytes(bytes(size_bytes))  # a full disk still accepts folders
    except OSError as error:
        raise WorldError(
            where=key,
            found=f"{folder}: {error.strerror}",
            expected="a folder that can be created and written to",
            remedy=f"choose another {key}, or free disk space",
        ) from error


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
