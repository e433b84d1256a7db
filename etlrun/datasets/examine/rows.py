"""Findings of rows: of values, of equal rows, of columns that give the target away, of values that a split lacks."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.datasets.examine.columns import ColumnFigures, ColumnReader, numbers_of, plain
from etlrun.datasets.examine.finding import NAMED, Diagnosis, Finding, apart, of_balance, of_equal, share_of
from etlrun.datasets.prepare.check import identical, in_order
from etlrun.planning.plan import Plan
from etlrun.report.doc import Col, Table
from etlrun.sources.base import Split
from etlrun.sources.rows.dividing import Numbers, columns_compared, hashes_of, names_examined
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.rows import Rows
from etlrun.system.errors import counted, override
from etlrun.system.files import as_unicode
from etlrun.system.terminal import Begin

MOST_MISSING = 0.5
"""Share of missing values above which they are a finding."""
FAR = 5.0
"""Distances of the quartiles by which a value far from all others lies beyond them."""
MOST_FAR = 0.01
"""Share of such values up to which they are a finding: more of them are a part of the distribution."""
_SAME = 0.5
"""Share of the values far from all others that are one value, which may stand for a missing one."""
_FEWEST, _LONGEST = 20, 30


def examined(plan: Plan, source: RowsSource, splits: Sequence[Split], begin: Begin) -> Diagnosis:
    """Examine the rows of these splits; `begin` is told of each task; `EtlrunError` if the rows can't be read."""
    outputs = plan.spec.columns.outputs if plan.spec.columns else ()
    tokenized = [name for output in outputs if output.has_sequences for name in output.of]
    each = [cast("RowsSource", split.source).kept.known.columns for split in splits]  # of a named set in other files
    names = [of for of in names_examined(source.kept, source.dataset) if all(of in known for known in each)]
    readers = [ColumnReader(split, names, tokenized, begin(split.name, len(names))) for split in splits]
    rows = [(split, of) for split in readers for of in split.figures]
    classes = [
        row for row in rows if row[1].name in source.dataset.target and row[1].type not in ("number", "timestamp")
    ]
    values = [(*row, *of) for row in classes for of in row[1].top.items()]
    return Diagnosis(
        findings=[*_findings(readers, begin)],
        splits=[*map(_values, readers)],
        parts=[Table(rows, _COLUMNS, title="Columns"), Table(values, _FREQUENT, title="Values")],
    )


def _values(split: ColumnReader) -> dict[str, Any]:
    """Return the figures of a split as plain values."""
    columns = [dataclasses.asdict(of) for of in split.figures]
    for column in columns:
        del column["counts"]
        column["top"] = {as_unicode(name): count for name, count in column["top"].items()}
    return {"name": split.name, "examples": len(split.rows), "columns": columns}


def shown(value: object) -> str:
    """Return a value in few characters."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split()) if text.strip() == text else repr(text)
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


_HEAD = (Col("dataset", lambda row: row[0].name), Col("column", lambda row: row[1].name, is_head=True))
_FREQUENT = (
    *_HEAD,
    Col("value", lambda row: shown(row[2])),
    Col("rows", lambda row: row[3]),
    Col("share", lambda row: row[3] / max(row[1].rows, 1), ".1%"),
)


def _figure(name: str, value: Callable[[ColumnFigures], Any]) -> Col:
    return Col(name, lambda row: value(row[1]), text=lambda row: "" if value(row[1]) is None else shown(value(row[1])))


_COLUMNS = (
    *_HEAD,
    Col("type", lambda row: row[1].type),
    Col("missing", lambda row: row[1].missing),
    Col("share", lambda row: row[1].missing / max(row[1].rows, 1), ".1%"),
    Col("different", lambda row: "more" if row[1].distinct is None else row[1].distinct),
    _figure("mean", lambda of: of.mean),
    _figure("least", lambda of: of.quantiles[0] if of.quantiles else None),
    _figure("median", lambda of: of.quantiles[3] if of.quantiles else None),
    _figure("largest", lambda of: of.quantiles[-1] if of.quantiles else None),
    Col(
        "most frequent",
        lambda row: ", ".join(f"{shown(value)} ({count:,})" for value, count in row[1].top.items()),
        is_long=True,
    ),
)


def of_images(splits: Sequence[ColumnReader], begin: Begin) -> Iterator[Finding]:
    """Yield the finding of rows of a split whose images can't be decoded; `begin` is told of each split."""
    for split in splits:
        if all(column.feature.format != "image" for column in split.source.kept.known.columns.values()):
            continue
        done, broken = begin(f"images of {split.name}", len(split.rows)), dict[int, str]()
        for place, problem in enumerate(in_order(split.split.refused, split.order.tolist())):
            done(1)
            if problem is not None:
                broken[place] = problem.reason
        if broken:
            text = f"{share_of(len(broken), len(split.rows), f'rows of {split.name}')}: no image that can be decoded"
            places = [f"{split.where(place)}: {reason}" for place, reason in broken.items()]
            yield Finding(text, "repair or remove them, or set dataset.on_corrupt=skip, which counts them", places)


