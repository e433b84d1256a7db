"""Columns of rows in figures: their types, what is missing, and the values that there are."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.sources.base import Split
from etlrun.sources.rows.dividing import Numbers, time_of
from etlrun.sources.rows.fitting import is_prose
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.rows import BETWEEN, Column
from etlrun.system.values import frozen

SAMPLED = 100_000
"""Rows of a split of which quantiles are computed, and what two columns have to do with each other."""
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_SEED = 0
_TOP, _LEAST_SHARE = 5, 0.01
_AT_ONCE = 262_144
"""Rows of a column that are in memory at once."""

Value = int | float | str


@frozen
class ColumnFigures:
    """A column in a split.

    Attributes:
        name: Its name.
        type: Its type as `dataset.columns` names it.
        rows: Number of values: one a row, or several of an array.
        missing: Number of those that are missing.
        distinct: Number of different values; None if there are more than are counted.
        mean: Mean of numbers, of times in UTC, and of truth values, where true is 1; None for text.
        quantiles: Least value, 5 %, 25 %, median, 75 %, 95 % and largest one, of numbers and times; those between
            are of a sample of `SAMPLED` rows, if there are more.
        top: Most frequent values, of at least 1 % of the rows, with their numbers, if all different ones are counted.
        counts: All values with their numbers, if they are counted.
    """

    name: str
    type: str
    rows: int
    missing: int
    distinct: int | None
    mean: Value | None
    quantiles: tuple[Value, ...]
    top: dict[str, int]
    counts: Counter[Any] | None = field(repr=False, compare=False)


class ColumnReader:
    """Columns of a split: all of their rows, in the order of the data, or a sample of them; and their figures.

    Attributes:
        source: The dataset.
        split: The split, whose `name` it has, too.
        rows: Numbers of its rows, in order.
        figures: Figures of all columns that are examined, in order.
        texts: Names of the texts of many words, and of those that are tokenized.
    """

    def __init__(
        self, split: Split, names: Sequence[str], tokenized: Collection[str], done: Callable[[int], None]
    ) -> None:
        """Read the columns of these names; `done` is told how many have been read."""
        self.source, self.split, self.name = cast("RowsSource", split.source), split, split.name
        self.order = np.argsort(split.numbers, kind="stable")
        self.rows = split.numbers[self.order]
        known = self.source.kept.known.columns
        self.figures: list[ColumnFigures] = []
        for name in names:
            self.figures.append(self._figures(name, known[name]))
            done(1)
        texts = [name for name in names if known[name].type == "text"]
        self.texts = [name for name in texts if name in tokenized or is_prose(known[name], self.sample(name))]

    def _figures(self, name: str, column: Column) -> ColumnFigures:
        counts: Counter[Any] | None = None if column.distinct is None or column.feature.shape else Counter()
        rows = missing = counted = 0
        total, ends, is_time = 0.0, list[Any](), column.type == "timestamp"
        for _, values in self.batches(name):
            there = values.drop_null()
            rows, missing = rows + len(values), missing + values.null_count
            if counts is not None and len(there):
                found = pc.value_counts(there)
                counts.update(dict(zip(*(found.field(part).to_pylist() for part in (0, 1)), strict=True)))
            if len(there) and not pa.types.is_large_binary(there.type):
                numbers = numbers_of(there)
                counted, total = counted + len(numbers), total + float(numbers.sum(dtype=np.float64))
                ends = [min([*ends[:1], numbers.min()]), max([*ends[1:], numbers.max()])]
        quantiles = []
        if counted and column.type != "truth":
            sample = self.sample(name).drop_null()
            inner = QUANTILES[1:-1]
            found = np.quantile(numbers_of(sample), inner) if len(sample) else np.full(len(inner), np.nan)
            quantiles = [ends[0], *found, ends[1]]
        frequent, least = (counts or Counter()).most_common(_TOP), max(2, _LEAST_SHARE * rows)
        return ColumnFigures(
            name=name,
            type=column.type,
            rows=rows,
            missing=missing,
            distinct=None if counts is None else len(counts),
            mean=_value(total / counted, is_time=is_time) if counted else None,
            quantiles=tuple(_value(value, is_time=is_time) for value in quantiles),
            top={plain(value, column.type): count for value, count in frequent if count >= least},
            counts=counts,
        )

    @cached_property
    def sampled(self) -> Numbers:
        """Numbers of the rows of a sample of at most `SAMPLED`, which is always the same."""
        if len(self.rows) <= SAMPLED:
            return self.rows
        return np.sort(np.random.default_rng(_SEED).choice(self.rows, SAMPLED, replace=False))

    def sample(self, name: str) -> pa.Array:
        """Return the values of a column in the rows of the sample; null where they are missing."""
        return _flat(self.source.kept.arrow(name, self.sampled))

    def batches(self, name: str) -> Iterator[tuple[int, pa.Array]]:
        """Yield the values of a column, with the place of the first one among the rows in order."""
        whole = self.source.kept.arrow(name)
        for start in range(0, len(self.rows), _AT_ONCE):
            yield start, _flat(whole.take(pa.array(self.rows[start : start + _AT_ONCE])))

    def where(self, place: int) -> str:
        """Return the file and the row at a place among the rows in order."""
        return self.split.where(self.split.shards[0], int(self.order[place]))


def _flat(values: pa.Array) -> pa.Array:
    is_list = pa.types.is_fixed_size_list(values.type) or pa.types.is_large_list(values.type)
    return values.flatten() if is_list else values


def numbers_of(values: pa.Array) -> npt.NDArray[Any]:
    """Return values, of which none is missing, as numbers: times as microseconds, and true as 1."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found.astype(np.int64) if found.dtype == bool else found


def _value(value: Any, *, is_time: bool) -> Value:
    if is_time:
        return time_of(int(value))
    return int(value) if isinstance(value, np.integer) else float(value)


def plain(value: Any, kind: str) -> str:
    """Return a value of a column of that type as text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace").replace(BETWEEN, ", ")
    if kind == "truth":
        return str(bool(value)).lower()
    return time_of(value) if kind == "timestamp" else f"{value:.6g}" if isinstance(value, float) else str(value)
