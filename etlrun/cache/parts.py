"""The files of one cache: examples one after the other in parts, and an index with a checksum for each.

An example is its features one after the other, in the order of the cache's columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
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

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Column:
    """A feature that a cache holds.

    Attributes:
        name: The name of the feature.
        dtype: The name of a NumPy dtype, or `bytes` for strings.
        shape: Its shape in each example; None where examples differ.
    """

    name: str
    dtype: str
    shape: list[int] | None


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


def checksum(*data: Any) -> int:
    """Return the 64-bit XXH3 of all data in order: it guards against faults of a disk, not against an attacker."""
    if len(data) == 1:
        return xxhash.xxh3_64_intdigest(data[0])
    whole = xxhash.xxh3_64()
    for of in data:
        whole.update(of)
    return whole.intdigest()


def _part_name(part: int) -> str:
    return f"part_{part:05}.bin"


class Writer:
    """Writes examples into the parts below `folder`, in the order in which they come.

    Attributes:
        count: Examples so far.
        payload_bytes: Of their features.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.payload_bytes = folder, 0, 0
        self._file: BinaryIO | None = None
        self._columns: dict[str, list[Any]] = {}
        self._part, self._offset = -1, 0

    def add(self, *features: Any) -> None:
        """Add an example: of each feature bytes, or an array of any shape; `OSError` where it can't be written."""
        arrays = [
            np.frombuffer(of, np.uint8) if isinstance(of, bytes) else np.asarray(of, order="C") for of in features
        ]
        if self._file is None or self._offset > PART_BYTES:
            self._next_part()
        data = [_bytes_of(array) for array in arrays]
        self._file.writelines(data)  # type: ignore[union-attr]
        row = {"part": self._part, "offset": self._offset, "sum": checksum(*data)}
        shapes = {f"shape_{place}": array.shape for place, array in enumerate(arrays)}
        for name, value in (row | shapes).items():
            self._columns.setdefault(name, []).append(value)
        size = sum(array.nbytes for array in arrays)
        self._offset += size
        self.payload_bytes += size
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
        count: Examples.
        payload_bytes: Of all features.
        files: By name, with their sizes.
        made_by: For a reader: the run, its overrides, and when.
        columns: The features of each example, in their order.
    """

    identity: list[Annotated[list[Any], Field(min_length=2, max_length=2)]]
    count: int
    payload_bytes: int
    files: dict[str, dict[str, int]]
    made_by: dict[str, Any]
    columns: list[Column] = dataclasses.field(default_factory=list)
    """Caches of an earlier format have none: no config reads them, and they are listed and removed as others."""

    def text(self) -> str:
        """As JSON, with a checksum over itself."""
        values = dataclasses.asdict(self)
        body = json.dumps(values, sort_keys=True)
        return json.dumps({"checksum": checksum(body.encode()), "cache": values}, indent=1, sort_keys=True)

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
    """Reads a published cache; every example is compared with its checksum.

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

    def one(self, number: int) -> tuple[Any, ...]:
        """An example as it was added: of each feature an array, or bytes."""
        found = []
        for place, column in enumerate(self.manifest.columns):
            dtype = np.dtype(np.uint8 if column.dtype == "bytes" else column.dtype)
            found.append(_aligned(tuple(self._index[f"shape_{place}"][number]), dtype))
        self._fill(number, found)
        is_bytes = [column.dtype == "bytes" for column in self.manifest.columns]
        return tuple(array.tobytes() if of else array for array, of in zip(found, is_bytes, strict=True))

    def batch(self, numbers: npt.NDArray[np.int64]) -> tuple[Array, ...]:
        """Of each feature an array (len(numbers), *shape), for features of one shape in all examples."""
        found = tuple(
            _aligned((len(numbers), *(column.shape or ())), np.dtype(column.dtype)) for column in self.manifest.columns
        )
        for row, number in enumerate(numbers):
            self._fill(int(number), [array[row : row + 1] for array in found])
        return found

    def _fill(self, number: int, arrays: Sequence[Array]) -> None:
        """Read the features of an example into `arrays`, which have their sizes."""
        part, data = int(self._index["part"][number]), [_bytes_of(array) for array in arrays]
        file = self._opened(part)
        count = os.preadv(file.descriptor, data, int(self._index["offset"][number]))
        found, wanted = checksum(*data), int(self._index["sum"][number])
        if count != sum(of.nbytes for of in data) or found != wanted:
            found_there = f"example {number} with checksum {found:016x}"
            raise BrokenError(self.folder / _part_name(part), found_there, f"{wanted:016x}")

    def close(self) -> None:
        """Close the files, but those that a thread reads right now: these close when it is done."""
        self._opened.cache_clear()


def _bytes_of(array: Array) -> memoryview:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Uninitialised memory that TensorFlow takes without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
