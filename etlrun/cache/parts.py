"""Files of one cache: parts with one example after the other, and an index with a checksum for each example.

An example is the sequence of its features, in the order of the cache's columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash
from pydantic import Field, TypeAdapter

from etlrun.system.memory import aligned, free_memory
from etlrun.system.values import Block, frozen

MANIFEST, INDEX = "cache.json", "index.npz"
PART_BYTES = 4 * 2**30
"""Minimum size of a part, after which another one is begun."""
_MOST_OPEN = 64
"""Limit of open parts per cache: a process may have only so many open files, often 1,024."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CachedColumn:
    """A feature that a cache holds.

    Attributes:
        name: Name of the feature.
        dtype: NumPy's name, or `bytes` for strings.
        shape: Shape in each example; None if examples differ.
    """

    name: str
    dtype: str
    shape: list[int] | None


class BrokenError(OSError):
    """Error of a cache whose files differ from what was written.

    Attributes:
        path: Path of the file; `found` and `expected` are for a message.
        inode: Inode of the cache's folder, which distinguishes it from one that has replaced it.
    """

    def __init__(self, path: Path, found: str, expected: str) -> None:
        self.path, self.found, self.expected = path, found, expected
        self.inode: int | None = None
        super().__init__(f"{path}: found {found}; expected {expected}")


def checksum(*data: Any) -> int:
    """Return the 64-bit XXH3 of the concatenation: protects against disk errors, not against attackers."""
    whole = xxhash.xxh3_64()
    for of in data:
        whole.update(of)
    return whole.intdigest()


def _part_name(part: int) -> str:
    return f"part_{part:05}.bin"


class PartWriter:
    """Writes examples into parts in `folder`, in the order in which they are added.

    Attributes:
        count: Number of examples so far.
        payload_bytes: Size of their features.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.payload_bytes = folder, 0, 0
        self._file: BinaryIO | None = None
        self._columns: dict[str, list[Any]] = {}
        self._part, self._offset = -1, 0

    def add(self, *features: Any, number: Any = None) -> None:
        """Add an example, with bytes or an array of any shape per feature; raise `OSError` if it can't be written.

        `number` is that of the example in the data; None if it is the next one.
        """
        arrays = [
            np.frombuffer(of, np.uint8) if isinstance(of, bytes) else np.asarray(of, order="C") for of in features
        ]
        if self._file is None or self._offset > PART_BYTES:
            if self._file is not None:
                self._file.close()
            self._part, self._offset = self._part + 1, 0
            self._file = (self.folder / _part_name(self._part)).open("wb")
        data = [*map(_bytes_of, arrays)]
        self._file.writelines(data)
        row: Block = {"part": self._part, "offset": self._offset, "sum": checksum(*data)}
        row["number"] = self.count if number is None else number
        row |= {f"shape_{place}": array.shape for place, array in enumerate(arrays)}
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)
        size = sum(of.nbytes for of in data)
        self._offset += size
        self.payload_bytes += size
        self.count += 1

    def close(self, kept: Manifest) -> Manifest:
        """Write the index; return what is kept with the files, their sizes and, for the index, its checksum."""
        if self._file is not None:
            self._file.close()
        columns = {
            name: np.array(values, np.uint64 if name == "sum" else np.int64) for name, values in self._columns.items()
        }
        with (self.folder / INDEX).open("wb") as file:
            np.savez(file, **columns)  # type: ignore[arg-type]
        sizes = {path.name: {"bytes": path.stat().st_size} for path in sorted(self.folder.glob("part_*.bin"))}
        index = (self.folder / INDEX).read_bytes()
        files = {**sizes, INDEX: {"bytes": len(index), "checksum": checksum(index)}}
        return dataclasses.replace(kept, count=self.count, payload_bytes=self.payload_bytes, files=files)

    def abandon(self) -> None:
        """Close without an index; on a full disk even that may fail."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