def _findings(splits: Sequence[ColumnReader], begin: Begin) -> Iterator[Finding]:
    yield from of_images(splits, begin)
    yield from of_leaks(splits[0])
    different = [*apart(splits, [of.split for of in splits])]
    yield from _equal_rows(different, begin("equal rows", sum(len(of.rows) for of in different)))
    for split in splits[1:]:
        for before, after in zip(splits[0].figures, split.figures, strict=True):
            yield from _lacking(splits[0], split, before, after)
            yield from _new(splits[0], split, before, after)
    yield from of_targets(splits)
    train = splits[0]
    targets = train.source.dataset.target
    same = [of.name for of in train.figures if of.distinct is not None and of.distinct <= 1 and not of.missing]
    if names := [name for name in same if name not in targets]:
        remedy = f"leave this out: {train.source.dataset.without(names)}"
        yield Finding(f"a single value in all rows of {train.name}: {', '.join(names)}", remedy)
    for of, *others in _columns(splits):
        missing, rows = ([getattr(each, name) for each in (of, *others)] for name in ("missing", "rows"))
        if of.missing == of.rows:
            remedy = f"leave it out: {train.source.dataset.without([of.name])}"
            yield Finding(f"{of.name} has no value in {train.name}", remedy)
        elif any(count > MOST_MISSING * each for count, each in zip(missing, rows, strict=True)):
            step = f"{{{of.name}_missing: {{of: {of.name}, steps: [missing]}}}}"
            remedy = f"if only it matters that a value is missing, use {step} in transform.columns"
            yield Finding(f"{of.name} lacks values in {_shares(splits, missing, rows)}", remedy)
    for column in _columns(splits):
        yield from _far(splits, column)


def _columns(splits: Sequence[ColumnReader]) -> Iterator[tuple[ColumnFigures, ...]]:
    """Yield the figures of each column in all splits."""
    return zip(*(split.figures for split in splits), strict=True)


def _shares(splits: Sequence[ColumnReader], counts: Iterable[int], rows: Iterable[int]) -> str:
    """Return counts among the rows of splits in words."""
    each = zip(splits, counts, rows, strict=True)
    return " and in ".join(share_of(count, of, f"rows of {split.name}") for split, count, of in each)


def kind_of(dataset: Rows, name: str) -> str:
    """Return what a column to predict is, such as `class`."""
    kind: Any = dataset.target[name]
    return kind if isinstance(kind, str) else str(next(iter(kind)))


