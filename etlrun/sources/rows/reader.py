"""Values of columns after some of the steps on them, as fitting reads them: in a whole split, or part after part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.kept import lacking
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_numbers import ColumnStep, counted_in, items
from etlrun.stages.columns import Output
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.lazy import tf
from etlrun.system.errors import WorldError

_FILES = 32
"""Files of them, of which each has all counts of its values."""


class Counts(NamedTuple):
    """Counts of values.

    Attributes:
        table: The most frequent values, column `value`, and how often each is there, column `count`, in order.
        there: Number of values that are not missing.
        total: Number of all values.
    """

    table: pa.Table
    there: int
    total: int


def counts_in(parts: Iterable[pa.Array], least: int, most: int, folder: Path, *, in_memory: int = 500_000) -> Counts:
    """Return the `most` most frequent values in the parts, of those that are there `least` times; one at least.

    As soon as `in_memory` values are different, they are in files: in `folder`, or where temporary files are if it
    can't be written to. None outlives this call.

    Raises:
        OSError: They can't be written.
    """
    counted, waiting, total, there = pa.table({}), list[pa.Table](), 0, 0
    with ExitStack() as stack:
        files = _Files(stack, folder)
        for part in parts:
            total += len(part)
            waiting.append(counted_in(part))
            there += len(part) - part.null_count
            if sum(map(len, waiting)) > len(counted):  # so that many parts are added up a few times alone
                counted, waiting = _added([counted, *waiting]), []
            if len(counted) > in_memory:
                files.add(counted)
                counted = pa.table({})
        counted = _added([counted, *waiting])
        if files.writers:
            if len(counted):
                files.add(counted)
            counted = pa.concat_tables([_first(_added([of]), least, most) for of in files.tables()])
        return Counts(_first(counted, least, most), there, total)


class _Files:
    """Counts on disk, of which all of a value are in one file."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.writers: list[tuple[Any, Any]] = []
        self._stack, self._folder = stack, folder if os.access(folder, os.W_OK) else None

    def add(self, counted: pa.Table) -> None:
        """Write counts to the files of their values."""
        if not self.writers:
            for _ in range(_FILES):
                file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - the stack closes it
                self._stack.callback(file.close)
                self.writers.append((file, pa.ipc.new_stream(file, counted.schema)))
        counted = counted.combine_chunks()
        places = _places(counted["value"].chunk(0))
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(_FILES + 1))
        in_order = counted.take(pa.array(order))
        for (_, writer), start, end in zip(self.writers, ends[:-1], ends[1:], strict=True):
            writer.write_table(in_order.slice(start, end - start))

    def tables(self) -> Iterator[pa.Table]:
        """Yield what each file has."""
        for file, writer in self.writers:
            writer.close()
            file.seek(0)
            yield pa.ipc.open_stream(file).read_all()