@frozen
class Manifest:
    """Content of a cache's `cache.json`; of one that is to be filled, without what is known of its files.

    Attributes:
        identity: Identity of its examples: pairs of a name and a value, in order.
        count: Number of examples.
        payload_bytes: Size of all features.
        files: Files by name, with their sizes.
        made_by: Origin, for display: the run, its overrides, and the time.
        columns: Features of each example, in order.
    """

    identity: list[Annotated[list[Any], Field(min_length=2, max_length=2)]]
    made_by: Block
    count: int = 0
    payload_bytes: int = 0
    files: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    columns: list[CachedColumn] = dataclasses.field(default_factory=list)
    """Empty in caches of an earlier format, which no config reads, but which are listed and removed like others."""

    def text(self) -> str:
        """Return the manifest as JSON, with its own checksum."""
        values = dataclasses.asdict(self)
        body = json.dumps(values, sort_keys=True)
        return json.dumps({"checksum": checksum(body.encode()), "cache": values}, indent=1, sort_keys=True)

    @staticmethod
    def read(path: Path) -> Manifest:
        """Return the manifest in `path`; raise `BrokenError` if it differs from what was written."""
        try:
            outer = json.loads(path.read_bytes())
            body = json.dumps(outer["cache"], sort_keys=True)
            if outer["checksum"] == checksum(body.encode()) and INDEX in outer["cache"]["files"]:
                return _MANIFEST.validate_python(outer["cache"])
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise BrokenError(path, "a modified manifest", "the manifest that the run that filled the cache wrote")


_MANIFEST = TypeAdapter(Manifest)


def require_files(folder: Path, manifest: Manifest) -> None:
    """Raise `BrokenError` if a file of a cache is missing, or has another size than the one that was written."""
    for name, wanted in manifest.files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != wanted["bytes"]:
            raise BrokenError(path, "no file" if size is None else f"{size} bytes", f"{wanted['bytes']} bytes")


class _OpenFile:
    """A file for reading, closed with the last reference to it: never while a thread reads it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1  # for `__del__`, if there is no such file
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class PartReader:
    """Reads a published cache; every example is compared with its checksum.

    Attributes:
        manifest: Manifest of the cache.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Open the files; raise `BrokenError` if one is missing or truncated, or the index was modified."""
        self.folder, self.manifest = folder, manifest
        require_files(folder, manifest)
        data = (folder / INDEX).read_bytes()
        if checksum(data) != manifest.files[INDEX]["checksum"]:
            raise BrokenError(folder / INDEX, "a modified index", "the index that was written")
        with np.load(folder / INDEX) as index:
            self._index: dict[str, Array] = {name: index[name] for name in index.files}
        # Read, not mapped: mapped files count as memory of the process, up to the size of the data.
        self._opened = lru_cache(_MOST_OPEN)(lambda part: _OpenFile(folder / _part_name(part)))
        for part in range(min(len(manifest.files) - 1, _MOST_OPEN)):  # open files outlast a removal of the cache
            self._opened(part)
        self._free = [free_memory() for _ in manifest.columns]

    @property
    def numbers(self) -> Array:
        """Numbers of the examples in the data (int64), in the order of the cache."""
        return self._index["number"]

    def one(self, number: int) -> tuple[Any, ...]:
        """Return an example as it was added: an array or bytes per feature."""
        dtypes, found = [column.dtype for column in self.manifest.columns], []
        for place, dtype in enumerate(dtypes):
            shape = tuple(self._index[f"shape_{place}"][number])
            found.append(aligned(shape, "uint8" if dtype == "bytes" else dtype))
        self._fill([number], [[*map(_bytes_of, found)]])
        return tuple(of.tobytes() if dtype == "bytes" else of for of, dtype in zip(found, dtypes, strict=True))

    def batch(self, numbers: npt.NDArray[np.int64]) -> tuple[Array, ...]:
        """Return an array (len(numbers), *shape) per feature; bytes as objects, others of one shape in all examples."""
        if any(column.dtype == "bytes" for column in self.manifest.columns):
            features = zip(*(self.one(int(number)) for number in numbers), strict=True)
            return tuple(np.array(of, object) if isinstance(of[0], bytes) else np.stack(of) for of in features)
        columns = zip(self.manifest.columns, self._free, strict=True)
        found = tuple(aligned((len(numbers), *(of.shape or ())), of.dtype, free) for of, free in columns)
        rows = zip(*(of.reshape(len(of), -1).view(np.uint8) for of in found), strict=True)
        self._fill(numbers.tolist(), rows)
        return found

    def _fill(self, numbers: Iterable[int], rows: Iterable[Sequence[Any]]) -> None:
        """Read the features of each example into the bytes of a row."""
        for number, row in zip(numbers, rows, strict=True):
            part, offset, wanted = (self._index[name].item(number) for name in ("part", "offset", "sum"))
            file = self._opened(part)  # which another thread may close, unless it is held here
            count, found = os.preadv(file.descriptor, row, offset), checksum(*row)
            if found != wanted or count != sum(of.nbytes for of in row):
                found_there = f"example {number} with checksum {found:016x}"
                raise BrokenError(self.folder / _part_name(part), found_there, f"{wanted:016x}")

    def close(self) -> None:
        """Close the files; one that a thread is reading is closed afterwards."""
        self._opened.cache_clear()


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
