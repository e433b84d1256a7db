"""Columns that give the target away: one of them alone predicts it all but perfectly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.datasets.examine.finding import Finding
from etlrun.datasets.examine.row_figures import numbers_of
from etlrun.datasets.examine.row_values import Examined, inputs_without, kind_of
from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.leaks import names_examined

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


def of_leaks(train: Examined) -> Iterator[Finding]:
    """Yield the findings of inputs that give a target away.

    A rule of one column is learned from a half of the rows and judged on the other: it predicts the mean rank, or the
    most frequent class, of the rows with the same value; of a number, in the same of up to 100 ranges.
    """
    source = train.source
    rows = train.reader.sampled
    rows = np.random.default_rng(_SEED).permutation(rows)[:READ]
    columns = source.kept.known.columns
    names = [name for name in names_examined(source) if not columns[name].feature.shape]
    targets = [name for name in names if name in source.dataset.target]
    if len(rows) < FEWEST:
        return
    for target in targets:
        is_number = kind_of(source.dataset, target) == "number"
        outcome = source.kept.arrow(target).take(pa.array(rows))
        truth: Any = _ranks(outcome) if is_number else _codes(outcome)
        for name in names:
            if name in source.dataset.target:
                continue
            bins = _bins(source.kept.arrow(name).take(pa.array(rows)), len(rows) // 2)
            found = _explained(bins, truth) if is_number else _right(bins, truth)
            if found >= (MOST_EXPLAINED if is_number else MOST_RIGHT):
                what = "of the variance of its ranks" if is_number else "of the errors of its most frequent class"
                yield Finding(
                    f"{name} gives {target} away: it alone explains {found:.1%} {what}, in {len(rows):,} rows",
                    f"leave it out, if it is not known before {target} is: {inputs_without(source, [name])}",
                )


def _codes(values: pa.Array) -> Numbers:
    """Return a number from 0 for each value; missing ones have one of their own."""
    found = pc.dictionary_encode(values, null_encoding="encode")
    codes: Numbers = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _ranks(values: pa.Array) -> Floats:
    """Return the rank of each number, the same for equal ones."""
    found: Floats = np.unique(numbers_of(values), return_inverse=True, return_counts=True)  # type: ignore[assignment]
    _, places, counts = found
    ends = np.cumsum(counts)
    return np.asarray((ends - counts / 2)[places], np.float64)


def _bins(values: pa.Array, half: int) -> Numbers:
    """Return the bin of each value: of numbers by the quantiles of the first half, with one for missing values."""
    if pa.types.is_large_binary(values.type):
        return _codes(values)
    there, bins = numbers_of(values[:half].drop_null()), max(_FEWEST_BINS, min(_BINS, half // _FEWEST_BINS))
    edges = np.unique(np.quantile(there, np.linspace(0, 1, bins + 1)[1:-1])) if len(there) else np.zeros(0)
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
