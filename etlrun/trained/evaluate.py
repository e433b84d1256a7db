"""Evaluation of a run's model on a split: the figures of each target, and the worst predictions."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.record.report import EVALUATIONS
from etlrun.record.summary import Epoch
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature, Flow
from etlrun.system.errors import WorldError
from etlrun.system.values import frozen
from etlrun.trained import scores
from etlrun.trained.importance import Importance, importance
from etlrun.trained.load import Trained
from etlrun.trained.model import (
    by_target,
    data_of,
    is_of_run,
    names_of,
    outputs_of,
    require_finite,
    same_classes,
    tester,
    unchecked,
)
from etlrun.trained.predict import EvaluationPass, Lost, opened

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


@frozen
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


@frozen
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
    thresholds: list[scores.AtThreshold] = field(default_factory=list)
    curve: list[scores.CurvePlace] = field(default_factory=list)
    mean_squared_error: float | None = None
    mae: scores.Share | None = None
    rmse: scores.Share | None = None
    r2: scores.Share | None = None
    median_absolute_error: scores.Share | None = None
    numbers: int | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    importance: Importance | None = None


@frozen
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


def of_classes(
    found: Outputs, names: Sequence[str], reading: EvaluationPass, threshold: float | None
) -> dict[str, Any]:
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
    ranked = scores.Ranked(probabilities, labels, weights)
    best = scores.best_threshold(ranked)
    thresholds = [threshold] if best is None else [threshold, best]
    return {
        "method": (
            f"{Figures.method}; of the average precision {scores.sampled(len(labels))}; of the AUC that of "
            + ("Hanley and McNeil (1982)" if weights is None else "these samples")
        ),
        "auc": scores.auc(probabilities, labels, weights),
        "average_precision": scores.average_precision(probabilities, labels, weights),
        "thresholds": [scores.at(of, probabilities, labels, weights) for of in thresholds],
        "curve": scores.places(ranked),
    }


def of_labels(found: Outputs, names: Sequence[str], reading: EvaluationPass, threshold: float) -> dict[str, Any]:
    """Return the figures of labels by the names of `Figures`, each predicted above the threshold."""
    predicted, is_of = found.predictions.astype(np.float64) > threshold, found.targets > scores.HALF
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
        "mean_average_precision": scores.mean_average_precision(
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


def of_numbers(found: Outputs, reading: EvaluationPass) -> dict[str, Any]:
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
    reading: EvaluationPass,
    found: Outputs,
    losses: scores.Floats,
    is_wrong: npt.NDArray[np.bool_],
    told: Callable[[int], Told],
) -> list[Mistake]:
    """Return the wrong predictions with the largest losses; `told` names the target and the prediction at a place."""
    order, mistakes = np.argsort(-losses, kind="stable"), []
    for place in order[is_wrong[order]][:_WORST].tolist():
        number, (target, predicted, probability) = int(found.numbers[place]), told(place)
        flow = reading.source.dataset.examples
        names = [name for name, of in flow.features.items() if name in flow.inputs and of.format != "image"]
        example = reading.example(number) if names else {}
        mistake = Mistake(
            place=reading.place(number),
            target=target,
            predicted=predicted,
            probability=probability,
            loss=float(losses[place]),
            columns={name: _plain(example[name].numpy(), flow.features[name]) for name in names},
            image=reading.image(number),
        )
        mistakes.append(mistake)
    return mistakes


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


_SKIP_WITH = "set dataset.on_corrupt=skip to skip and list such records"
_LONGEST_NAME = 100


@frozen
class First:
    """The first example of a class, in the order of the data.

    Attributes:
        name: Name of the class in the order of the model's outputs.
        place: Path of the file of the example, and its record there.
        image: Its encoded image, for the page alone; None where an example has no single one.
    """

    name: str
    place: str
    image: bytes | None


@frozen
class Evaluation(Figures):
    """Result of an evaluation.

    Attributes:
        name: Name of its files: the split, after the dataset if that is another one than the run's; and the epoch, if
            it is not the one that is kept.
        run: Folder of the run.
        dataset: Name of the dataset. `split` is the part of it that was evaluated.
        overrides: Overrides of the evaluation.
        examples: Examples that were evaluated.
        skipped: Examples that could not be used.
        loss: The loss of the training, as Keras computes it: the mean over all examples.
        epoch: The epoch of the run whose model was evaluated; None if the run noted none.
        then: Loss, accuracy and figures of numbers of the run's validation in that epoch, if it read this split.
        targets: Figures of several targets by their names, instead of its own; empty with a single one.
        unchecked: That the classes may be in another order; empty if their names tell.
        firsts: The first example of each class, if the order is unchecked.
    """

    name: str
    run: str
    dataset: str
    split: str
    overrides: list[str]
    examples: int
    skipped: list[Lost]
    epoch: int | None = None
    loss: float
    then: dict[str, float | None]
    targets: dict[str, Figures] = field(default_factory=dict)
    unchecked: str = ""
    firsts: list[First] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, without what is for the page alone; figures stand last."""
        plain = dataclasses.asdict(self)
        for of in (plain, *plain["targets"].values()):
            del of["points"]
            for mistake in of["mistakes"]:
                del mistake["image"]
        for each in plain["firsts"]:
            del each["image"]
        last = [*(name for name in plain if name in Figures.__dataclass_fields__), "targets", "unchecked", "firsts"]
        return {name: plain[name] for name in (*(name for name in plain if name not in last), *last)}


