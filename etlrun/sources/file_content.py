"""Image files of a folder as records, their content by SHA-256, and detection of changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.sources.listing import DIGITS
from etlrun.sources.records import Stamp, known, stamp_of
from etlrun.sources.usable import Problem, refused
from etlrun.system.errors import WorldError

_SHA_BYTES, _BETWEEN = 8, "\0"
"""Bytes of a SHA-256 that identify a file; what stands between the parts of the problem behind them."""


class FilesRead:
    """Comparison of the files that a pass reads with their checksums.

    Attributes:
        differing: Path of a file that held other bytes; None if there is none.
    """

    def __init__(self, held: Mapping[str, bytes]) -> None:
        """Begin a pass over files of which `sha256_and_refusal` is known, by path."""
        self._held = {os.fsencode(path): of[:_SHA_BYTES] for path, of in held.items()}
        self.differing: str | None = None

    def add(self, record: Any, data: Any) -> None:
        """Compare the bytes of the file that a record names, or of each of several."""
        for one, read in [(record, data)] if isinstance(record, bytes) else zip(record, data, strict=True):
            held = self._held.get(one[DIGITS:])  # None for the empty file in the place of a large image
            if held is not None and hashlib.sha256(read).digest()[:_SHA_BYTES] != held:
                self.differing = os.fsdecode(one[DIGITS:])


@dataclass(frozen=True, kw_only=True)
class Images:
    """Image files by number, as records: the class in decimal digits, and the path.

    Attributes:
        paths: Paths of the files.
        labels: Classes of the images.
        no_files: Why paths can't be read, which are no files or links to none.
    """

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    no_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of files."""
        return len(self.paths)

    @cached_property
    def refused(self) -> dict[int, Problem]:
        """Why an image is not to be decoded, by its number; known before any is read."""
        found = {path: Problem(reason, "an image file") for path, reason in self.no_files.items()}
        with contextlib.suppress(OSError):  # reading the examples reports it
            held = held_of({path: stamp_of(path) for path in self.paths if path not in found})
            problems = {path: of[_SHA_BYTES:].decode() for path, of in held.items()}
            found |= {path: Problem(*of.split(_BETWEEN)) for path, of in problems.items() if of}
        return {number: found[path] for number, path in enumerate(self.paths) if path in found}

    @cached_property
    def records(self) -> npt.NDArray[Any]:
        """All records; those of images that are refused name an empty file, which is decoded to an error at once."""
        paths = [os.devnull if number in self.refused else path for number, path in enumerate(self.paths)]
        each = zip(self.labels, paths, strict=True)
        return np.array([b"%0*d%s" % (DIGITS, label, os.fsencode(path)) for label, path in each], dtype=object)

    def read(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return these records."""
        return self.records[numbers]


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
                str(error.filename),
                str(error.strerror or error),
                "an image that can be read",
                "restore it, or check its permissions",
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
        [label, held.get(path, b"")[:_SHA_BYTES].hex()] for path, label in zip(images.paths, images.labels, strict=True)
    ]
    return hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16]


def held_of(stamps: Mapping[str, Stamp]) -> dict[str, bytes]:
    """Return `sha256_and_refusal` of each file; those that were read before are not read again."""
    return {path: of or b"" for path, of in known(stamps, sha256_and_refusal).items()}


def sha256_and_refusal(path: str) -> bytes:
    """Return the first 8 bytes of a SHA-256 over a file; and behind them, why it is not to be decoded, if it isn't."""
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()[:_SHA_BYTES]
        found = refused(file, file.tell())
    return digest if found is None else digest + _BETWEEN.join(found).encode()
