"""Columns in files of a folder, which are mapped into memory: written once, in a stream, and read by number."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.folders import FACTS
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.rows import MOST_COUNTED, Column, Known
from etlrun.system.files import sync, write_atomically

Array = npt.NDArray[Any]


class Kept:
    """Columns that are kept in a folder. Its functions may be called by several threads at once.

    Attributes:
        folder: The folder.
        known: What is known of the columns.
    """

    def __init__(self, folder: Path) -> None:
        """Open the columns of a folder; raise `OSError` if it is missing, `ValueError` if a file is not complete."""
        self.folder = folder
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
        lists: dict[str, Any] = {name: tuple(held.pop(name, ())) for name in ("notes", "file_rows")}
        held_bytes = sum(sizes.values())
        self.known = Known(**held, columns=columns, held_bytes=held_bytes, **lists, folder=str(folder))
        self._places = {name: place for place, name in enumerate(columns)}

    def take(self, name: str, numbers: Array) -> Array:
        """Return the values of a column in the rows of these numbers; text as bytes, of dtype object."""
        place, feature = self._places[name], self.known.columns[name].feature
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

    def arrow(self, name: str) -> pa.Array:
        """Return a whole column without a copy, text as `large_binary`; what is missing is null."""
        place, column = self._places[name], self.known.columns[name]
        mask = self._mapped(place, "missing") if column.missing else None
        if column.feature.dtype != "string":
            values = pa.array(self._mapped(place, "values"), mask=mask, from_pandas=False)
            return values.cast(pa.float64()) if mask is not None and pa.types.is_boolean(values.type) else values
        texts = self._arrow_texts(place)
        return texts if mask is None else pc.if_else(pa.array(mask), None, texts)

    def _arrow_texts(self, place: int) -> pa.LargeBinaryArray:
        """Return the texts of a column without a copy; one that is missing is empty."""
        buffers = [pa.py_buffer(self._mapped(place, kind)) for kind in ("ends", "text")]
        count = len(self._mapped(place, "ends")) - 1
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, *buffers])

    def _mapped(self, place: int, kind: str) -> Array:
        key = f"{place}.{kind}"
        if key not in self._files:
            self._files[key] = self._map(key)
        return self._files[key]

    @cached_property
    def _files(self) -> dict[str, Array]:
        return {}

    def _map(self, name: str) -> Array:
        place, kind = name.split(".")
        dtype = {"missing": "bool", "ends": "int64", "text": "uint8"}.get(kind) or self._dtypes[int(place)]
        path = self.folder / f"{name}.bin"
        return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


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


class Writer:
    """Writes columns to a folder, which `finish` completes."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        """Begin the columns of a schema, whose types are int64, float64, bool, timestamp[us] and large_string."""
        self._folder, self._names = folder, schema.names
        self._columns = [_Written(folder, place, field.type) for place, field in enumerate(schema)]

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch of the schema."""
        for column, values in zip(self._columns, batch.columns, strict=True):
            column.add(values)

    @property
    def columns(self) -> dict[str, Column]:
        """What is known of the columns so far."""
        return {name: column.column for name, column in zip(self._names, self._columns, strict=True)}

    def finish(self, **others: Any) -> None:
        """Complete the folder with what is known of its columns; `others` are of `Known`, and a `title`."""
        for column in self._columns:
            column.close()
        files = sorted(self._folder.glob("*.bin"))
        write_facts(self._folder, self.columns, files, dtypes=[of.dtype for of in self._columns], **others)

    def close(self) -> None:
        """Close the files; what `finish` has not completed is no folder of columns."""
        with contextlib.ExitStack() as stack:
            for column in self._columns:
                stack.callback(column.close)


class _Written:
    """A column that is being written, and what is known of it so far."""

    def __init__(self, folder: Path, place: int, kind: pa.DataType) -> None:
        self._is_text, self._is_time = pa.types.is_large_string(kind), pa.types.is_timestamp(kind)
        self.dtype = "int64" if self._is_time else "uint8" if self._is_text else np.dtype(kind.to_pandas_dtype()).name
        kinds = ("missing", "ends", "text") if self._is_text else ("missing", "values")
        self._files = {kind: (folder / f"{place}.{kind}.bin").open("wb") for kind in kinds}
        self._end, self._missing = 0, 0
        self._distinct: set[Any] | None = set()
        self._ends: list[float] = []
        if self._is_text:
            self._write("ends", np.zeros(1, np.int64))

    def add(self, values: pa.Array) -> None:
        missing = pc.is_null(values, nan_is_null=True) if self.dtype == "float64" else values.is_null()
        self._missing += pc.sum(missing).as_py() or 0
        self._write("missing", missing.to_numpy(zero_copy_only=False))
        if self._is_time:
            values = values.cast(pa.int64())  # Python has no times beyond the year 9999
        if self._is_text:
            self._add_texts(values)
        else:
            numbers = values.fill_null(np.nan if self.dtype == "float64" else 0 if self.dtype == "int64" else False)
            self._write("values", numbers.to_numpy(zero_copy_only=False))
        self._count(values.filter(pc.invert(missing)))

    def _write(self, kind: str, values: Array) -> None:
        self._files[kind].write(np.ascontiguousarray(values).data)  # `tofile` would not say that a disk is full

    def _add_texts(self, values: pa.Array) -> None:
        texts = values.fill_null("")
        lengths = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64))
        self._write("ends", lengths + self._end)
        self._end += int(lengths[-1]) if len(lengths) else 0
        start, offsets = texts.offset, np.frombuffer(texts.buffers()[1], np.int64)
        if texts.buffers()[2] is not None:
            begin, stop = int(offsets[start]), int(offsets[start + len(texts)])
            self._files["text"].write(memoryview(texts.buffers()[2])[begin:stop])

    def _count(self, there: pa.Array) -> None:
        if self._distinct is not None:
            self._distinct |= set(pc.unique(there).to_pylist())
            self._distinct = self._distinct if len(self._distinct) <= MOST_COUNTED else None
        if not self._is_text and not self._is_time and self.dtype != "bool" and len(there):
            ends = pc.min_max(there)
            self._ends = [min([*self._ends[:1], ends["min"].as_py()]), max([*self._ends[1:], ends["max"].as_py()])]

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # all of them, even if a disk is full
            for file in self._files.values():
                stack.callback(file.close)

    @property
    def column(self) -> Column:
        """What is known of the column."""
        has_missing = self._missing > 0
        low, high = (float(end) for end in self._ends) if self._ends else (None, None)
        if self._is_text:
            feature = Feature(dtype="string", format="text", has_missing=has_missing)
        elif self._is_time:
            feature = Feature(dtype="int64", format="timestamp", has_missing=has_missing)
        else:
            dtype = "float64" if has_missing else self.dtype
            feature = Feature(dtype=dtype, low=low, high=high, has_missing=has_missing)
        distinct = None if self._distinct is None else len(self._distinct)
        return Column(feature=feature, missing=self._missing, distinct=distinct)
