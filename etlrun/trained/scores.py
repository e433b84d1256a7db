"""Figures of predictions: of classes, numbers and rankings of two classes, with intervals, confusions, calibration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
"""Probability that an interval covers."""
SEED = 0
"""Seed of bootstrap samples."""
_BINS = 15
_LEAST_SAMPLES, _MOST_SAMPLES, _DRAWS = 100, 1_000, 100_000_000
Outputs = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
Tensors = Mapping[str, Any]
"""Arrays or tensors by name."""
HALF = 0.5
"""The threshold of a training's metrics, above which the second class is predicted."""


@dataclass(frozen=True)
class Share:
    """A figure with the ends of its interval; None where it is not defined, as the share 0 of 0."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class OfClass:
    """Figures of one class.

    Attributes:
        name: Its name.
        examples: Examples of the class.
        predicted: Examples that are predicted to be of the class.
        precision: Share of the predicted examples that are of the class.
        recall: Share of the examples of the class that are predicted so.
        f1: Harmonic mean of both.
    """

    name: str
    examples: int
    predicted: int
    precision: Share
    recall: Share
    f1: Share


@dataclass(frozen=True)
class Bin:
    """Examples with similar confidence, the probability of the predicted class.

    Attributes:
        low: Lower end of the confidence, which is above it.
        high: Upper end, included.
        examples: Number of examples.
        confidence: Their mean confidence; None without examples. `accuracy` is that of their predictions.
    """

    low: float
    high: float
    examples: int
    confidence: float | None = None
    accuracy: float | None = None


def wilson(hits: float, of: float) -> Share:
    """Return the share `hits` / `of` with the score interval of Wilson (JASA 1927), without continuity correction."""
    if not of:
        return Share(None)
    z, share = NormalDist().inv_cdf(0.5 + LEVEL / 2), hits / of
    centre = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * (share * (1 - share) / of + z * z / (4 * of * of)) ** 0.5
    return Share(share, centre - half if hits else 0.0, centre + half if hits < of else 1.0)


def f1(hits: float, wrongly: float, missed: float) -> Share:
    """Return F1 from true positives, false positives and false negatives, with its interval.

    F1 is 2 p / (1 + p), where p is the share of the true positives in the three: its ends are those of Wilson's
    interval of p.
    """
    share = wilson(hits, hits + wrongly + missed)
    return Share(*(None if of is None else 2 * of / (1 + of) for of in (share.value, share.low, share.high)))


def counted(right: Truths, of: Truths | slice, weights: Floats) -> tuple[float, float]:
    """Return how many examples are `right` `of` some, or of a slice of all, and how many these are, by weight.

    The number of these is the effective one, (sum w)^2 / sum w^2 (Kish 1965), of which the right ones are the share of
    the weights.
    """
    some = weights[of]
    whole, squares = float(some.sum()), float((some**2).sum())
    return (float(some[right[of]].sum()) * whole / squares, whole**2 / squares) if whole else (0.0, 0.0)


def of_class(name: str, is_of: Truths, is_predicted: Truths, weights: Floats) -> OfClass:
    """Return the figures of a class from which examples are of it, and which are predicted to be."""
    right, either = counted(is_of & is_predicted, is_of | is_predicted, weights)
    precision, recall = wilson(*counted(is_of, is_predicted, weights)), wilson(*counted(is_predicted, is_of, weights))
    return OfClass(name, int(is_of.sum()), int(is_predicted.sum()), precision, recall, f1(right, either - right, 0.0))


def calibration(confidence: Floats, is_right: Truths, weights: Floats) -> tuple[list[Bin], float]:
    """Return 15 bins of equal width, and the expected calibration error: the mean gap of confidence and accuracy.

    Source: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, equations 2 to 5.
    """
    edges = np.linspace(0, 1, _BINS + 1)
    of = np.clip(np.searchsorted(edges, confidence, "left") - 1, 0, _BINS - 1)
    bins, error = list[Bin](), 0.0
    for place, (low, high) in enumerate(pairwise(edges.tolist())):
        inside, means = of == place, tuple[float, ...]()
        if whole := float(weights[inside].sum()):
            means = tuple(float(np.average(each[inside], weights=weights[inside])) for each in (confidence, is_right))
            error += whole / float(weights.sum()) * abs(means[0] - means[1])
        bins.append(Bin(low, high, int(inside.sum()), *means))
    return bins, error


def logits_of(probabilities: Array, *, is_labels: bool) -> Floats:
    """Return logits of probabilities of classes, or of labels, for a model that gives none."""
    exact = probabilities.astype(np.float64)
    found, others = np.log(np.maximum([exact, 1 - exact], np.finfo(np.float32).tiny))
    return np.asarray(found - others if is_labels else found)


def crossentropies(logits: Array, labels: Ints) -> Floats:
    """Return the negative logarithm of the probability of the right class, of each example; (examples,)."""
    above = logits.astype(np.float64) - logits[np.arange(len(labels)), labels, None]
    largest = above.max(axis=1)
    return np.asarray(largest + np.log(np.exp(above - largest[:, None]).sum(axis=1)))


def binary_crossentropies(logits: Array, is_of: Truths) -> Floats:
    """Return the mean binary crossentropy over the labels of each example, both (examples, labels)."""
    return np.asarray(np.logaddexp(0, np.where(is_of, -logits, logits).astype(np.float64)).mean(axis=1))


def mean(values: Floats, weights: Floats) -> Share:
    """Return the mean of a value of each example with the interval of bootstrap samples."""

    def figure(some: Ints) -> tuple[float]:
        whole = weights[some].sum()
        return (float((values[some] * weights[some]).sum() / whole) if whole else float("nan"),)

    return bootstrapped(figure, len(values))[0]


def resamples(examples: int) -> int:
    """Return the number of bootstrap samples for so many examples, so that they take seconds."""
    return max(_LEAST_SAMPLES, min(_MOST_SAMPLES, _DRAWS // examples))


def sampled(examples: int) -> str:
    """Return how intervals of so many examples are made from bootstrap samples, for people."""
    return f"percentiles of {resamples(examples):,} bootstrap samples of the examples, drawn with seed {SEED}"


def bootstrapped(figures: Callable[[Ints], Sequence[float]], examples: int) -> list[Share]:
    """Return figures of so many examples with the intervals of bootstrap samples.

    `figures` returns them of the examples at these places, NaN where one is not defined.
    """
    draw = np.random.default_rng(SEED)
    found = np.array([figures(draw.integers(examples, size=examples)) for _ in range(resamples(examples))])
    shares = []
    for of, each in zip(figures(np.arange(examples)), found.T, strict=True):
        known = each[np.isfinite(each)]
        ends = np.quantile(known, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]) if len(known) and examples > 1 else (None, None)
        shares.append(Share(*(None if end is None or not np.isfinite(end) else float(end) for end in (of, *ends))))
    return shares


def of_numbers(wanted: Floats, errors: Floats, weights: Floats) -> dict[str, Share]:
    """Return `mae`, `rmse` and `r2` of targets and errors (examples, numbers).

    R2 is the mean over the numbers, without those that are the same in all examples; not defined if all are. Intervals
    are those of bootstrap samples.
    """

    def figures(some: Ints) -> tuple[float, ...]:
        true, error, each = wanted[some], errors[some], weights[some]
        whole = each.sum()
        if not whole:
            return (float("nan"),) * 3
        shares = each[:, None] / whole
        missed = (shares * error**2).sum(axis=0)
        spread = (shares * (true - (shares * true).sum(axis=0)) ** 2).sum(axis=0)
        explained = 1 - missed[spread > 0] / spread[spread > 0]
        r2 = float(explained.mean()) if len(explained) else float("nan")
        return float((shares * np.abs(error)).sum(axis=0).mean()), float(missed.mean() ** 0.5), r2

    found = bootstrapped(figures, len(wanted))
    return dict(zip(("mae", "rmse", "r2"), found, strict=True))


class Ranked:
    """Examples of two classes by the probability of the second one, the largest first.

    Attributes:
        weights: Weight of each example.
    """

    def __init__(self, probabilities: Outputs, labels: Ints, weights: Floats) -> None:
        """Sort examples with labels 0 and 1."""
        self._order = np.argsort(-probabilities, kind="stable")
        of_class = labels[self._order] == 1
        self._sides = of_class.astype(np.float64), (~of_class).astype(np.float64)
        ordered = probabilities[self._order].astype(np.float64)
        self._ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
        self.weights = weights

    def counts(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the examples of each class with at least each probability, by these weights, the second one first."""
        each = weights[self._order]
        hits, wrongly = (np.cumsum(each * side)[self._ends] for side in self._sides)
        return hits, wrongly


def averaged(several: Sequence[Ranked], figure: Callable[[Floats, Floats], float]) -> Share:
    """Return the mean of a figure, of those where it is defined, with the interval of bootstrap samples."""
    weights = several[0].weights

    def mean(some: Ints) -> tuple[float]:
        each = np.bincount(some, minlength=len(weights)) * weights
        found = [value for of in several if (value := figure(*of.counts(each))) == value]
        return (float(np.mean(found)) if found else float("nan"),)

    return bootstrapped(mean, len(weights))[0]


def average_precision(hits: Floats, wrongly: Floats) -> float:
    """Return the mean of the precisions at each probability, by the recall that each adds; NaN without the class."""
    if not hits[-1]:
        return float("nan")
    added = np.diff(hits, prepend=0.0) / hits[-1]
    return float((added * hits / np.maximum(hits + wrongly, np.finfo(float).tiny)).sum())


def auc(hits: Floats, wrongly: Floats) -> float:
    """Return the area under the ROC curve: the share of pairs in order, of equal ones half; NaN for one class alone."""
    whole = hits[-1] * wrongly[-1]
    return float(np.trapezoid(np.append(0.0, hits), np.append(0.0, wrongly)) / whole) if whole else float("nan")
