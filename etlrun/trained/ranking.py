"""Figures of a probability that ranks examples of two classes: curves, average precision and thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etlrun.trained.scores import Floats, Ints, Share, bootstrapped, counted, of_class, wilson

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


@dataclass(frozen=True)
class Ranked:
    """Examples by their probabilities, the largest first, and counts at each different one.

    Attributes:
        probabilities: Different probabilities; float64 (different,).
        hits: Examples of the second class with at least this probability. `wrongly` are those of the first class.
    """

    probabilities: Floats
    hits: Floats
    wrongly: Floats


def ranked(probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None) -> Ranked:
    """Return the counts of labels 0 and 1, or the sums of their weights, at each different probability."""
    order = np.argsort(-probabilities, kind="stable")
    found = probabilities[order].astype(np.float64)
    ends = _ends(found)
    each = np.ones(len(order)) if weights is None else weights[order]
    of_class = labels[order] == 1
    return Ranked(found[ends], np.cumsum(each * of_class)[ends], np.cumsum(each * ~of_class)[ends])


def _ends(ordered: Floats) -> Ints:
    """Return the places of the last of each run of equal values."""
    return np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)


class Precision:
    """The average precision of probabilities of a class: the mean of the precisions at each different one.

    It is weighted by the recall that each adds, and NaN without examples of the class.
    """

    def __init__(self, probabilities: npt.NDArray[np.float32], labels: Ints) -> None:
        """Sort examples with labels 0 and 1."""
        self._order = np.argsort(-probabilities, kind="stable")
        self._of_class = labels[self._order] == 1
        self._ends = _ends(probabilities[self._order].astype(np.float64))

    def of(self, weights: Floats) -> float:
        """Return it with a weight of each example."""
        each = weights[self._order]
        hits, predicted = np.cumsum(each * self._of_class)[self._ends], np.cumsum(each)[self._ends]
        if not hits[-1]:
            return float("nan")
        added = np.diff(hits, prepend=0.0) / hits[-1]
        return float((added * hits / np.maximum(predicted, np.finfo(float).tiny)).sum())


def average_precision(probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None) -> Share:
    """Return the average precision of the second of two classes, with the interval of bootstrap samples."""
    return mean_average_precision(probabilities[:, None], labels[:, None], weights)


def mean_average_precision(
    probabilities: npt.NDArray[np.float32], labels: Ints, weights: Floats | None = None
) -> Share:
    """Return the mean of the average precisions of those labels (examples, labels) that some example has."""
    count, several = labels.shape
    each = np.ones(count) if weights is None else weights
    of_labels = [Precision(probabilities[:, place], labels[:, place]) for place in range(several)]

    def figure(weights: Floats) -> tuple[float]:
        found = [value for of in of_labels if (value := of.of(weights)) == value]
        return (float(np.mean(found)) if found else float("nan"),)

    return bootstrapped(figure(each), lambda some: figure(np.bincount(some, minlength=count) * each), count)[0]


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
    right = counted(predicted == is_of, np.ones(len(labels), bool), weights)
    return AtThreshold(
        threshold=threshold, accuracy=wilson(*right), precision=found.precision, recall=found.recall, f1=found.f1
    )
