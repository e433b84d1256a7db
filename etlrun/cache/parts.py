"""The files of one cache: pictures one after the other in parts, and an index with a checksum for each."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash
from pydantic import Field, TypeAdapter

MANIFEST, INDEX = "cache.json", "index.npz"
PART_BYTES = 256 * 2**20
"""Of a part, at least: another one is begun after that."""
_MOST_OPEN = 64
"""Parts of one cache that are kept open for reading: a process has a limit for all its files, often 1,024."""
_ALIGNMENT = 64
"""Bytes at which TensorFlow takes memory over instead of copying it."""

Pictures = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]


class BrokenError(OSError):
    """A cache whose files are not what was written.

    Attributes:
        path: Of the file; `found` and `expected` are for a message.
        inode: Of the cache's folder, by which it is told from one that has taken its place.
    """

    def __init__(self, path: Path, found: str, expected: str) -> None:
        self.path, self.found, self.expected = path, found, expected
        self.inode: int | None = None
        super().__init__(f"{path}: found {found}; expected {expected}")


def checksum(data: Any) -> int:
    """XXH3 of 64 bits: guards against faults of a disk, not against an attacker."""
    return xxhash.xxh3_64_intdigest(data)


def _part_name(part: int) -> str:
    return f"part_{part:05}.bin"


class Writer:
    """Writes examples into the parts below `folder`, in the order in which they come.

    Attributes:
        count: Examples so far.
        payload_bytes: Of their pictures.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.payload_bytes = folder, 0, 0
        self._file: BinaryIO | None = None
        self._columns: dict[str, list[Any]] = {
            "part": [],
            "offset": [],
            "size": [],
            "sum": [],
            "label": [],
            "shape": [],
        }
        self._part, self._offset = -1, 0

    def add(self, picture: Any, label: int) -> None:
        """Add an example: bytes, or an array of any shape; `OSError` where it can't be written."""
        array = np.frombuffer(picture, np.uint8) if isinstance(picture, bytes) else np.ascontiguousarray(picture)
        if self._file is None or self._offset > PART_BYTES:
            self._next_part()
        data = array.reshape(-1).view(np.uint8).data
        self._file.write(data)  # type: ignore[union-attr]
        row = (self._part, self._offset, array.nbytes, checksum(data), int(label), array.shape)
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._offset += array.nbytes
        self.payload_bytes += array.nbytes
        self.count += 1

    def _next_part(self) -> None:
        if self._file is not None:
            self._file.close()
        self._part, self._offset = self._part + 1, 0
        self._file = (self.folder / _part_name(self._part)).open("wb")

    def close(self) -> dict[str, dict[str, int]]:
        """Write the index; the files with their sizes and, for the index, its checksum."""
        if self._file is not None:
            self._file.close()
        columns = {
            name: np.array(values, np.uint64 if name == "sum" else np.int64) for name, values in self._columns.items()
        }
        with (self.folder / INDEX).open("wb") as file:
            np.savez(file, **columns)  # type: ignore[arg-type]
        sizes = {path.name: {"bytes": path.stat().st_size} for path in sorted(self.folder.glob("part_*.bin"))}
        index = (self.folder / INDEX).read_bytes()
        return {**sizes, INDEX: {"bytes": len(index), "checksum": checksum(index)}}

    def abandon(self) -> None:
        """Close without an index; a full disk may refuse even that."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a cache's `cache.json` says.

    Attributes:
        identity: What its examples are, in order: pairs of a name and a value.
        dtype: Of the pictures: a NumPy name, or `bytes` for encoded ones.
        shape: Of each picture; None where they differ.
        count: Examples.
        payload_bytes: Of all pictures.
        files: By name, with their sizes.
        made_by: For a reader: the run, its overrides, and when.
    """

    identity: list[Annotated[list[Any], Field(min_length=2, max_length=2)]]
    dtype: str
    shape: list[int] | None
    count: int
    payload_bytes: int
    files: dict[str, dict[str, int]]
    made_by: dict[str, Any]

    def text(self) -> str:
        """As JSON, with a checksum over itself."""
        body = json.dumps(self.__dict__, sort_keys=True)
        return json.dumps({"checksum": checksum(body.encode()), "cache": self.__dict__}, indent=1, sort_keys=True)

    @staticmethod
    def read(path: Path) -> Manifest:
        """The manifest in `path`; `BrokenError` where it is not what was written."""
        try:
            outer = json.loads(path.read_text(encoding="utf-8"))
            body = json.dumps(outer["cache"], sort_keys=True)
            if outer["checksum"] == checksum(body.encode()) and INDEX in outer["cache"]["files"]:
                return _MANIFEST.validate_python(outer["cache"])
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise BrokenError(path, "a manifest that was changed", "what the run that filled the cache has written")


