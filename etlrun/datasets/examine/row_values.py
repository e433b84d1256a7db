"""Findings of the values of columns: missing, constant, far from all others, with blanks; classes out of balance."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.datasets.examine.finding import NAMED, Finding
from etlrun.datasets.examine.row_figures import ColumnFigures, Reader, numbers_of, plain
from etlrun.datasets.examine.row_texts import TextFigures
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.rows import Rows, Table
from etlrun.system.errors import override

MOST_MISSING = 0.5
"""Share of missing values above which they are a finding."""
FAR = 5.0
"""Distances of the quartiles by which a value far from all others lies beyond them."""
MOST_FAR = 0.01
"""Share of such values up to which they are a finding: more of them are a part of the distribution."""
MOST_UNLIKE = 10
"""Ratio of the largest to the smallest class, from which on it is a finding."""
_SAME = 0.5
"""Share of the values far from all others that are one value, which may stand for a missing one."""
_FEWEST = 20
_BARE = re.compile(r"(?!(?:true|false|null|nan|inf)$)[A-Za-z_]\w*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A split that has been read.

    Attributes:
        reader: Reader of its columns.
        figures: Figures of its columns, in order.
        texts: Those of its texts of many words.
    """

    reader: Reader
    figures: tuple[ColumnFigures, ...]
    texts: tuple[TextFigures, ...] = ()

    @property
    def name(self) -> str:
        """Name of the split."""
        return self.reader.split.name

    @property
    def examples(self) -> int:
        """Number of its rows."""
        return len(self.reader.rows)

    @property
    def source(self) -> RowsSource:
        """The dataset."""
        return self.reader.source


def kind_of(dataset: Rows, name: str) -> str:
    """Return what a column to predict is, such as `class`."""
    kind: Any = dataset.target[name]
    return kind if isinstance(kind, str) else str(next(iter(kind)))


def inputs_without(source: RowsSource, names: Sequence[str]) -> str:
    """Return the override, for a shell, that leaves these columns out of the inputs."""
    kept = [name for name in source.dataset.examples.inputs if name not in names]
    listed = ",".join(name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in kept)
    return shlex.quote(f"{source.dataset.key('inputs')}=[{listed}]")


def share_of(count: int, rows: int, what: str) -> str:
    """Return a count among rows in words."""
    return f"{count:,} of {rows:,} {what} ({count / max(rows, 1):.1%})"


def of_values(splits: Sequence[Examined]) -> Iterator[Finding]:
    """Yield the findings of each column, of which the first split is the one that is trained on."""
    yield from _constant(splits[0])
    yield from _missing(splits)
    yield from _blanks(splits)
    for place, of in enumerate(splits[0].figures):
        yield from _far(splits, place, of)


def _constant(train: Examined) -> Iterator[Finding]:
    names = [of.name for of in train.figures if of.distinct is not None and of.distinct <= 1 and not of.missing]
    names = [name for name in names if name not in train.source.dataset.target]
    if names:
        remedy = f"leave {'them' if len(names) > 1 else 'it'} out: {inputs_without(train.source, names)}"
        have = "have one value each" if len(names) > 1 else "has one value"
        yield Finding(f"{', '.join(names)} {have} in all rows of {train.name}", remedy)


def _missing(splits: Sequence[Examined]) -> Iterator[Finding]:
    for place, of in enumerate(splits[0].figures):
        columns = [split.figures[place] for split in splits]
        if of.missing == of.rows:
            remedy = f"leave it out: {inputs_without(splits[0].source, [of.name])}"
            yield Finding(f"{of.name} has no value in {splits[0].name}", remedy)
        elif any(column.missing > MOST_MISSING * column.rows for column in columns):
            shares = [
                share_of(column.missing, column.rows, f"rows of {split.name}")
                for split, column in zip(splits, columns, strict=True)
            ]
            step = f"{{{of.name}_missing: {{of: {of.name}, steps: [missing]}}}}"
            remedy = f"if it tells something that a value is missing, use that alone, by {step} in transform.columns"
            yield Finding(f"{of.name} lacks values in {' and in '.join(shares)}", remedy)


def _blanks(splits: Sequence[Examined]) -> Iterator[Finding]:
    source = splits[0].source
    remedy = "set dataset.strip=true" if isinstance(source.dataset, Table) else "remove them where the rows come from"
    tokenized = {of.name for of in splits[0].texts}
    for place, of in enumerate(splits[0].figures):
        found = [(split, split.figures[place].blanks) for split in splits]
        if of.name not in tokenized and any(blanks for _, blanks in found):
            shares = [share_of(blanks, split.figures[place].rows, f"rows of {split.name}") for split, blanks in found]
            text = (
                f"{of.name} has blanks around texts in {' and in '.join(shares)}: no vocabulary without them has these"
            )
            yield Finding(text, remedy)


