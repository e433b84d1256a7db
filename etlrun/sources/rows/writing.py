"""Writing of columns to files of a folder, in a stream."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.kept import Array, write_facts
from etlrun.stages.flow import Feature
from etlrun.stages.rows import MOST_COUNTED, Column

MOST_CODED = 100_000
"""Different texts of a column up to which its rows are kept as codes of texts, too."""


class Writer:
    """Writes columns to a folder, which `finish` completes."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        """Begin the columns of a schema.

        Its types are int64, float64, bool, timestamp[us], large_string, which with metadata are joined lists, and
        large_list of int32, int64 or float64.
        """
        self._folder, self._names = folder, schema.names
        self._columns = [_Written(folder, place, field) for place, field in enumerate(schema)]

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
        for place, column in enumerate(self._columns, len(self._columns)):
            column.close()
            if not column.column.missing:
                (self._folder / f"{place - len(self._columns)}.missing.bin").unlink()
            if column.words is not None:
                with contextlib.closing(_Texts(self._folder, place)) as texts:
                    texts.add(column.words)
        files = sorted(self._folder.glob("*.bin"))
        write_facts(self._folder, self.columns, files, dtypes=[of.dtype for of in self._columns], **others)

    def close(self) -> None:
        """Close the files; what `finish` has not completed is no folder of columns."""
        with contextlib.ExitStack() as stack:
            for column in self._columns:
                stack.callback(column.close)


def _opened(folder: Path, place: int, kind: str) -> BinaryIO:
    return (folder / f"{place}.{kind}.bin").open("wb")


def _write(file: BinaryIO, values: Array) -> None:
    file.write(np.ascontiguousarray(values).data)  # `tofile` would not say that a disk is full


class _Ends:
    """The places of the ends of texts or of lists that are being written, from 0."""

    def __init__(self, folder: Path, place: int) -> None:
        self._file, self._end = _opened(folder, place, "ends"), 0
        _write(self._file, np.zeros(1, np.int64))

    def add(self, lengths: pa.Array) -> None:
        ends = np.cumsum(lengths.to_numpy(zero_copy_only=False).astype(np.int64)) + self._end
        _write(self._file, ends)
        self._end = int(ends[-1]) if len(ends) else self._end

    def close(self) -> None:
        self._file.close()


class _Texts:
    """Texts that are being written, and the places of their ends."""

    def __init__(self, folder: Path, place: int) -> None:
        self._ends, self._text = _Ends(folder, place), _opened(folder, place, "text")

    def add(self, values: pa.Array) -> None:
        texts = values.fill_null("")
        self._ends.add(pc.binary_length(texts))
        start, offsets = texts.offset, np.frombuffer(texts.buffers()[1], np.int64)
        if texts.buffers()[2] is not None:
            begin, stop = int(offsets[start]), int(offsets[start + len(texts)])
            self._text.write(memoryview(texts.buffers()[2])[begin:stop])

    def close(self) -> None:
        with contextlib.closing(self._ends), contextlib.closing(self._text):  # both, even if a disk is full
            pass


class _Codes:
    """Codes of texts that are being written: the place of each among the different ones, from 1; 0 for a missing one.

    Attributes:
        words: The different texts; None once they are more than `MOST_CODED`.
    """

    def __init__(self, folder: Path, place: int) -> None:
        self.words: pa.Array | None = pa.array([], pa.large_string())
        self._file = _opened(folder, place, "codes")

    def add(self, values: pa.Array) -> None:
        if self.words is None:
            return
        found = pc.index_in(values, value_set=self.words)
        if len(new := values.filter(found.is_null()).drop_null().unique()):
            self.words = pa.concat_arrays([self.words, new])
            found = pc.index_in(values, value_set=self.words)
        if len(self.words) > MOST_CODED:
            self.words = None
            self._file.close()
            Path(self._file.name).unlink()
            return
        _write(self._file, found.fill_null(-1).to_numpy(zero_copy_only=False) + np.int32(1))

    def close(self) -> None:
        self._file.close()


def _numpy_dtype(kind: pa.DataType) -> str:
    """Return NumPy's name of a type; before 26, pyarrow's own function for it imports pandas."""
    return str(pa.nulls(0, kind).to_numpy(zero_copy_only=False).dtype.name)


class _Written:
    """A column that is being written, and what is known of it so far."""

    def __init__(self, folder: Path, place: int, field: pa.Field) -> None:
        kind, self._is_joined = field.type, field.metadata is not None
        self._lists = _Ends(folder, place) if pa.types.is_large_list(kind) else None
        kind = kind if self._lists is None else kind.value_type
        self._is_text, self._is_time = pa.types.is_large_string(kind), pa.types.is_timestamp(kind)
        self.dtype = "int64" if self._is_time else "uint8" if self._is_text else _numpy_dtype(kind)
        self._mask = _opened(folder, place, "missing")
        self._values = None if self._is_text else _opened(folder, place, "values")
        self._texts = (_Texts(folder, place), _Codes(folder, place)) if self._is_text else None
        self._missing = 0
        self._distinct: set[Any] | None = set()
        self._ends: list[float] = []

    def add(self, values: pa.Array) -> None:
        if self._lists is not None:
            self._lists.add(pc.list_value_length(values).fill_null(0))
            values = values.flatten()
        missing = pc.is_null(values, nan_is_null=True) if self.dtype == "float64" else values.is_null()
        self._missing += pc.sum(missing).as_py() or 0
        _write(self._mask, missing.to_numpy(zero_copy_only=False))
        for texts in self._texts or ():
            texts.add(values)
        if self._values is not None:
            if self._is_time:
                values = values.cast(pa.int64())  # Python has no times beyond the year 9999
            numbers = values.fill_null(np.nan if self.dtype == "float64" else False if self.dtype == "bool" else 0)
            _write(self._values, numbers.to_numpy(zero_copy_only=False))
            self._count(values.filter(pc.invert(missing)))

    def _count(self, there: pa.Array) -> None:
        if self._distinct is not None:
            self._distinct |= set(pc.unique(there).to_pylist())
            self._distinct = self._distinct if len(self._distinct) <= MOST_COUNTED else None
        if not self._is_time and self.dtype != "bool" and len(there):
            ends = pc.min_max(there)
            self._ends = [min([*self._ends[:1], ends["min"].as_py()]), max([*self._ends[1:], ends["max"].as_py()])]

    @property
    def words(self) -> pa.Array | None:
        """The texts that codes stand for; None if there are no codes."""
        return self._texts[1].words if self._texts else None

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # all of them, even if a disk is full
            for file in (self._mask, self._values, self._lists, *(self._texts or ())):
                if file is not None:
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
            shape = () if self._lists is None else (None,)
            feature = Feature(dtype=dtype, shape=shape, low=low, high=high, has_missing=has_missing)
        return Column(feature=feature, missing=self._missing, distinct=self._different, is_joined=self._is_joined)

    @property
    def _different(self) -> int | None:
        if not self._is_text:
            return None if self._distinct is None else len(self._distinct)
        return None if self.words is None or len(self.words) > MOST_COUNTED else len(self.words)
