"""Division of the rows of a dataset into splits, by their place or by the values of a column; and rows that are in two.

These are counted once by hashes of their values, and kept beside the columns.
"""

import functools
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from etlrun.sources.rows.kept import KeptColumns, lacking, remembered
from etlrun.sources.rows.kinds import Kind, first_unfit, has_fraction
from etlrun.sources.rows.table import or_a_value
from etlrun.stages.dataset import SplitBy, Value
from etlrun.stages.rows import Column, Rows
from etlrun.system.errors import ConfigError, Fault, counted, did_you_mean, override, refuse
from etlrun.system.terminal import progress
from etlrun.system.values import frozen

Numbers = npt.NDArray[np.int64]


@functools.lru_cache(maxsize=4)
def in_random_order(count: int) -> np.ndarray:
    """Return the numbers below `count` in a random order, always the same one; a plan and its run share the array."""
    found = np.random.default_rng(0).permutation(count).astype(np.int64, copy=False)
    found.setflags(write=False)
    return found


def placed(by: str, rows: np.ndarray, values: pa.Array, order: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return `rows` in the order in which slices take them, and the places where slices may end; None for anywhere.

    `values` are those of the column in each of the rows, which are in the order in which they are read.
    """
    keys = keys_of(by, values, order)
    places = np.argsort(keys, kind="stable")
    if by == "stratify":
        return rows[places], None
    changes = np.flatnonzero(keys[places[1:]] != keys[places[:-1]]) + 1  # rows of one value stay together
    return rows[places], np.concatenate([[0], changes, [len(rows)]])


def keys_of(by: str, values: pa.Array, order: str) -> np.ndarray:
    """Return the keys by which rows are sorted: times, places of groups, or places among the rows of their value."""
    if by == "time":
        return np.asarray(values)
    coded = values.dictionary_encode()
    codes, count = np.asarray(coded.indices), len(coded.dictionary)
    if by == "group":
        return codes if order == "file" else np.random.default_rng(0).permutation(count)[codes]
    counts = np.bincount(codes)
    places = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = np.empty(len(codes))
    keys[np.argsort(codes, kind="stable")] = (places + 0.5) / np.repeat(counts, counts)
    return keys


def sliced(rows: np.ndarray, line: np.ndarray, ends: np.ndarray | None, start: int, stop: int) -> np.ndarray:
    """Return the rows from one place of `line` to before another, moved to the nearest of `ends`, in their order."""
    if ends is not None:
        start, stop = (int(ends[np.abs(ends - place).argmin()]) for place in (start, stop))
    return rows[np.isin(rows, line[start:stop])]


def having(rows: np.ndarray, values: pa.Array, of: list[Any]) -> np.ndarray:
    """Return those of `rows` whose value is one `of` these."""
    is_one = np.asarray(pc.is_in(values, value_set=pa.array(of, values.type)))
    return np.asarray(rows[is_one])


_LISTED, _LONGEST = 5, 30
"""Values that a message lists, and characters of each."""


@frozen
class RowsPart:
    """Rows of a whole split.

    Attributes:
        rows: Their numbers in the order in which they are read.
        line: The same in the order in which slices take them; None for that of `rows`.
        ends: Places of `line` at which slices may begin or end; None for all.
    """

    rows: Numbers
    line: Numbers | None = None
    ends: Numbers | None = None

    def slice(self, start: int, stop: int) -> Numbers:
        """Return the rows from one place to before another."""
        return self.rows[start:stop] if self.line is None else sliced(self.rows, self.line, self.ends, start, stop)


def divided(kept: KeptColumns, dataset: Rows) -> dict[str, RowsPart]:
    """Return the rows of each split; raise `ConfigError` if the values of the column can't divide them."""
    key = json.dumps([dataset.order, dataset.split_by])
    if key not in kept.divided:
        kept.divided[key] = _divided(kept, dataset)
    found: dict[str, RowsPart] = kept.divided[key]
    return found


def _divided(kept: KeptColumns, dataset: Rows) -> dict[str, RowsPart]:
    by, counts, parts, first = dataset.splits_by, kept.known.rows, dict[str, RowsPart](), 0
    values: Any = None if by is None else values_of(kept, dataset, by)
    if by is not None and by.values:
        rows = in_order(sum(counts.values()), dataset.order)
        given = values.take(pa.array(rows))
        _require_values(given, dataset, by)
        return {name: RowsPart(rows=having(rows, given, [*of])) for name, of in by.values.items()}
    for name, count in counts.items():
        order, line, ends = in_order(count, dataset.order), None, None
        rows = order + first if first else order  # which a plan and its run share
        if by is not None:
            line, ends = placed(by.by, rows, values.take(pa.array(rows)), dataset.order)
        parts[name] = RowsPart(rows=rows, line=line, ends=ends)
        first += count
    return parts


def in_order(count: int, order: str) -> np.ndarray:
    """Return the numbers of so many rows in the order in which they are read."""
    return np.arange(count, dtype=np.int64) if order == "file" else in_random_order(count)


def values_of(kept: KeptColumns, dataset: Rows, by: SplitBy) -> pa.Array:
    """Return the values of the column that splits rows; raise `ConfigError` if it is missing, or can't split them."""
    where, known = f"{dataset.key('split_by')}.{by.by}", kept.known.columns
    column = known.get(by.column)
    if column is None:
        found, expected = f"no column {by.column}", f"one of {', '.join(known)}"
        raise ConfigError([Fault(where, found, expected, did_you_mean(by.column, known))])
    refuse(_unfit(where, kept, dataset, by, column))
    values = kept.arrow(by.column)
    return values.cast(pa.int64()) if by.values and pa.types.is_floating(values.type) else values


def _unfit(where: str, kept: KeptColumns, dataset: Rows, by: SplitBy, column: Column) -> Iterator[Fault]:
    name, feature = by.column, column.feature
    is_text, is_time = feature.dtype == "string", feature.format == "timestamp"
    remedy = "choose another column"
    if feature.shape:
        found = f"{name} of shape {list(feature.shape)} in each row"
        yield Fault(where, found, "one value in each row", remedy)
        return
    if column.missing:
        yield without_value(kept, dataset, name, where, "a value in each row, which decides its split")
    if by.by == "time" and (is_text or feature.dtype == "bool"):
        kind = as_text(kept, name, "timestamp") if is_text else "true or false"
        found, expected = f"{name}, which is {kind}", "a column of timestamps or numbers, in whose order rows are split"
        remedy = f"correct its values, or {remedy}" if is_text else remedy
        yield Fault(where, found, expected, remedy)
    if by.by == "column" and (is_time or has_fraction(kept.arrow(name))):
        found = f"{name}, which is {'a timestamp' if is_time else 'a number with a fraction'}"
        remedy = f"set {override('dataset.split_by', 'time', name)}, or {remedy}"
        yield Fault(where, found, "text, integers or truth values", remedy)


def _require_values(values: pa.Array, dataset: Rows, by: SplitBy) -> None:
    """Raise `ConfigError` for the values of `dataset.split_by` that no row has."""
    known = [plain(value) for value in values.unique().to_pylist()]
    kinds = {(type(value), value) for value in known}
    faults = []
    for split, of in by.values.items():
        if missing := [value for value in of if (type(value), value) not in kinds]:
            where, found = f"{dataset.key('split_by')}.{split}", f"{_listed(missing)}, which no row has"
            remedy = "write such values, or leave it out"
            faults.append(Fault(where, found, f"values of {by.column}: {_listed(sorted(known))}", remedy))
    refuse(faults)


def _listed(values: list[Any]) -> str:
    return ", ".join(map(json.dumps, values[:_LISTED])) + ", …" * (len(values) > _LISTED)


def plain(value: Any) -> Value:
    """Return a value of a column as a config has it."""
    found: Value = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found


def as_text(kept: KeptColumns, name: str, kind: Kind) -> str:
    """Return what a message says of text where another kind is expected."""
    row, value = first_unfit(kept.arrow(name).cast(pa.large_string()), kind)
    return f"text, such as {value!r} in row {row}"


def without_value(kept: KeptColumns, dataset: Rows, name: str, where: str, expected: str) -> Fault:
    """Return the fault of a column in which a value, or an item of one, is missing."""
    count, row = kept.known.columns[name].missing, pc.index(lacking(kept.arrow(name)), value=True)
    found = f"{counted(count, 'row')} of {name} without a value (first: row {row})"
    return Fault(where, found, expected, f"leave these rows out of the files{or_a_value(dataset, name)}")


def name_values(values: list[Any]) -> str:
    """Return values in a list that is not longer than a line."""
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values[:_LISTED]]
    shown = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts]
    return ", ".join([*shown, "…"] if len(values) > _LISTED else shown)