def _far(splits: Sequence[Examined], place: int, of: ColumnFigures) -> Iterator[Finding]:
    """Yield the finding of numbers that lie far beyond the quartiles of the training split."""
    is_number = of.type in ("integer", "number") and of.rows - of.missing >= _FEWEST
    limits = _limits(splits[0].reader.sample(of.name).drop_null()) if is_number else None
    if limits is None or splits[0].source.kept.known.columns[of.name].feature.shape:
        return
    every = [_beyond(split, of.name, limits) for split in splits]
    is_same = [found.same > 1 and found.same >= _SAME * found.rows for found in every]
    if not any(found.rows for found in every):
        return
    if not any(is_same) and any(
        found.rows > MOST_FAR * split.figures[place].rows for found, split in zip(every, splits, strict=True)
    ):
        return
    several = [
        share_of(found.rows, split.figures[place].rows, f"rows of {split.name}")
        for found, split in zip(every, splits, strict=True)
        if found.rows
    ]
    most = next((found.most for found, same in zip(every, is_same, strict=True) if same), None)
    ends = ", ".join("null" if not np.isfinite(end) else f"{end:.4g}" for end in limits)
    stands = "" if most is None else f"if {most} stands for a missing value, leave it empty instead; else "
    yield Finding(
        f"{of.name} is far from all other values in {' and in '.join(several)}{f', mostly {most}' * bool(most)}",
        f"{stands}repair them, or put {{clip: [{ends}]}} before the other steps of {of.name}",
        tuple(where for found in every for where in found.places)[:NAMED],
    )


def _limits(values: pa.Array) -> tuple[float, float] | None:
    """Return the least and the largest number that is not far from all others; None if that can't be told.

    Where all but a few are not negative, they have to be far in their logarithms, too: many have a long tail.
    """
    numbers = numbers_of(values).astype(np.float64)
    if not len(numbers):
        return None
    low, high = _ends(numbers)
    if low == high:
        return None
    positive = numbers[numbers >= 0]
    if len(positive) >= (1 - MOST_FAR) * len(numbers):
        ends = np.expm1(_ends(np.log1p(positive)))
        low, high = min(low, ends[0]), max(high, ends[1])
    return float(-np.inf if low <= 0 <= numbers.min() else low), float(high)


def _ends(numbers: npt.NDArray[np.float64]) -> tuple[float, float]:
    first, third = np.quantile(numbers, (0.25, 0.75))
    span = FAR * (third - first)
    return (float(first - span), float(third + span)) if span else (float(first), float(first))


@dataclass(frozen=True, kw_only=True)
class _Beyond:
    """Values beyond limits: in how many rows, the most frequent one, in how many of them, and the first places."""

    rows: int
    most: str
    same: int
    places: tuple[str, ...]


def _beyond(split: Examined, name: str, limits: tuple[float, float]) -> _Beyond:
    places, rows = list[str](), 0
    counts: dict[float, int] = {}
    for start, values in split.reader.batches(name):
        is_beyond = pc.or_(pc.less(values, limits[0]), pc.greater(values, limits[1]))
        found = np.flatnonzero(pc.coalesce(is_beyond, pa.scalar(value=False)).to_numpy(zero_copy_only=False))
        rows += len(found)
        some = numbers_of(values.take(pa.array(found)))
        for value, count in zip(*np.unique(some, return_counts=True), strict=True):
            if len(counts) < NAMED or float(value) in counts:
                counts[float(value)] = counts.get(float(value), 0) + int(count)
        for place, value in zip(found[: NAMED - len(places)].tolist(), some.tolist(), strict=False):
            places.append(f"{split.reader.where(start + place)}: {plain(value, 'number')}")
    most = max(counts, key=counts.__getitem__) if counts else 0.0
    return _Beyond(rows=rows, most=f"{most:g}", same=counts.get(most, 0), places=tuple(places))


def of_targets(splits: Sequence[Examined]) -> Iterator[Finding]:
    """Yield the findings of what is predicted: classes out of balance, and numbers that are classes."""
    dataset = splits[0].source.dataset
    for split in splits:
        for of in split.figures:
            if of.name not in dataset.target or not of.counts:
                continue
            if (kind := kind_of(dataset, of.name)) == "number":
                yield from _classes(split, of) if split is splits[0] else ()
            else:
                yield from _balance(split, of, kind)


def _classes(split: Examined, of: ColumnFigures) -> Iterator[Finding]:
    if of.distinct == 2:  # noqa: PLR2004 - as binary has
        text = f"{of.name} is predicted as a number, and has two values in {split.name}: {' and '.join(of.top)}"
        yield Finding(text, f"set {override('dataset.target', of.name, 'binary')}")


def _balance(split: Examined, of: ColumnFigures, kind: str) -> Iterator[Finding]:
    assert of.counts is not None  # noqa: S101 - `of_targets` has seen to it
    (most, largest), *_, (least, smallest) = (*of.counts.most_common(), *of.counts.most_common()[-1:])
    if largest > MOST_UNLIKE * smallest:
        names = [plain(value, of.type) for value in (most, least)]
        text = f"{split.name} has {largest:,} rows of {of.name} {names[0]} and {smallest:,} of {names[1]}"
        remedy = "try load.class_weights=balanced, or load.sample=uniform_by_class with load.shuffle=full"
        if kind == "binary":
            remedy = "try load.sample=uniform_by_class with load.shuffle=full, and look at auc, precision and recall"
        yield Finding(text, remedy)