def _far(splits: Sequence[ColumnReader], column: Sequence[ColumnFigures]) -> Iterator[Finding]:
    """Yield the finding of numbers that lie far beyond the quartiles of the training split."""
    of, train = column[0], splits[0]
    if of.type not in ("integer", "number") or of.rows - of.missing < _FEWEST:
        return
    limits = _limits(train.sample(of.name).drop_null())
    if limits is None or train.source.kept.known.columns[of.name].feature.shape:
        return
    some, counts, rows, places, same = list[ColumnReader](), list[int](), list[int](), list[str](), ""
    for split, each in zip(splits, column, strict=True):
        count, values = _beyond(split, of.name, limits, places)
        if count:
            some, counts, rows = [*some, split], [*counts, count], [*rows, each.rows]
            (value, most), *_ = values.most_common(1)
            same = same or (f"{value:g}" if most > 1 and most >= _SAME * count else "")
    if not some or (not same and any(count > MOST_FAR * each for count, each in zip(counts, rows, strict=True))):
        return
    ends = ", ".join("null" if not np.isfinite(end) else f"{end:.4g}" for end in limits)
    stands = f"if {same} stands for a missing value, leave it empty instead; else " if same else ""
    mostly = f", mostly {same}" if same else ""
    yield Finding(
        f"{of.name} is far from all other values in {_shares(some, counts, rows)}{mostly}",
        f"{stands}repair them, or put {{clip: [{ends}]}} before the other steps of {of.name}",
        places[:NAMED],
    )


def _limits(values: pa.Array) -> tuple[float, float] | None:
    """Return the least and the largest number that is not far from all others; None if that can't be told."""
    numbers = numbers_of(values).astype(np.float64)
    low, high = _quartile_ends(numbers) if len(numbers) else (0.0, 0.0)
    if low == high:
        return None
    positive = numbers[numbers >= 0]  # if nearly all, far in their logarithms, too: many have a long tail
    if len(positive) >= (1 - MOST_FAR) * len(numbers):
        ends = np.expm1(_quartile_ends(np.log1p(positive)))
        low, high = min(low, ends[0]), max(high, ends[1])
    return float(-np.inf if low <= 0 <= numbers.min() else low), float(high)


def _quartile_ends(numbers: npt.NDArray[np.float64]) -> tuple[float, float]:
    first, third = np.quantile(numbers, (0.25, 0.75))
    span = FAR * (third - first)
    return (float(first - span), float(third + span)) if span else (float(first), float(first))


def _beyond(
    split: ColumnReader, name: str, limits: tuple[float, float], places: list[str]
) -> tuple[int, Counter[float]]:
    """Return in how many rows values lie beyond limits, and of some in how many each; add the first `places`."""
    counts, rows = Counter[float](), 0
    for start, values in split.batches(name):
        is_beyond = pc.or_(pc.less(values, limits[0]), pc.greater(values, limits[1]))
        found = np.flatnonzero(pc.coalesce(is_beyond, pa.scalar(value=False)).to_numpy(zero_copy_only=False))
        rows += len(found)
        some = numbers_of(values.take(pa.array(found)))
        for value, count in zip(*np.unique(some, return_counts=True), strict=True):
            if len(counts) < NAMED or float(value) in counts:
                counts[float(value)] += int(count)
        for place, value in zip(found[: max(NAMED - len(places), 0)].tolist(), some.tolist(), strict=False):
            places.append(f"{split.where(start + place)}: {plain(value, 'number')}")
    return rows, counts


def of_targets(splits: Sequence[ColumnReader]) -> Iterator[Finding]:
    """Yield the findings of what is predicted: classes out of balance, and numbers that are classes."""
    dataset = splits[0].source.dataset
    for split in splits:
        for of in split.figures:
            if of.name not in dataset.target or not of.counts:
                continue
            kind = kind_of(dataset, of.name)
            if kind == "number":
                if split is splits[0] and of.distinct == 2:  # noqa: PLR2004 - as binary has
                    two = f"has two values in {split.name}: {' and '.join(of.top)}"
                    remedy = f"set {override('dataset.target', of.name, 'binary')}"
                    yield Finding(f"{of.name} is predicted as a number, and {two}", remedy)
                continue
            sample = "load.sample=uniform_by_class with load.shuffle=full"
            remedy = f"try load.class_weights=balanced, or {sample}"
            if kind == "binary":
                remedy = f"try {sample}, and look at auc, precision and recall"
            counts = {f"{of.name}={plain(value, of.type)}": count for value, count in of.counts.most_common()}
            yield from of_balance(split.name, counts, "rows with", remedy)