def time_of(microseconds: int) -> str:
    """Return a time in microseconds since 1970 as text, without the parts that are zero at its end."""
    text = str(np.datetime64(microseconds, "us"))
    return text.removesuffix(".000000").removesuffix("T00:00:00").replace("T", " ")


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
            for values in bits_of(kept.take(name, some)):
                hashes = _mixed(hashes * _FACTOR + _mixed(values + _FACTOR))
        found[start : start + _AT_ONCE] = hashes
        done(len(some))
    return found


def bits_of(values: npt.NDArray[Any]) -> Iterator[Hashes]:
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
_FIRST = 3
"""Columns, those of the most values, by which rows are compared before they are by all: few are left then."""


def columns_compared(kept: KeptColumns, dataset: Rows) -> list[str]:
    """Return the columns by which rows are compared: inputs and targets, but none that has another value in each row.

    None of them if they have few combinations of values, so that different examples are equal rows.
    """
    known, rows = kept.known.columns, sum(len(part.rows) for part in divided(kept, dataset).values())
    examined = names_examined(kept, dataset)
    names = [name for name in examined if known[name].feature.shape or not _numbers_rows(kept, name, rows)]
    combinations = 1.0
    for name in names:
        distinct = _different(kept, name) if known[name].feature.is_sequence else known[name].distinct
        combinations *= min(rows if distinct is None else distinct + (known[name].missing > 0), rows) or 1
    return names if combinations >= _FEWEST_COMBINATIONS * rows else []