_MANIFEST = TypeAdapter(Manifest)


class _OpenFile:
    """A file to read from, closed with the last reference to it: never while a thread reads it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1  # for `__del__`, where there is no such file
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Reader:
    """Reads a published cache; every picture is compared with its checksum.

    Attributes:
        manifest: Of the cache.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Open the files; `BrokenError` where one is missing, cut short, or not the index that was written."""
        self.folder, self.manifest = folder, manifest
        for name, wanted in manifest.files.items():
            path = folder / name
            size = path.stat().st_size if path.is_file() else None
            if size != wanted["bytes"]:
                raise BrokenError(path, "no file" if size is None else f"{size} bytes", f"{wanted['bytes']} bytes")
        data = (folder / INDEX).read_bytes()
        if checksum(data) != manifest.files[INDEX]["checksum"]:
            raise BrokenError(folder / INDEX, "an index that was changed", "the one that was written")
        with np.load(folder / INDEX) as index:
            self._index = {name: index[name] for name in index.files}
        # Read, not mapped: what is mapped counts as memory of the process, up to the size of the data.
        self._opened = lru_cache(_MOST_OPEN)(lambda part: _OpenFile(folder / _part_name(part)))
        for part in range(min(len(manifest.files) - 1, _MOST_OPEN)):  # which then outlast a removal of the cache
            self._opened(part)

    def one(self, number: int) -> tuple[Any, np.int64]:
        """An example as it was added: the picture (an array, or bytes) and its label."""
        index = self._index
        data = _aligned((int(index["size"][number]),), np.dtype(np.uint8))
        self._fill(number, data)
        label = index["label"][number]
        if self.manifest.dtype == "bytes":
            return data.tobytes(), label
        return data.view(self.manifest.dtype).reshape(index["shape"][number]), label

    def batch(self, numbers: npt.NDArray[np.int64]) -> tuple[Pictures, Labels]:
        """Pictures (len(numbers), *shape) and labels (len(numbers),), for pictures of one shape."""
        shape = (len(numbers), *(self.manifest.shape or ()))
        pictures = _aligned(shape, np.dtype(self.manifest.dtype))
        for row, number in zip(pictures, numbers, strict=True):
            self._fill(int(number), row.reshape(-1).view(np.uint8))
        return pictures, self._index["label"][numbers]

    def _fill(self, number: int, data: npt.NDArray[np.uint8]) -> None:
        """Read the picture of an example into `data`, which has its size."""
        part = int(self._index["part"][number])
        file = self._opened(part)
        count = os.preadv(file.descriptor, [data.data], int(self._index["offset"][number]))
        found, wanted = checksum(data.data), int(self._index["sum"][number])
        if count != data.nbytes or found != wanted:
            found_there = f"example {number} with checksum {found:016x}"
            raise BrokenError(self.folder / _part_name(part), found_there, f"{wanted:016x}")

    def close(self) -> None:
        """Close the files, but those that a thread reads right now: these close when it is done."""
        self._opened.cache_clear()


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Pictures:
    """Uninitialised memory that TensorFlow takes without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