def _equal_rows(splits: Sequence[ColumnReader], done: Callable[[int], None]) -> Iterator[Finding]:
    """Yield the findings of equal rows in all splits, and of equal texts of many words, in whatever rows."""
    source = splits[0].source
    there, targets = {of.name for of in splits[0].figures}, [*source.dataset.target]
    names = [name for name in columns_compared(source.kept, source.dataset) if name in there]
    inputs = [name for name in names if name not in targets]
    if inputs:
        others = [of.name for of in splits[0].figures if of.name not in names]
        but = f", if {', '.join(others)} is left out" if others else ""
        yield from _equal(splits, inputs, [name for name in names if name in targets], ("row", "rows"), but, done)
    for name in splits[0].texts:
        if inputs != [name]:  # else equal rows have it
            yield from _equal(splits, [name], targets, (f"text of {name}", f"texts of {name}"))


def _equal(
    splits: Sequence[ColumnReader],
    inputs: Sequence[str],
    targets: Sequence[str],
    noun: tuple[str, str],
    but: str = "",
    done: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding]:
    """Yield the findings of what is equal in the columns `inputs`."""
    dataset, sizes = splits[0].source.dataset, [len(split.rows) for split in splits]
    places = np.repeat(np.arange(len(splits)), sizes)
    known, outcomes = (
        np.concatenate([hashes_of(of.source.kept, names, of.rows, told) for of in splits])
        for names, told in ((inputs, done), (targets, lambda _: None))
    )
    groups = identical(known, outcomes, places)
    is_class = any(kind_of(dataset, name) != "number" for name in targets)
    is_same = ~groups.is_conflicting
    kinds = (
        (groups.is_across & is_same, "in several splits", "remove them from all but one"),
        (groups.is_conflicting & is_class, "under several targets", "correct the targets, or add columns that differ"),
        (is_same & ~groups.is_across, "several times in one split", "remove them, unless they are to count more"),
    )
    starts = np.cumsum([0, *sizes])
    yield from of_equal(
        groups, kinds, noun, lambda member: splits[places[member]].where(member - int(starts[places[member]])), but=but
    )


MOST_EXPLAINED = 0.98
"""Share of the variance of a number's ranks that one column explains, from which on it is a finding."""
MOST_RIGHT = 0.95
"""Share of the errors of the most frequent class that one column saves, from which on it is a finding."""
FEWEST = 50
"""Rows below which nothing is told: any column may predict few of them."""
READ = 20_000
"""Rows of the training split that are read."""
_BINS, _FEWEST_BINS = 100, 10
_SEED = 0

Floats = npt.NDArray[np.float64]


