"""Figures of the predictions of one target, and the worst of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.trained import ranking, scores
from etlrun.trained.importance import Importance
from etlrun.trained.numbered import Pass

_WORST = 24
"""Mistakes that are shown."""
_OF_SHARES = (
    "95 % intervals: Wilson's score interval of shares, and of F1 that of TP / (TP + FP + FN), as 2 p / (1 + p)"
)
WEIGHTED = "; examples count by their weights, in intervals of shares by their effective number (Kish 1965)"
_MOST_POINTS = 2_000
_LONGEST_TEXT = 1_000
"""Points of a chart, and characters of a text, that are kept of more."""
Told = tuple[str, str, float | None]
"""Target and prediction as a reader knows them, and the probability of the prediction; None if it has none."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong prediction.

    Attributes:
        place: Path of the file of the example, and its record or row there.
        target: Name of its class, or its value.
        predicted: Name of the predicted class, or the predicted value.
        probability: Probability of the predicted class; None if the target is no class.
        loss: Crossentropy of the example, or its mean squared error.
        columns: Values of its inputs but images, by name, as they are stored; None for one that is missing.
        image: Its encoded image, for the page alone; None where an example has no single one.
    """

    place: str
    target: str
    predicted: str
    probability: float | None
    loss: float
    columns: dict[str, Any]
    image: bytes | None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a target. Classes have a confusion matrix and what follows from it, other targets have errors.

    Attributes:
        method: How the intervals are made.
        accuracy: Share of right predictions; of labels the mean over them.
        subset_accuracy: Share of the examples of which all labels are right.
        mean_average_precision: Mean over the labels that occur of their average precision (mAP).
        classes: Figures of each class, or of each label.
        confusion: Examples by class (row) and predicted class (column).
        calibration: Bins of confidence.
        expected_calibration_error: The expected calibration error (ECE): their mean gap of confidence and accuracy.
        auc: Area under the ROC curve of one of two classes, by the probability of the second one.
        average_precision: Average precision (AP): mean of its precisions, weighted by the recall that each adds.
        thresholds: Figures of the second class: above the threshold of the confusion matrix, and above the one of these
            examples with the largest F1.
        curve: Places on the ROC curve and the precision-recall curve.
        mean_squared_error: Mean squared error (MSE) of a target that is no class.
        mae: The mean absolute error, `rmse` the root of the mean squared error, `r2` the coefficient of determination
            and `median_absolute_error` (MedAE), with their intervals.
        numbers: Numbers that were predicted, of all examples.
        points: Targets and predictions of some of them, at random, for the page alone.
        mistakes: The worst ones, with the largest loss first.
        importance: How much worse predictions get without what a column tells; None if it is left out.
    """

    method: str = f"{_OF_SHARES}; 15 bins of equal width (Guo et al. 2017)"
    accuracy: scores.Share | None = None
    subset_accuracy: scores.Share | None = None
    mean_average_precision: scores.Share | None = None
    classes: list[scores.OfClass] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    calibration: list[scores.Bin] = field(default_factory=list)
    expected_calibration_error: float | None = None
    auc: scores.Share | None = None
    average_precision: scores.Share | None = None
    thresholds: list[ranking.AtThreshold] = field(default_factory=list)
    curve: list[ranking.Place] = field(default_factory=list)
    mean_squared_error: float | None = None
    mae: scores.Share | None = None
    rmse: scores.Share | None = None
    r2: scores.Share | None = None
    median_absolute_error: scores.Share | None = None
    numbers: int | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    importance: Importance | None = None


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Predictions for a target.

    Attributes:
        predictions: Predictions (examples, outputs): the probability of each class, or numbers.
        logits: What the softmax or, of labels, the sigmoid makes them of; of numbers the predictions again.
        targets: Targets (examples, ...).
        numbers: Number of each example.
        weights: Weight of each example; None if all count the same.
    """

    predictions: npt.NDArray[np.float32]
    logits: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]
    weights: scores.Floats | None = None


def of_classes(found: Outputs, names: Sequence[str], reading: Pass, threshold: float | None) -> dict[str, Any]:
    """Return the figures of classes by the names of `Figures`; with those of two, if they have a threshold."""
    predicted, confidence = found.predictions.argmax(axis=1), found.predictions.max(axis=1).astype(np.float64)
    bins, error = scores.calibration(confidence, predicted == found.targets, found.weights)
    if threshold is not None:
        predicted = (found.predictions[:, 1].astype(np.float64) > threshold).astype(np.int64)
    is_right = predicted == found.targets
    counts = scores.confusion(found.targets, predicted, len(names))
    losses = scores.crossentropies(found.logits, found.targets)

    def told(place: int) -> Told:
        of = predicted[place]
        return names[found.targets[place]], names[of], float(found.predictions[place, of])

    return {
        **({} if threshold is None else _of_two(found, threshold)),
        "accuracy": scores.wilson(*scores.counted(is_right, weights=found.weights)),
        "classes": scores.of_classes(found.targets, predicted, names, found.weights),
        "confusion": counts.tolist(),
        "calibration": bins,
        "expected_calibration_error": error,
        "mistakes": _mistakes(reading, found, losses, ~is_right, told),
    }


def _of_two(found: Outputs, threshold: float) -> dict[str, Any]:
    probabilities, labels, weights = found.predictions[:, 1], found.targets.astype(np.int64), found.weights
    ranked = ranking.Ranked(probabilities, labels, weights)
    best = ranking.best_threshold(ranked)
    thresholds = [threshold] if best is None else [threshold, best]
    return {
        "method": (
            f"{Figures.method}; of the average precision {scores.sampled(len(labels))}; of the AUC that of "
            + ("Hanley and McNeil (1982)" if weights is None else "these samples")
        ),
        "auc": ranking.auc(probabilities, labels, weights),
        "average_precision": ranking.average_precision(probabilities, labels, weights),
        "thresholds": [ranking.at(of, probabilities, labels, weights) for of in thresholds],
        "curve": ranking.places(ranked),
    }


def of_labels(found: Outputs, names: Sequence[str], reading: Pass, threshold: float) -> dict[str, Any]:
    """Return the figures of labels by the names of `Figures`, each predicted above the threshold."""
    predicted, is_of = found.predictions.astype(np.float64) > threshold, found.targets > ranking.HALF
    is_right = predicted == is_of
    losses = scores.binary_crossentropies(found.logits, is_of)

    def told(place: int) -> Told:
        return _named(names, is_of[place]), _named(names, predicted[place]), None

    return {
        "method": (
            f"{_OF_SHARES}; of the accuracy of all labels and of the mean average precision "
            f"{scores.sampled(len(is_right))}"
        ),
        "accuracy": scores.mean(is_right.mean(axis=1), found.weights),
        "subset_accuracy": scores.wilson(*scores.counted(is_right.all(axis=1), weights=found.weights)),
        "mean_average_precision": ranking.mean_average_precision(
            found.predictions, is_of.astype(np.int64), found.weights
        ),
        "classes": [
            scores.of_class(name, is_of[:, place], predicted[:, place], found.weights)
            for place, name in enumerate(names)
        ],
        "mistakes": _mistakes(reading, found, losses, ~is_right.all(axis=1), told),
    }


def _named(names: Sequence[str], has: npt.NDArray[np.bool_]) -> str:
    return ", ".join(name for name, there in zip(names, has, strict=True) if there) or "none"


def of_numbers(found: Outputs, reading: Pass) -> dict[str, Any]:
    """Return the figures of a target that is no class by the names of `Figures`."""
    wanted = found.targets.reshape(len(found.targets), -1).astype(np.float64)
    predicted = found.predictions.reshape(wanted.shape).astype(np.float64)
    errors = predicted - wanted
    each = (errors**2).mean(axis=1)

    def told(place: int) -> Told:
        return _shown(wanted[place]), _shown(predicted[place]), None

    return {
        "method": f"95 % intervals: {scores.sampled(len(each))}",
        **scores.of_numbers(wanted, errors, found.weights),
        "mean_squared_error": scores.average(each, found.weights),
        "numbers": wanted.size,
        "points": _points(wanted.ravel(), predicted.ravel()),
        "mistakes": _mistakes(reading, found, each, np.ones(len(each), bool), told),
    }


def _points(wanted: scores.Floats, predicted: scores.Floats) -> list[tuple[float, float]]:
    places = np.flatnonzero(np.isfinite(wanted) & np.isfinite(predicted))
    if len(places) > _MOST_POINTS:
        places = np.random.default_rng(scores.SEED).choice(places, _MOST_POINTS, replace=False)
    return [(float(wanted[place]), float(predicted[place])) for place in places]


def _mistakes(
    reading: Pass, found: Outputs, losses: scores.Floats, is_wrong: npt.NDArray[np.bool_], told: Callable[[int], Told]
) -> list[Mistake]:
    """Return the wrong predictions with the largest losses; `told` names the target and the prediction at a place."""
    order, mistakes = np.argsort(-losses, kind="stable"), []
    for place in order[is_wrong[order]][:_WORST].tolist():
        number, (target, predicted, probability) = int(found.numbers[place]), told(place)
        mistake = Mistake(
            place=reading.place(number),
            target=target,
            predicted=predicted,
            probability=probability,
            loss=float(losses[place]),
            columns=_columns(reading, number),
            image=reading.image(number),
        )
        mistakes.append(mistake)
    return mistakes


def _columns(reading: Pass, number: int) -> dict[str, Any]:
    """Return the inputs of an example by name but images, as plain values."""
    flow = reading.source.dataset.examples
    names = [name for name, of in flow.features.items() if name in flow.inputs and of.format != "image"]
    example = reading.example(number) if names else {}
    return {name: _plain(example[name].numpy(), flow.features[name]) for name in names}


def _plain(value: Any, feature: Feature) -> Any:
    """Return a value of a feature as JSON has it: None if it is missing, text for times and arrays."""
    if feature.shape:
        return "".join(_shown(value).split())  # without blanks, as it is no prose
    if feature.dtype == "string":
        text = None if value == MISSING else value.decode("utf-8", "replace")
        return text if text is None or len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    plain = value.item()
    if feature.format == "timestamp":
        return None if plain == MISSING_TIME else str(np.datetime64(plain, "us")).removesuffix(".000000")
    return None if plain != plain else plain  # noqa: PLR0124 - NaN


def _shown(values: npt.NDArray[Any]) -> str:
    return np.array2string(np.asarray(values), precision=4, threshold=8, separator=", ").strip("[]")