def evaluate(
    run: Trained, model: Any, overrides: Sequence[str], threshold: float | None = None, repeats: int | None = None
) -> Evaluation:
    """Return the evaluation of a run's model on the split of its plan.

    The second of two classes is predicted above the `threshold`, None for 0.5; `repeats` are permutations of each
    column for its importance, None for as many as cost little.

    Raises:
        EtlrunError: Data is missing or corrupt, the dataset has other classes, or predictions are not finite.
    """
    flow, threshold, outputs = run.flow, threshold or scores.HALF, outputs_of(model, run.flow)
    source, split = opened(run.plan, run.split_key)
    same_classes(run, source, outputs)
    reading = EvaluationPass(run.plan, source, split)
    found, loss = _outputs(reading, model, flow)
    for of in found.values():
        require_finite(run, of.predictions, lambda row, of=of: reading.place(int(of.numbers[row])))  # type: ignore[misc]
    is_own, data, first = is_of_run(run, source), data_of(run.plan.spec.dataset, source), found[flow.target]
    worth, text = importance(run.plan, model, source, split, repeats), unchecked(run, source)
    names = names_of(run, source, outputs)
    figures = {
        name: _figures(of, flow.features[name], names[name], reading, threshold, worth.get(name))
        for name, of in found.items()
    }
    classes = run.class_names or names[flow.target] or ()
    return Evaluation(
        name=_name(run, data, split.name, is_own=is_own),
        run=str(run.folder),
        dataset=data,
        split=split.name,
        overrides=list(overrides),
        examples=len(first.numbers),
        skipped=[*reading.lost()],
        epoch=run.epoch.epoch if run.epoch is not None else None,
        loss=loss,
        then=_last(run.epoch) if is_own and split.name == run.then.spec.dataset.eval_split else {},
        targets=figures if len(figures) > 1 else {},
        unchecked=text,
        firsts=[*firsts(reading, first.targets, first.numbers, classes)] if text else [],
        **(vars(figures[flow.target]) if len(figures) == 1 else {}),
    )


def _figures(
    found: Outputs,
    feature: Feature,
    names: Sequence[str] | None,
    reading: EvaluationPass,
    threshold: float,
    worth: Importance | None,
) -> Figures:
    """Return the figures of a target."""
    if not names:
        of_kind = of_numbers(found, reading)
    elif feature.is_labels:
        of_kind = of_labels(found, names, reading, threshold)
    else:
        of_kind = of_classes(found, names, reading, threshold if feature.is_binary else None)
    made = Figures(**of_kind, importance=worth)
    return made if found.weights is None else dataclasses.replace(made, method=made.method + WEIGHTED)


