"""Rows of a split that are also in another one: counted once by hashes of their values, and kept beside the columns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from etlrun.sources.content import digest
from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.kept import KeptColumns
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.system.files import write_atomically
from etlrun.system.terminal import progress
from etlrun.system.values import frozen

Hashes = npt.NDArray[np.uint64]
_AT_ONCE = 65_536
"""Rows whose values are in memory at once."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIXED = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(27)), (np.uint64(0x94D049BB133111EB), np.uint64(31))


def hashes_of(
    kept: KeptColumns, names: Sequence[str], rows: Numbers, done: Callable[[int], None] = lambda _: None
) -> Hashes:
    """Return a hash of 64 bits of the values that each of these rows has in these columns.

    Equal rows have equal hashes, in any process: missing values are equal, and so are 0.0 and -0.0. Among 10 million
    different rows, two have the same hash in 3 of a million tables. `done` is told how many rows have been read.
    """
    found = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        hashes = np.zeros(len(some), np.uint64)
        for name in names:
            for values in _plain(kept.take(name, some)):
                hashes = _mixed(hashes * _FACTOR + _mixed(values + _FACTOR))
        found[start : start + _AT_ONCE] = hashes
        done(len(some))
    return found


def _plain(values: npt.NDArray[Any]) -> Iterator[Hashes]:
    """Yield 64 bits for each row: of a text its hash, and of an array one value after the other."""
    if values.dtype == object:
        yield np.fromiter(map(xxh3_64_intdigest, values), np.uint64, len(values))
        return
    flat = values.reshape(len(values), -1)
    if values.dtype.kind == "f":
        flat = np.where(np.isnan(flat), np.nan, flat.astype(np.float64) + 0.0)
    bits = flat.astype(np.int64) if values.dtype.kind != "f" else flat
    yield from np.ascontiguousarray(bits.T).view(np.uint64)


def _mixed(bits: Hashes) -> Hashes:
    """Return 64 bits each of which depends on all of those before, as in SplitMix64."""
    mixed = bits ^ (bits >> np.uint64(30))
    for factor, shift in _MIXED:
        mixed = mixed * factor
        mixed ^= mixed >> shift
    return mixed


_FORMAT = 2
"""Version of what is kept."""
_FEWEST_COMBINATIONS = 10
"""Combinations of values for each row, below which rows are equal by chance."""


@frozen
class Leaks:
    """Rows of a split whose inputs another split has, too.

    Attributes:
        same: Number of those with the same targets.
        others: Number of those with other targets alone.
        left_out: Columns that have another value in each row, and are not compared.
    """

    same: int
    others: int
    left_out: tuple[str, ...]


def columns_compared(source: RowsSource) -> list[str]:
    """Return the columns by which rows are compared: inputs and targets, but none that has another value in each row.

    None of them if they have few combinations of values, so that different examples are equal rows.
    """
    known, rows = source.kept.known.columns, sum(source.counts.values())
    names = [name for name in names_examined(source) if known[name].feature.shape or not _numbers_rows(source, name)]
    combinations = 1.0
    for name in names:
        distinct = _different(source, name) if known[name].feature.is_sequence else known[name].distinct
        combinations *= min(rows if distinct is None else distinct + (known[name].missing > 0), rows) or 1
    return names if combinations >= _FEWEST_COMBINATIONS * rows else []


def _different(source: RowsSource, name: str) -> int:
    """Return the number of different values of a column, which may not fit in memory; of lists, not of their items."""
    return len(np.unique(hashes_of(source.kept, [name], np.arange(sum(source.kept.known.rows.values())))))


def names_examined(source: RowsSource) -> list[str]:
    """Return the columns that are examined: the inputs and what is predicted."""
    return [name for name in source.kept.known.columns if name in source.dataset.examples.features]


def _numbers_rows(source: RowsSource, name: str) -> bool:
    """Return whether a text or an integer is another one in each row, as names and numbers of rows are."""
    column = source.kept.known.columns[name]
    rows = sum(source.counts.values())
    if column.type not in ("text", "integer", "image file") or column.distinct not in (None, rows) or column.missing:
        return False
    return column.distinct is not None or _different(source, name) == rows


def leaks_of(source: RowsSource, train: RowSplit, other: RowSplit) -> Leaks:
    """Return how many rows of `other` are also in `train`; those that have been counted before are not again."""
    features = [*source.dataset.examples.features]
    described = [_FORMAT, features, [*source.dataset.target], train.content.digest, other.content.digest]
    path = source.kept.folder / f"leaks-{digest(described)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError):
        held = json.loads(path.read_text())
        return Leaks(same=held["same"], others=held["others"], left_out=tuple(held["left_out"]))
    names = columns_compared(source)
    left_out = tuple(name for name in names_examined(source) if name not in names) if names else ()
    same, others = _counted(source, names, np.sort(train.rows), np.sort(other.rows))
    with contextlib.suppress(OSError):  # they are counted again
        write_atomically(path, json.dumps({"same": same, "others": others, "left_out": left_out}))
    return Leaks(same=same, others=others, left_out=left_out)


def _counted(source: RowsSource, names: list[str], train: Numbers, other: Numbers) -> tuple[int, int]:
    """Return how many of the `other` rows have the inputs of rows in `train`, with the same targets and with others."""
    inputs = [name for name in names if name not in source.dataset.target]
    if not inputs:
        return 0, 0
    with progress() as begin:
        advance = begin("Comparing rows", len(train) + len(other))
        of_train, of_other = (hashes_of(source.kept, inputs, rows, advance) for rows in (train, other))
    is_in = _is_in(of_other, of_train)
    other = other[is_in]
    train, names = train[_is_in(of_train, of_other[is_in])], [*inputs, *source.dataset.target]
    same = int(_is_in(hashes_of(source.kept, names, other), hashes_of(source.kept, names, train)).sum())
    return same, len(other) - same


def _is_in(hashes: np.ndarray, of: np.ndarray) -> np.ndarray:
    return np.asarray(pc.is_in(pa.array(hashes), value_set=pa.array(of)))