def of_leaks(train: ColumnReader) -> Iterator[Finding]:
    """Yield the findings of inputs that give a target away.

    A rule of one column is learned from a half of the rows and judged on the other: it predicts the mean rank, or the
    most frequent class, of the rows with the same value; of a number, in the same of up to 100 ranges.
    """
    source = train.source
    rows = np.random.default_rng(_SEED).permutation(train.sampled)[:READ]
    columns = source.kept.known.columns
    names = [name for name in names_examined(source.kept, source.dataset) if not columns[name].feature.shape]
    targets = [name for name in names if name in source.dataset.target]
    if len(rows) < FEWEST:
        return
    for target in targets:
        is_number = kind_of(source.dataset, target) == "number"
        outcome = source.kept.arrow(target, rows)
        truth: Any = _codes(outcome)
        if is_number:  # the rank of each, the same for equal ones
            _, codes, counts = np.unique(numbers_of(outcome), return_inverse=True, return_counts=True)
            truth = (np.cumsum(counts) - counts / 2)[codes]
        for name in names:
            if name in source.dataset.target:
                continue
            bins = _bins(source.kept.arrow(name, rows), len(rows) // 2)
            found = _explained(bins, truth) if is_number else _right(bins, truth)
            if found >= (MOST_EXPLAINED if is_number else MOST_RIGHT):
                what = "of the variance of its ranks" if is_number else "of the errors of its most frequent class"
                yield Finding(
                    f"{name} gives {target} away: it alone explains {found:.1%} {what}, in {counted(len(rows), 'row')}",
                    f"leave it out, if it is not known before {target} is: {source.dataset.without([name])}",
                )


def _codes(values: pa.Array) -> Numbers:
    """Return a number from 0 for each value; missing ones have one of their own."""
    found = pc.dictionary_encode(values, null_encoding="encode")
    codes: Numbers = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _bins(values: pa.Array, half: int) -> Numbers:
    """Return the bin of each value: of numbers by the quantiles of the first half, with one for missing values."""
    if pa.types.is_large_binary(values.type):
        return _codes(values)
    first, count = numbers_of(values[:half].drop_null()), max(_FEWEST_BINS, min(_BINS, half // _FEWEST_BINS))
    edges = np.unique(np.quantile(first, np.linspace(0, 1, count + 1)[1:-1])) if len(first) else np.zeros(0)
    found = np.full(len(values), 2 * len(edges) + 1)  # where one is missing
    numbers = numbers_of(values.drop_null())
    places = [np.searchsorted(edges, numbers, side) for side in ("left", "right")]  # an edge is a range of its own
    found[~values.is_null().to_numpy(zero_copy_only=False)] = places[0] + places[1]
    return found


def _explained(bins: Numbers, truth: Floats) -> float:
    """Return the share of the variance of the second half that the means of the first one explain."""
    half = len(bins) // 2
    sums, counts = (np.bincount(bins[:half], weights, bins.max() + 1) for weights in (truth[:half], None))
    guess = np.where(counts > 0, sums / np.maximum(counts, 1), truth[:half].mean())[bins[half:]]
    rest = truth[half:]
    spread = ((rest - rest.mean()) ** 2).sum()
    return float(1 - ((rest - guess) ** 2).sum() / spread) if spread else 0.0


def _right(bins: Numbers, classes: Numbers) -> float:
    """Return the share of the errors that the classes of the first half save in the second one."""
    half = len(bins) // 2
    most = int(np.bincount(classes[:half]).argmax())
    pairs, counts = np.unique(np.stack([bins[:half], classes[:half]]), axis=1, return_counts=True)
    guess: npt.NDArray[Any] = np.full(int(bins.max()) + 1, most)
    order = np.argsort(counts, kind="stable")
    guess[pairs[0, order]] = pairs[1, order]  # the last one, which is the most frequent
    wrong = int((classes[half:] != most).sum())
    return 1 - int((guess[bins[half:]] != classes[half:]).sum()) / wrong if wrong else 0.0


MOST_NEW = 0.05
"""Share of rows with values that training lacks, from which on they are a finding."""


def _lacking(
    train: ColumnReader, split: ColumnReader, before: ColumnFigures, after: ColumnFigures
) -> Iterator[Finding]:
    """Yield the finding of classes that the other split has no row of."""
    target = train.source.dataset.target
    if before.name not in target or kind_of(train.source.dataset, before.name) == "number":
        return
    missing = [value for value, _ in (before.counts or Counter()).most_common() if value not in (after.counts or ())]
    if missing and after.counts:
        names = ", ".join(plain(value, before.type) for value in missing[:NAMED])
        text = f"{split.name} has no row of {before.name} {names}{', …' if len(missing) > NAMED else ''}"
        yield Finding(text, "choose a larger part of the dataset, or a stratified split")


def _new(train: ColumnReader, split: ColumnReader, before: ColumnFigures, after: ColumnFigures) -> Iterator[Finding]:
    """Yield the finding of texts that training lacks, unless nearly each row has another one."""
    there = before.rows - before.missing
    is_text = before.type == "text" and before.name not in train.source.dataset.target
    if not is_text or not before.counts or not after.counts or len(before.counts) > there / 2:
        return
    new = Counter({value: count for value, count in after.counts.items() if value not in before.counts})
    if new.total() > MOST_NEW * after.rows:
        shares = share_of(new.total(), after.rows, f"rows of {split.name}")
        text = f"{before.name} has values that {train.name} lacks in {shares}"
        remedy = "choose another split, or train for unknown values: {lookup: {min_count: 2}}"
        named = (f"{plain(value, before.type)}: {counted(count, 'row')}" for value, count in new.most_common(NAMED))
        yield Finding(text, remedy, tuple(named))
