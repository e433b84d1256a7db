"""Tar archives, compressed or not, whose headers are read only up to a size: a header may claim gigabytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

LARGEST_HEADER_BYTES = 1_000_000
"""Size of a header, which holds the path of a member and its attributes."""
_OPENERS: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}
"""Readers of compressed files, by the first bytes of these."""


class LargeHeaderError(tarfile.TarError):
    """A header of more than `LARGEST_HEADER_BYTES`."""


class _Limited:
    """A file that is not read in parts larger than a header."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_HEADER_BYTES:
            raise LargeHeaderError(f"a header of {size:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive; `tarfile.TarError` if it is none, or has a header that is too large."""
    with _opener(path)(path) as file, tarfile.open(fileobj=cast("IO[bytes]", _Limited(file)), mode="r:") as tar:
        yield tar


def is_tar(path: Path) -> bool:
    """Return whether a file begins like a tar archive, compressed or not."""
    try:
        with open_tar(path):
            return True
    except LargeHeaderError:
        return True
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError):
        return False


def is_compressed(path: Path) -> bool:
    """Return whether the archive has to be unpacked to be read."""
    return _opener(path) is not _plain


def _opener(path: Path) -> Callable[[Path], Any]:
    with path.open("rb") as file:
        head = file.read(max(map(len, _OPENERS)))
    return next((opener for mark, opener in _OPENERS.items() if head.startswith(mark)), _plain)


def _plain(path: Path) -> IO[bytes]:
    return path.open("rb")
