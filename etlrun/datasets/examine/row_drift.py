"""Drift: columns of which other splits have other values than the one that is trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etlrun.datasets.examine.finding import NAMED, Finding
from etlrun.datasets.examine.row_figures import ColumnFigures, numbers_of, plain
from etlrun.datasets.examine.row_values import Examined, kind_of, share_of

MOST_UNSTABLE = 0.25
"""Population stability index from which on a column is a finding."""
MOST_NEW = 0.05
"""Share of rows with values that training lacks, from which on they are a finding."""
_BINS = 10
_TOP = 20
_SPREADS = 6
"""Standard deviations by which an index is above that of two random halves."""

Floats = npt.NDArray[np.float64]


def of_drift(splits: Sequence[Examined]) -> Iterator[Finding]:
    """Yield the findings of the splits behind the first one, against that."""
    train = splits[0]
    for split in splits[1:]:
        for before, after in zip(train.figures, split.figures, strict=True):
            yield from _lacking(train, split, before, after)
            found = list(_new(train, split, before, after))
            yield from found or _unstable(train, split, before, after)


def _lacking(train: Examined, split: Examined, before: ColumnFigures, after: ColumnFigures) -> Iterator[Finding]:
    """Yield the finding of classes that the other split has no row of."""
    target = train.source.dataset.target
    if before.name not in target or kind_of(train.source.dataset, before.name) == "number":
        return
    missing = [value for value, _ in (before.counts or Counter()).most_common() if value not in (after.counts or ())]
    if missing and after.counts:
        names = ", ".join(plain(value, before.type) for value in missing[:NAMED])
        text = f"{split.name} has no row of {before.name} {names}{', …' if len(missing) > NAMED else ''}"
        yield Finding(text, "choose a larger part of the dataset, or a stratified split")


def _new(train: Examined, split: Examined, before: ColumnFigures, after: ColumnFigures) -> Iterator[Finding]:
    """Yield the finding of texts that training lacks, unless nearly each row has another one."""
    there = before.rows - before.missing
    is_text = before.type == "text" and before.name not in train.source.dataset.target
    if not is_text or not before.counts or not after.counts or len(before.counts) > there / 2:
        return
    new = Counter({value: count for value, count in after.counts.items() if value not in before.counts})
    if new.total() > MOST_NEW * after.rows:
        shares = share_of(new.total(), after.rows, f"rows of {split.name}")
        text = f"{before.name} has values that {train.name} lacks in {shares}"
        remedy = "train on rows like those, by another split, or count on unknown values: {lookup: {min_count: 2}}"
        named = (f"{plain(value, before.type)}: {count:,} rows" for value, count in new.most_common(NAMED))
        yield Finding(text, remedy, tuple(named))


def _unstable(train: Examined, split: Examined, before: ColumnFigures, after: ColumnFigures) -> Iterator[Finding]:
    name = before.name
    if before.type == "timestamp" or train.source.kept.known.columns[name].feature.shape:
        return  # times differ in any split by time
    if before.type == "text" and (not before.counts or len(before.counts) > (before.rows - before.missing) / 2):
        return
    samples = [of.reader.sample(name) for of in (train, split)]
    if before.type == "integer" and len(samples[0].unique()) == len(samples[0]) > _BINS:
        return  # numbers of rows
    shares = _of_ranges(*samples) if before.type in ("integer", "number") else _of_values(*samples)
    sizes = [len(sample) for sample in samples]
    index, bins = _stability(*shares), len(shares[0])
    by_chance = (1 / sizes[0] + 1 / sizes[1]) * (bins - 1 + _SPREADS * np.sqrt(2 * max(bins - 1, 1)))
    if index >= max(MOST_UNSTABLE, by_chance):
        text = f"{name} differs between {train.name} and {split.name} (population stability index {index:.2f})"
        yield Finding(text, _remedy(train), tuple(_shown(train, split, before, after)))


def _remedy(train: Examined) -> str:
    remedy = "split rows at random, unless the validation is to be of other rows than the training"
    return f"{remedy}: dataset.order=random" if train.source.dataset.order == "file" else remedy


def _shown(train: Examined, split: Examined, *figures: ColumnFigures) -> Iterator[str]:
    for of, column in zip((train, split), figures, strict=True):
        parts = [f"missing {column.missing / max(column.rows, 1):.1%}"] if any(one.missing for one in figures) else []
        if column.quantiles:
            low, middle, high = (plain(column.quantiles[place], column.type) for place in (2, 3, 4))
            parts.append(f"quartiles {low}, {middle}, {high}")
        else:
            parts += [f"{value} {count / column.rows:.1%}" for value, count in column.top.items()]
        yield f"{of.name}: {', '.join(parts)}"


def _stability(one: Floats, other: Floats) -> float:
    """Return the population stability index of two distributions."""
    return float(((one - other) * np.log(one / other)).sum())


def _of_ranges(one: pa.Array, other: pa.Array) -> tuple[Floats, Floats]:
    """Return the shares of numbers in ranges that have as many rows each in the first sample, and of missing ones."""
    there = numbers_of(one.drop_null())
    edges = np.unique(np.quantile(there, np.linspace(0, 1, _BINS + 1)[1:-1])) if len(there) else np.zeros(0)

    def counts(values: pa.Array) -> list[int]:
        places = np.searchsorted(edges, numbers_of(values.drop_null()), side="left")
        return [*np.bincount(places, minlength=len(edges) + 1).tolist(), values.null_count]

    return _shares(counts(one), counts(other))


def _of_values(one: pa.Array, other: pa.Array) -> tuple[Floats, Floats]:
    """Return the shares of the most frequent values, of all others, and of missing ones."""
    found: list[Counter[Any]] = [Counter(of.drop_null().to_pylist()) for of in (one, other)]
    top = [value for value, _ in found[0].most_common(_TOP)]
    each = []
    for counter, of in zip(found, (one, other), strict=True):
        named = [counter[value] for value in top]
        each.append([*named, counter.total() - sum(named), of.null_count])
    return _shares(*each)


def _shares(*counts: Sequence[int]) -> tuple[Floats, Floats]:
    """Return shares without those of which neither has any; half a row stands for none."""
    one, other = (np.asarray(of, np.float64) for of in counts)
    some = (one + other) > 0
    smooth = [np.maximum(of[some], 0.5) for of in (one, other)]
    return smooth[0] / smooth[0].sum(), smooth[1] / smooth[1].sum()
