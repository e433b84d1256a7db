"""Figures of a probability that ranks examples of two classes: curves, areas below them, and thresholds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from etlrun.trained.scores import LEVEL, Floats, Ints, Share, bootstrapped, counted, of_class, wilson

HALF = 0.5
"""The threshold of a training's metrics, above which the second class is predicted."""
_MOST_PLACES = 200
"""Places of the curves that are kept of more."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Place on the curves: what is right if the second class is predicted from a probability on.

    Attributes:
        threshold: The probability from which on it is predicted.
        recall: Share of the examples of the class that are predicted so; the true positive rate.
        false_positive_rate: Share of the examples of the first class that are predicted to be of the second one.
        precision: Share of the predicted examples that are of the class.
    """

    threshold: float
    recall: float
    false_positive_rate: float
    precision: float


@dataclass(frozen=True, kw_only=True)
class AtThreshold:
    """Figures of the second class where it is predicted above a threshold, with their intervals.

    Attributes:
        threshold: The threshold.
        accuracy: Share of right predictions of both classes.
        precision: Share of the predicted examples that are of the class.
        recall: Share of the examples of the class that are predicted so.
        f1: Harmonic mean of both.
    """

    threshold: float
    accuracy: Share
    precision: Share
    recall: Share
    f1: Share


class Ranked:
    """Examples of two classes by the probability of the second one, the largest first.

    Attributes:
        probabilities: Different probabilities; float64 (different,).
        weights: Weight of each example.
        hits: Examples of the second class with at least this probability, by weight. `wrongly` are those of the first.
    """

    def __init__(self, probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None) -> None:
        """Sort examples with labels 0 and 1, which count the same without weights."""
        self._order = np.argsort(-probabilities, kind="stable")
        of_class = labels[self._order] == 1
        self._sides = of_class.astype(np.float64), (~of_class).astype(np.float64)
        ordered = probabilities[self._order].astype(np.float64)
        self._ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
        self.probabilities = ordered[self._ends]
        self.weights = np.ones(len(ordered)) if weights is None else weights
        self.hits, self.wrongly = self.counts(self.weights)

    def counts(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return `hits` and `wrongly` with other weights."""
        each = weights[self._order]
        hits, wrongly = (np.cumsum(each * side)[self._ends] for side in self._sides)
        return hits, wrongly


def auc(probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None) -> Share:
    """Return the area under the ROC curve of labels 0 and 1: the share of pairs in order, of equal ones half.

    Its interval is that of Hanley and McNeil, Radiology 1982; with weights that of bootstrap samples. It is not defined
    if all labels are the same.
    """
    ranked = Ranked(probabilities, labels, weights)
    if weights is not None:
        return _resampled([ranked], _area)
    area, positive, negative = _area(ranked.hits, ranked.wrongly), float(ranked.hits[-1]), float(ranked.wrongly[-1])
    if not positive or not negative:
        return Share(None)
    of_positive, of_negative = area / (2 - area), 2 * area * area / (1 + area)
    spread = (positive - 1) * (of_positive - area**2) + (negative - 1) * (of_negative - area**2)
    half = NormalDist().inv_cdf(0.5 + LEVEL / 2) * ((area * (1 - area) + spread) / (positive * negative)) ** 0.5
    return Share(area, max(area - half, 0.0), min(area + half, 1.0))


def average_precision(probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None) -> Share:
    """Return the average precision of the second of two classes, with the interval of bootstrap samples."""
    return _resampled([Ranked(probabilities, labels, weights)], _precision)


def mean_average_precision(
    probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None
) -> Share:
    """Return the mean of the average precisions of those labels (examples, labels) that some example has."""
    pairs = zip(probabilities.T, labels.T, strict=True)
    return _resampled([Ranked(*pair, weights) for pair in pairs], _precision)


def _resampled(several: Sequence[Ranked], figure: Callable[[Floats, Floats], float]) -> Share:
    """Return the mean of a figure, of those where it is defined, with the interval of bootstrap samples."""
    weights = several[0].weights

    def mean(each: Floats) -> tuple[float]:
        found = [value for of in several if (value := figure(*of.counts(each))) == value]
        return (float(np.mean(found)) if found else float("nan"),)

    count = len(weights)
    return bootstrapped(mean(weights), lambda some: mean(np.bincount(some, minlength=count) * weights), count)[0]


def _precision(hits: Floats, wrongly: Floats) -> float:
    """Return the mean of the precisions at each probability, by the recall that each adds; NaN without the class."""
    if not hits[-1]:
        return float("nan")
    added = np.diff(hits, prepend=0.0) / hits[-1]
    return float((added * hits / np.maximum(hits + wrongly, np.finfo(float).tiny)).sum())


def _area(hits: Floats, wrongly: Floats) -> float:
    whole = hits[-1] * wrongly[-1]
    return float(np.trapezoid(np.append(0.0, hits), np.append(0.0, wrongly)) / whole) if whole else float("nan")


def places(of: Ranked) -> list[Place]:
    """Return places of both curves in the order of falling probabilities; none if all labels are the same."""
    positive, negative = float(of.hits[-1]), float(of.wrongly[-1])
    if not positive or not negative:
        return []
    some = np.unique(np.linspace(0, len(of.hits) - 1, _MOST_PLACES).round().astype(int))
    return [
        Place(
            threshold=float(of.probabilities[place]),
            recall=float(of.hits[place] / positive),
            false_positive_rate=float(of.wrongly[place] / negative),
            precision=float(of.hits[place] / (of.hits[place] + of.wrongly[place])),
        )
        for place in some.tolist()
        if of.hits[place] + of.wrongly[place]  # the first examples may have no weight
    ]


def best_threshold(of: Ranked) -> float | None:
    """Return the threshold above which F1 is largest, halfway between two probabilities; None without positives.

    Of equal ones it is the largest. No threshold below 0 is looked at.
    """
    if not of.hits[-1]:
        return None
    below = np.append(of.probabilities[1:], 0.0)
    middles = (of.probabilities + below) / 2
    scores = np.where(middles < of.probabilities, 2 * of.hits / (of.hits + of.wrongly + of.hits[-1]), -1.0)
    return float(middles[int(scores.argmax())])


def at(
    threshold: float, probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None
) -> AtThreshold:
    """Return the figures of the second class, predicted where its probability is above the threshold."""
    predicted, is_of = probabilities.astype(np.float64) > threshold, labels == 1
    found = of_class("", is_of, predicted, weights)
    right = counted(predicted == is_of, weights=weights)
    return AtThreshold(
        threshold=threshold, accuracy=wilson(*right), precision=found.precision, recall=found.recall, f1=found.f1
    )
