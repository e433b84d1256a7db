"""Content of the image files of a folder, by SHA-256, and detection of changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.sources.listing import DIGITS
from etlrun.sources.records import Stamp, known, stamp_of
from etlrun.sources.usable import refused
from etlrun.system.errors import WorldError

if TYPE_CHECKING:
    from etlrun.sources.folder import Images

SHA_BYTES, BETWEEN = 8, "\0"
"""Bytes of a SHA-256 that identify a file; what stands between the parts of the problem behind them."""


class FilesRead:
    """Comparison of the files that a pass reads with their checksums.

    Attributes:
        differing: Path of a file that held other bytes; None if there is none.
    """

    def __init__(self, held: Mapping[str, bytes]) -> None:
        """Begin a pass over files of which `sha256_and_refusal` is known, by path."""
        self._held = {os.fsencode(path): of[:SHA_BYTES] for path, of in held.items()}
        self.differing: str | None = None

    def add(self, record: Any, data: Any) -> None:
        """Compare the bytes of the file that a record names, or of each of several."""
        for one, read in [(record, data)] if isinstance(record, bytes) else zip(record, data, strict=True):
            held = self._held.get(one[DIGITS:])  # None for the empty file in the place of a large image
            if held is not None and hashlib.sha256(read).digest()[:SHA_BYTES] != held:
                self.differing = os.fsdecode(one[DIGITS:])


class FileContent:
    """Content of files at the time of construction, by SHA-256. Files that were hashed before are not read again."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._stamps: dict[str, Stamp] = {}
        self._digest: str | None = None
        self._read: FilesRead | None = None

    @property
    def digest(self) -> str | None:
        try:
            return self._identified()
        except OSError:  # reading the examples reports it
            return None

    def files(self, *, whole: bool) -> list[list[object]]:
        try:
            return [["images", [self._images.count, self._identified()]]]
        except OSError as error:
            raise WorldError(
                where=str(error.filename),
                found=str(error.strerror or error),
                expected="an image that can be read",
                remedy="restore it, or check its permissions",
            ) from error

    def compared(self) -> FilesRead:
        """Return a comparison of the files of a pass with those that were hashed, of which `changed` takes notice."""
        self._identified()
        self._read = FilesRead(held_of(self._stamps))
        return self._read

    def changed(self) -> str | None:
        if self._read is not None and self._read.differing is not None:
            return self._read.differing
        for path, stamp in self._stamps.items():
            try:
                now = stamp_of(path)
                if now != stamp and held_of({path: now}) != held_of({path: stamp}):
                    return path
            except OSError:
                return path
        return None

    def _identified(self) -> str:
        if self._digest is None:
            self._stamps = {path: stamp_of(path) for path in self._images.paths if path not in self._images.no_files}
            held = held_of(self._stamps)
            self._digest = _digest(self._images, held)
        return self._digest


def _digest(images: Images, held: Mapping[str, bytes]) -> str:
    each = [
        [label, held.get(path, b"")[:SHA_BYTES].hex()] for path, label in zip(images.paths, images.labels, strict=True)
    ]
    return hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16]


def held_of(stamps: Mapping[str, Stamp]) -> dict[str, bytes]:
    """Return `sha256_and_refusal` of each file; those that were read before are not read again."""
    return {path: of or b"" for path, of in known(stamps, sha256_and_refusal).items()}


def sha256_and_refusal(path: str) -> bytes:
    """Return the first 8 bytes of a SHA-256 over a file; and behind them, why it is not to be decoded, if it isn't."""
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()[:SHA_BYTES]
        found = refused(file, file.tell())
    return digest if found is None else digest + BETWEEN.join(found).encode()
