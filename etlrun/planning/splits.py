"""Splits by the values of a column: what each of them is, for people, and what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from etlrun.sources.rows.dividing import in_rows, listed, plain, time_of, values_of
from etlrun.sources.rows.leaks import leaks_of
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.splits import SplitBy, Value
from etlrun.system.errors import ConfigError, Fault


def notes_of(source: RowsSource, splits: Sequence[RowSplit]) -> tuple[str, ...]:
    """Return what the splits of a run are, a sentence each; nothing if no column decides it.

    Raises:
        ConfigError: A group is in two of them, or a value of which each is to have a share has fewer rows than these.
    """
    dataset = source.dataset
    by = dataset.splits_by
    if by is None:
        return ()
    values = values_of(source.kept, dataset, by)
    each = {split.name: values.take(pa.array(split.rows)) for split in splits}
    is_parted = len(splits) > 1 and not splits[0].shared(splits[1])
    if faults := list(_faults(by, values, each)) if is_parted else []:
        raise ConfigError([dataclasses.replace(fault, where=f"{dataset.key('split_by')}.{by.by}") for fault in faults])
    if by.by == "column":
        return tuple(_of_values(by, source, values))
    is_time = source.kept.known.columns[by.column].feature.format == "timestamp"
    return tuple(_told(by, name, of, len(values), is_time=is_time) for name, of in each.items())


def leaks_noted(source: RowsSource, splits: Sequence[RowSplit]) -> Iterator[str]:
    """Yield the notes on rows of the validation that the training has, too, by their values."""
    if len(splits) == 1 or splits[0].shared(splits[1]):  # which a run notes
        return
    train, validation = splits
    found = leaks_of(source, train, validation)
    names = " and ".join(found.left_out)
    left_out = f" if {names} {'are' if len(found.left_out) > 1 else 'is'} left out" if names else ""
    whole = f"of {in_rows(len(validation.rows))} of {validation.name}"
    if found.same:
        yield f"{found.same:,} {whole} are also in {train.name}, with the same target{left_out}."
    if found.others:
        yield f"{found.others:,} {whole} have the inputs of rows in {train.name}, and another target{left_out}."


def _faults(by: SplitBy, values: pa.Array, each: Mapping[str, pa.Array]) -> Iterator[Fault]:
    """Yield what is wrong with splits that have no row in common; `values` are those of all rows."""
    if by.by == "group" and (both := set.intersection(*({*_counts(of)} for of in each.values()))):
        found = f"{by.column} {listed(sorted(both))} in {' and in '.join(each)}"
        remedy = "cut both splits from the same files, as in train[:80%] and train[80%:]"
        yield Fault(where="", found=found, expected="all rows of a value in one split", remedy=remedy)
    few = sorted(value for value, count in _counts(values).items() if count < len(each)) if by.by == "stratify" else []
    if few:
        found = f"{by.column} {listed(few)} in {in_rows(1)}{' each' * (len(few) > 1)}"
        expected = f"a row of each value for {' and for '.join(each)}"
        remedy = "leave these rows out, or name a column of fewer values"
        yield Fault(where="", found=found, expected=expected, remedy=remedy)


def _counts(values: pa.Array) -> Counter[Value]:
    """Return the number of rows of each value."""
    return Counter({plain(of["values"]): of["counts"] for of in values.value_counts().to_pylist()})


def _of_values(by: SplitBy, source: RowsSource, values: pa.Array) -> Iterator[str]:
    """Yield what the splits of some values are, and how many rows are in none of them."""
    for name, of in by.values.items():
        yield f"{name}: {in_rows(source.counts[name])} of which {by.column} is {_or(of)}."
    taken = {value for of in by.values.values() for value in of}
    others = [value for value in map(plain, values.unique().to_pylist()) if value not in taken]
    if others:
        count = len(values) - sum(source.counts.values())
        yield f"{in_rows(count)} in no split, of which {by.column} is {_or(sorted(others))}."


def _or(values: Sequence[Any]) -> str:
    text = listed([*values])
    before, comma, last = text.rpartition(", ")
    return f"{before} or {last}" if comma and last != "…" else text


def _told(by: SplitBy, split: str, values: pa.Array, total: int, *, is_time: bool) -> str:
    """Return what a part of a split is, of which these are the values, and which has `total` rows as a whole."""
    rows, different = f"{split}: {in_rows(len(values))}", len(values.unique())
    if by.by == "time":
        found = np.asarray(values)
        low, high = (time_of(int(end)) if is_time else str(end) for end in (found.min(), found.max()))
        return f"{rows} of which {by.column} is from {low} to {high}."
    if by.by == "group":
        of = f"a single value of {by.column}" if different == 1 else f"{different:,} values of {by.column}"
        return f"{rows} ({len(values) / total:.1%}) of {of}, which stay together."
    shares = [f"{value} in {count / len(values):.1%}" for value, count in sorted(_counts(values).items())]
    return f"{rows} of which {by.column} is {listed(shares)}."