def _last(epoch: Epoch | None) -> dict[str, float | None]:
    """Return the loss and the metrics of an epoch's validation; those of several targets begin with their names."""
    if epoch is None:
        return {}
    others = (name.removeprefix("val_") for name in epoch.metrics if name.startswith("val_"))
    return {name: epoch.measure(f"val_{name}") for name in ("loss", "accuracy", *others)}


def _name(run: Trained, data: str, split: str, *, is_own: bool) -> str:
    """Return the name of the files: with a number, if the evaluation of another dataset has it already."""
    text = split if is_own else f"{run.plan.spec.dataset.title} {split}"
    text += f" epoch {run.epoch.epoch}" if run.epoch is not None and run.epoch != run.summary.kept_epoch else ""
    name = text.replace("/", "_")[:_LONGEST_NAME]
    names = itertools.chain([name], (f"{name} {number}" for number in itertools.count(2)))
    return next(of for of in names if _is_of(run.folder / EVALUATIONS / f"{of}.json", data, split))


def _is_of(path: Path, dataset: str, split: str) -> bool:
    """Return whether an evaluation of this split can be written to `path`: there is none, or an earlier one of it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return bool((found["dataset"], found["split"]) == (dataset, split))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _outputs(reading: EvaluationPass, model: Any, flow: Flow) -> tuple[dict[str, Outputs], float]:
    """Return the outputs of a pass for each target by its name, and the loss."""
    test = tester(model, flow, reading.inputs_spec, *reading.wanted_specs)
    found, numbers, weights, loss = list[dict[str, tuple[Any, ...]]](), list[Any](), list[Any](), 0.0
    for batch in reading.batches(_SKIP_WITH):
        weight = () if batch.weights is None else (batch.weights,)
        predictions, of_batch, logits = test(batch.inputs, batch.targets, *weight)
        targets = by_target(flow, batch.targets)
        each = {name: _logits(of, logits.get(name), flow.features[name]) for name, of in predictions.items()}
        found.append({name: (of, each[name], targets[name]) for name, of in predictions.items()})
        loss += of_batch * len(batch.numbers)
        numbers.append(batch.numbers)
        weights += weight
    if not numbers:
        raise WorldError(
            reading.split.name,
            "no example that can be read",
            "at least one",
            "repair the data, or choose another split",
        )
    whole = np.concatenate(numbers)
    weight_of = np.concatenate(weights).reshape(-1).astype(np.float64) if weights else None
    outputs = {}
    for name in flow.targets:
        parts = map(np.concatenate, zip(*(of[name] for of in found), strict=True))
        named = dict(zip(("predictions", "logits", "targets"), parts, strict=True))
        outputs[name] = Outputs(**named, numbers=whole, weights=weight_of)
    return outputs, loss / len(whole)


def _logits(predicted: Any, logits: Any, feature: Feature) -> Any:
    """Return the logits of predictions, of each class, also where a model has none, or one of two; of numbers these."""
    if logits is None:
        is_class = feature.is_class or feature.is_labels
        return scores.logits_of(predicted, is_labels=feature.is_labels) if is_class else predicted
    is_of_second = feature.is_binary and logits.shape[-1] == 1
    return np.concatenate([np.zeros_like(logits), logits], axis=-1) if is_of_second else logits


def firsts(
    reading: EvaluationPass, targets: npt.NDArray[Any], numbers: npt.NDArray[np.int64], names: Sequence[str]
) -> Iterator[First]:
    """Yield the first example of each class that occurs; `targets` are those of `numbers`."""
    for label, name in enumerate(names):
        of_class = numbers[targets == label]
        if len(of_class):
            number = int(of_class.min())
            yield First(name=name, place=reading.place(number), image=reading.image(number))
