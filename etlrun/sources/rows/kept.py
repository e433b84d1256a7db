"""Columns in files of a folder, which are mapped into memory: written once, in a stream, and read by number."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.records import Stamp
from etlrun.sources.rows.folders import FACTS
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.rows import Column, Known
from etlrun.system.files import sync, write_atomically

Array = npt.NDArray[Any]
_DTYPES = {"missing": "bool", "ends": "int64", "text": "uint8", "codes": "int32"}
"""Types of files by their kinds; that of values is kept."""


class Kept:
    """Columns that are kept in a folder. Its functions may be called by several threads at once.

    Attributes:
        folder: The folder.
        known: What is known of the columns.
        divided: Rows of their splits, by how they are split.
        stamps: Files that they were read from, by path.
    """

    def __init__(self, folder: Path) -> None:
        """Open the columns of a folder; raise `OSError` if it is missing, `ValueError` if a file is not complete."""
        self.folder, self.divided, self._files = folder, dict[str, Any](), dict[str, Array]()
        self.stamps: dict[str, Stamp] = {}
        use = os.open(folder / FACTS, os.O_RDONLY)
        weakref.finalize(self, os.close, use)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(use, fcntl.LOCK_SH)  # released when this object, or the process, ends
        with contextlib.suppress(OSError):  # another user's columns keep their time
            os.utime(folder / FACTS)
        held = json.loads((folder / FACTS).read_text())
        held.pop("title")
        sizes, self._dtypes = held.pop("files"), held.pop("dtypes", [])
        for name, size in sizes.items():
            if (found := (folder / name).stat().st_size) != size:
                raise ValueError(f"{folder / name} has {found} bytes instead of {size}")
        columns = {name: _column(of) for name, of in held.pop("columns").items()}
        lists: dict[str, Any] = {name: tuple(held.pop(name, ())) for name in ("notes", "file_rows", "of_folders")}
        held_bytes = sum(sizes.values())
        self.known = Known(**held, columns=columns, held_bytes=held_bytes, **lists, folder=str(folder))
        self._places = {name: place for place, name in enumerate(columns)}

    def take(self, name: str, numbers: Array) -> Array:
        """Return the values of a column in rows by number; texts as bytes, and lists as arrays, of dtype object."""
        place, feature = self._places[name], self.known.columns[name].feature
        if self.has_lists(name):
            lists = self.arrow(name).take(pa.array(numbers))
            ends, values = np.asarray(lists.offsets), lists.flatten().to_numpy(zero_copy_only=False)
            found = np.empty(len(lists), object)
            found[:] = np.split(values, ends[1:-1]) if len(lists) != 1 else [values]
            return found
        missing = self._mapped(place, "missing")[numbers] if self.known.columns[name].missing else None
        if feature.dtype == "string":
            return self._texts(place, numbers, missing)
        values = self._mapped(place, "values")[numbers]
        if missing is None or values.dtype.kind == "f":
            return values
        if feature.format == "timestamp":
            return np.where(missing, MISSING_TIME, values)
        return np.where(missing, np.nan, values)

    def _texts(self, place: int, numbers: Array, missing: Array | None) -> Array:
        found: Array = self._arrow_texts(place).take(pa.array(numbers)).to_numpy(zero_copy_only=False)
        if missing is not None:
            found[missing] = MISSING
        return found

    def has_lists(self, name: str) -> bool:
        """Return whether the values of a column are lists of different lengths."""
        return self.known.columns[name].feature.is_sequence

    def file(self, name: str, kind: str) -> tuple[Path, str] | None:
        """Return the path and the dtype of a file with an item for each row: `values`, which are `missing`, or `codes`.

        Codes are those of `words`. Values of lists are one after the other, and `ends` says where each list ends. None
        if the column has no such file.
        """
        key = f"{self._places[name]}.{kind}"
        path = self.folder / f"{key}.bin"
        is_there = path.exists() and (kind != "missing" or self.known.columns[name].missing > 0)
        return (path, self._dtype(key)) if is_there else None

    def words(self, name: str) -> Array:
        """Return the texts, as bytes, by their codes; the first one is for what is missing."""
        found: Array = self._arrow_texts(len(self._places) + self._places[name]).to_numpy(zero_copy_only=False)
        return np.concatenate([np.array([MISSING], object), found])

    def arrow(self, name: str) -> pa.Array:
        """Return a whole column without a copy, text as `large_binary`; null where a value is missing."""
        place, column = self._places[name], self.known.columns[name]
        mask = self._mapped(place, "missing") if column.missing else None
        if column.feature.dtype != "string":
            values = pa.array(self._mapped(place, "values"), mask=mask, from_pandas=False)
            if self.has_lists(name):
                values = values if mask is None else values.cast(pa.float64())
                return pa.LargeListArray.from_arrays(self._mapped(place, "ends"), values)
            return values.cast(pa.float64()) if mask is not None and pa.types.is_boolean(values.type) else values
        return self._arrow_texts(place, mask)

    def _arrow_texts(self, place: int, missing: Array | None = None) -> pa.LargeBinaryArray:
        """Return the texts of a column without a copy; null where `missing` says so, else empty if one is missing."""
        there = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
        buffers = [pa.py_buffer(self._mapped(place, kind)) for kind in ("ends", "text")]
        count = len(self._mapped(place, "ends")) - 1
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [there, *buffers])

    def _mapped(self, place: int, kind: str) -> Array:
        key = f"{place}.{kind}"
        if key not in self._files:
            path, dtype = self.folder / f"{key}.bin", self._dtype(key)
            self._files[key] = np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)
        return self._files[key]

    def _dtype(self, name: str) -> str:
        place, kind = name.split(".")
        return _DTYPES.get(kind) or str(self._dtypes[int(place)])


def lacking(values: pa.Array) -> pa.Array:
    """Return whether each value of a column is missing, or, of lists, any of its items."""
    if not pa.types.is_nested(values.type):
        return values.is_null()
    parents = pc.list_parent_indices(values).filter(values.flatten().is_null())
    return pc.is_in(pa.array(np.arange(len(values))), value_set=parents)


def _column(held: dict[str, Any]) -> Column:
    feature = held.pop("feature")
    return Column(feature=Feature(**{**feature, "shape": tuple(feature["shape"])}), **held)


def write_facts(folder: Path, columns: Mapping[str, Column], files: Sequence[Path], **others: Any) -> None:
    """Complete a folder, whose `files` are written, with what is known of its columns; `others` are of `Known`."""
    for path in files:
        sync(path)
    held = {
        "columns": {name: dataclasses.asdict(column) for name, column in columns.items()},
        "files": {path.name: path.stat().st_size for path in files},
        **others,
    }
    write_atomically(folder / FACTS, json.dumps(held, indent=1))
    sync(folder)