def _places(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of the file of each value: of texts by their lengths and three of their bytes."""
    found: npt.NDArray[np.int64]
    if not pa.types.is_large_binary(values.type):
        found = values.to_numpy(zero_copy_only=False).view(np.int64)
        return found % _FILES
    ends = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.append(np.frombuffer(values.buffers()[2] or b"", np.uint8), np.uint8(0)).astype(np.int64)
    start, end = ends[:-1], ends[1:]
    found = end - start
    for at in (start, (start + end) // 2, np.maximum(end - 1, start)):
        found = found * 31 + data[at]
    return found % _FILES


def _added(counted: Sequence[pa.Table]) -> pa.Table:
    tables = [table for table in counted if table.num_columns]
    if not tables:
        return pa.table({"value": pa.array([]), "count": pa.array([], pa.int64())})
    found = pa.concat_tables(tables).group_by("value", use_threads=False).aggregate([("count", "sum")])
    return pa.table({"value": found["value"], "count": found["count_sum"]})


def _first(counted: pa.Table, least: int, most: int) -> pa.Table:
    ordered = counted.sort_by([("count", "descending"), ("value", "ascending")])
    enough = int(np.count_nonzero(ordered["count"].to_numpy() >= least))
    return ordered.slice(0, max(min(enough, most), 1))


_AT_ONCE = 2_048
"""Rows whose sequences are in memory at once, at the most."""
_LOOKED_AT = 65_536
"""Rows that are looked at for missing values at once."""


class Reader:
    """The values of an output's columns in a split, which are read once."""

    def __init__(self, output: Output, above: dict[str, Output], source: RowsSource, split: RowSplit) -> None:
        self.output, self.split, self._above, self._source = output, split, above, source
        self._done: list[ColumnStep] = []
        self._value: Any = None
        self._counted: tuple[list[ColumnStep], Counts | None] = [], None
        self._lengths = dict[int, npt.NDArray[np.int32]]()

    def read(
        self, steps: Sequence[ColumnStep], *, parts: bool = False, counts: tuple[int, int] | None = None
    ) -> pa.Array | pa.Table | Iterator[pa.Array]:
        """Return the values after some of the steps, as `ColumnStep.fitted` takes them."""
        if counts is not None:
            self._counted = [*steps], self._counts(steps, *counts)
            return self.counted(steps).table  # type: ignore[union-attr] # those of the line above
        return self.parts(steps) if parts else self.behind(steps)

    def parts(self, steps: Sequence[ColumnStep]) -> Iterator[pa.Array]:
        """Yield the values after some of the steps, those of some rows after the other."""
        lengths, count = [], self._source.kept.known.rows_at_once(_AT_ONCE)
        for start in range(0, self.split.num_examples, count):
            values = self._part(start, count).behind(steps)
            if pa.types.is_large_list(values.type):
                lengths.append(np.diff(np.asarray(values.offsets)).astype(np.int32))
            yield values
        if lengths:
            self._lengths[len(steps)] = np.concatenate(lengths)

    def _part(self, start: int, count: int) -> Reader:
        part = self.split.part(start, min(start + count, self.split.num_examples))
        return Reader(self.output, self._above, self._source, part)

    def has_sequences(self, steps: Sequence[ColumnStep]) -> bool:
        """Return whether the values after some of the steps are sequences."""
        return bool(pa.types.is_large_list(self._part(0, 1).behind(steps).type))

    def known_lengths(self, steps: Sequence[ColumnStep]) -> npt.NDArray[np.int32] | None:
        """Return the number of items of each row after the steps, if it follows from parts that have been read."""
        for count, before in sorted(self._lengths.items(), reverse=True):
            found: npt.NDArray[np.int32] | None = before
            for step in steps[count:]:
                found = None if found is None else step.lengths(found)
            if found is not None:
                return found
        return None

    def counted(self, steps: Sequence[ColumnStep]) -> Counts | None:
        """Return the counts of the items after some of the steps; None unless these have been read last."""
        return self._counted[1] if self._counted[0] == [*steps] else None

    def _counts(self, steps: Sequence[ColumnStep], least: int, most: int) -> Counts:
        folder = self._source.kept.folder
        try:
            return counts_in(map(items, self.parts(steps)), least, most, folder)
        except OSError as error:
            raise WorldError(
                self._source.dataset.key("dir"),
                f"{folder}: {error.strerror or error}",
                "space for the counts of all tokens",
                "free disk space, or set it to another folder",
            ) from error

    @cached_property
    def missing(self) -> int:
        """Number of rows in which a value of the columns is missing, or an item of a list."""
        kept, found = self._source.kept, 0
        whole = {name: kept.arrow(name) for name in self._names}
        masks = {name: of if pa.types.is_nested(of.type) else of.is_null() for name, of in whole.items()}
        for start in range(0, len(self.split.rows), _LOOKED_AT) if masks else ():
            rows = pa.array(self.split.rows[start : start + _LOOKED_AT])
            some = (of.take(rows) for of in masks.values())
            found += pc.sum(reduce(pc.or_, (lacking(of) if pa.types.is_nested(of.type) else of for of in some))).as_py()
        return found

    def behind(self, steps: Sequence[ColumnStep]) -> pa.Array:
        """Return the values after some of the steps; null where they are missing."""
        if not steps and (column := self.columns.get(self.output.of[0])) is not None:
            return column.flatten() if pa.types.is_fixed_size_list(column.type) else column
        value = self._applied(steps)
        if isinstance(value, tf.RaggedTensor):
            return pa.LargeListArray.from_arrays(value.row_splits.numpy(), _arrow(value.flat_values.numpy()))
        return _arrow(value.numpy().ravel())

    def lengths(self, steps: Sequence[ColumnStep]) -> npt.NDArray[np.int64]:
        """Return the number of items of each sequence after some of the steps."""
        return np.asarray(self._applied(steps).row_lengths())

    def _applied(self, steps: Sequence[ColumnStep]) -> Any:
        if self._value is None or [*steps[: len(self._done)]] != self._done:
            self._value, self._done = self.output.behind((), self._example), []
        for step in steps[len(self._done) :]:
            self._value = step.applied(self._value)
            self._done.append(step)
        return self._value

    @cached_property
    def columns(self) -> dict[str, pa.Array]:
        """The columns themselves in the rows of the split, null where they are missing, by name."""
        rows = pa.array(self.split.rows)
        return {name: self._source.kept.arrow(name).take(rows) for name in self._names}

    @property
    def _names(self) -> list[str]:
        """Names of the columns, those of outputs above that it is made of, too."""
        return [name for name in self._needed(self.output) if name in self._source.dataset.examples.features]

    def _needed(self, output: Output) -> Iterator[str]:
        for name in output.of:
            yield name
            if name in self._above and name not in self._source.dataset.examples.features:
                yield from self._needed(self._above[name])

    @cached_property
    def _example(self) -> dict[str, Any]:
        features = self._source.dataset.examples.features
        found = {name: _given(values, features[name]) for name, values in self.columns.items()}
        for name, output in self._above.items():
            if name in self._needed(self.output) and name not in found:
                found[name] = output.given(found)
        return found


def _arrow(values: np.ndarray) -> pa.Array:
    """Return values of a pipeline; null where they are missing."""
    if values.dtype == object:
        return pa.array(values, pa.large_binary(), mask=values == MISSING)
    return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else None)


def _given(values: pa.Array, feature: Feature) -> Any:
    """Return the values of a column as the rows of a pipeline have them: a tensor, or for lists a ragged one."""
    if feature.is_sequence:
        items = _plain(values.flatten(), feature.replace(shape=()))
        return tf.RaggedTensor.from_row_splits(items, np.asarray(values.offsets))
    return tf.constant(_plain(values, feature))


def _plain(values: pa.Array, feature: Feature) -> Any:
    if feature.dtype == "string":
        return values.fill_null(MISSING).to_numpy(zero_copy_only=False)
    if feature.format == "timestamp":
        return values.fill_null(MISSING_TIME).to_numpy(zero_copy_only=False)
    numbers = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    found = numbers.to_numpy(zero_copy_only=False).astype(feature.dtype)
    return found.reshape(len(values), *feature.shape) if feature.shape else found