def _different(kept: KeptColumns, name: str) -> int:
    """Return the number of different values of a column, which may not fit in memory; of lists, not of their items."""
    return len(np.unique(hashes_of(kept, [name], np.arange(sum(kept.known.rows.values())))))


def names_examined(kept: KeptColumns, dataset: Rows) -> list[str]:
    """Return the columns that are examined: the inputs and what is predicted."""
    return [name for name in kept.known.columns if name in dataset.examples.features]


def _numbers_rows(kept: KeptColumns, name: str, rows: int) -> bool:
    """Return whether a text or an integer is another one in each of so many rows, as names and numbers of rows are."""
    column = kept.known.columns[name]
    if column.type not in ("text", "integer", "image file") or column.distinct not in (None, rows) or column.missing:
        return False
    return column.distinct is not None or _different(kept, name) == rows


def leaks_of(
    kept: KeptColumns, dataset: Rows, digests: Sequence[str | None], train: Numbers, other: Numbers
) -> tuple[int, int, list[str]]:
    """Return how many of `other` rows have the inputs of rows in `train`, with the same targets, and with others alone.

    Those of the same `digests` of both are counted once. Columns that have another value in each row are left out; they
    are returned, too.
    """

    def found() -> dict[str, Any]:
        names = columns_compared(kept, dataset)
        left_out = [name for name in names_examined(kept, dataset) if name not in names] if names else []
        same, others = _counted(kept, names, dataset.target, np.sort(train), np.sort(other))
        return {"same": same, "others": others, "left_out": left_out}

    key = [_FORMAT, [*dataset.examples.features], [*dataset.target], *digests]
    return remembered(kept.folder, "leaks", key, found, lambda held: (held["same"], held["others"], held["left_out"]))


def _counted(
    kept: KeptColumns, names: list[str], targets: Collection[str], train: Numbers, other: Numbers
) -> tuple[int, int]:
    """Return how many of the `other` rows have the inputs of rows in `train`, with the same targets and with others."""
    inputs = [name for name in names if name not in targets]
    if not inputs:
        return 0, 0
    known = kept.known.columns
    first = sorted(inputs, key=lambda name: known[name].distinct or len(train) + len(other), reverse=True)[:_FIRST]
    with progress() as begin:
        train, other = _alike(kept, first, train, other, begin("Comparing rows", len(train) + len(other)))
    if len(first) < len(inputs):
        train, other = _alike(kept, inputs, train, other)
    names = [*inputs, *targets]
    same = int(_is_in(hashes_of(kept, names, other), hashes_of(kept, names, train)).sum())
    return same, len(other) - same


def _alike(
    kept: KeptColumns, names: list[str], train: Numbers, other: Numbers, done: Callable[[int], None] = lambda _: None
) -> tuple[Numbers, Numbers]:
    """Return those rows of each that have the values of a row of the other in these columns."""
    of_train, of_other = (hashes_of(kept, names, rows, done) for rows in (train, other))
    return train[_is_in(of_train, of_other)], other[_is_in(of_other, of_train)]


def _is_in(hashes: np.ndarray, of: np.ndarray) -> np.ndarray:
    return np.asarray(pc.is_in(pa.array(hashes), value_set=pa.array(of)))
