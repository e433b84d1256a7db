"""Figures of a probability that ranks examples of two classes: curves, average precision and thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etlrun.trained.scores import Floats, Ints, Share, bootstrapped, f1, wilson

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
    hits: Ints
    wrongly: Ints


def ranked(probabilities: npt.NDArray[np.float32], labels: Ints) -> Ranked:
    """Return the counts of labels 0 and 1 at each different probability of the second class."""
    order = np.argsort(-probabilities, kind="stable")
    found = probabilities[order].astype(np.float64)
    ends = _ends(found)
    hits = np.cumsum(labels[order])[ends]
    return Ranked(found[ends], hits, ends + 1 - hits)


def _ends(ordered: Floats) -> Ints:
    """Return the places of the last of each run of equal values."""
    return np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)


def average_precision(probabilities: npt.NDArray[np.float32], labels: Ints) -> Share:
    """Return the mean of the precisions at each different probability, weighted by the recall that it adds.

    Its interval is that of bootstrap samples of the examples; it is not defined without examples of the second class.
    """
    order = np.argsort(-probabilities, kind="stable")
    of_class, ends = labels[order].astype(np.float64), _ends(probabilities[order].astype(np.float64))

    def figure(weights: Floats) -> tuple[float]:
        hits, predicted = np.cumsum(weights * of_class)[ends], np.cumsum(weights)[ends]
        if not hits[-1]:
            return (float("nan"),)
        added = np.diff(hits, prepend=0.0) / hits[-1]
        return (float((added * hits / np.maximum(predicted, np.finfo(float).tiny)).sum()),)

    def drawn(sample: Ints) -> tuple[float]:
        return figure(np.bincount(sample, minlength=len(labels)).astype(np.float64))

    return bootstrapped(figure(np.ones(len(labels))), drawn, len(labels))[0]


def places(of: Ranked) -> list[Place]:
    """Return places of both curves in the order of falling probabilities; none if all labels are the same."""
    positive, negative = int(of.hits[-1]), int(of.wrongly[-1])
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


def at(threshold: float, probabilities: npt.NDArray[np.float32], labels: Ints) -> AtThreshold:
    """Return the figures of the second class, predicted where its probability is above the threshold."""
    predicted, of_class = probabilities.astype(np.float64) > threshold, labels == 1
    hits, wrongly, missed = (
        int(of.sum()) for of in (predicted & of_class, predicted & ~of_class, ~predicted & of_class)
    )
    return AtThreshold(
        threshold=threshold,
        accuracy=wilson(len(labels) - wrongly - missed, len(labels)),
        precision=wilson(hits, hits + wrongly),
        recall=wilson(hits, hits + missed),
        f1=f1(hits, wrongly, missed),
    )
