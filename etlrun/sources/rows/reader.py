"""Values of columns after some of the steps on them, as fitting reads them: in a whole split, or part after part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.rows.counting import Counts, counts_in
from etlrun.sources.rows.kept import lacking
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_numbers import ColumnStep, items
from etlrun.stages.columns import Output
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.lazy import tf
from etlrun.system.errors import WorldError

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
