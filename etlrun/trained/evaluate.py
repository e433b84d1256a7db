"""Evaluation of a run's model on a split: the figures of each target, and the worst predictions."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from etlrun.measure.gains import BETTER, TIED, WORSE
from etlrun.run.baseline import CONSTANT, LINEAR, Simple, loaded
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature, Flow
from etlrun.stages.objectives import Kinds, kind_of
from etlrun.system.errors import WorldError
from etlrun.system.values import Block, frozen, sha256_of
from etlrun.trained import scores
from etlrun.trained.importance import Importance, importance, measured
from etlrun.trained.load import Trained
from etlrun.trained.model import by_target, data_of, is_of_run, of_each_class, require_finite, tester, unchecked
from etlrun.trained.predict import Lost, Reading, heads, of_split

_WORST = 24
"""Mistakes that are shown."""
_OF_SHARES = (
    "95 % intervals: Wilson's score interval of shares; of F1, 2 p / (1 + p) for the ends of p = TP / (TP + FP + FN)"
)
WEIGHTED = "; examples count by their weights, and intervals of shares use the effective sample size (Kish 1965)"
_LONGEST_TEXT = 1_000
"""Characters of a text that are kept of more."""
Told = tuple[str, str, float | None]
"""Target and prediction as a reader knows them, and the probability of the prediction; None if it has none."""
_SKIP_WITH = "set dataset.on_corrupt=skip to skip and list such records"
_LONGEST_NAME = 100


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
    columns: Block
    image: bytes | None


@frozen
class OfBaseline:
    """What a simple prediction of the same examples comes to.

    Attributes:
        name: `linear`, the linear model that the run fitted, or `constant`, its prediction for all examples.
        value: Its accuracy, or its mean absolute error.
        lead: The network's value less that of it, with the interval of bootstrap samples of the examples.
        result: Whether the network is `better` by that interval, `worse` or `tied`.
    """

    name: str
    value: scores.Share
    lead: scores.Share
    result: str


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
        threshold: Probability above which the second one of two classes, or a label, is predicted.
        mae: The mean absolute error, `rmse` the root of the mean squared error and `r2` the coefficient of
            determination of a target that is no class, with their intervals.
        mistakes: The worst ones, with the largest loss first.
        importance: How much worse predictions get without what a column tells; None if it is left out.
        baseline: Those of simple predictions; empty of a run that has none.
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
    threshold: float | None = None
    mae: scores.Share | None = None
    rmse: scores.Share | None = None
    r2: scores.Share | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    importance: Importance | None = None
    baseline: list[OfBaseline] = field(default_factory=list)


class TargetOutputs(NamedTuple):
    """Predictions for a target.

    Attributes:
        is_weighted: Whether the examples of the run have weights.
        predictions: Predictions (examples, outputs): the probability of each class, or numbers.
        logits: What the softmax or, of labels, the sigmoid makes them of; of numbers the predictions again.
        targets: Targets (examples, ...).
        numbers: Number of each example.
        weights: Weight of each example, 1 where all count the same.
        simple: Predictions of the baseline of the run, `linear` and `constant`; empty without one.
    """

    is_weighted: bool
    predictions: scores.Outputs
    logits: scores.Array
    targets: scores.Array
    numbers: scores.Ints
    weights: scores.Floats
    simple: Mapping[str, scores.Outputs] = {}


class OfKind(NamedTuple):
    """What is said of the predictions for a target.

    Attributes:
        figures: Figures by the names of `Figures`.
        losses: Loss of each example.
        is_wrong: Which examples may be mistakes.
        told: Names the target and the prediction of the example at a place.
    """

    figures: Block
    losses: scores.Floats
    is_wrong: scores.Truths
    told: Callable[[int], Told]


def of_classes(found: TargetOutputs, names: Sequence[str], threshold: float | None) -> OfKind:
    """Return what is said of classes; with the figures of two, if they have a threshold."""
    predicted, confidence, weights = found.predictions.argmax(axis=1), found.predictions.max(axis=1), found.weights
    bins, error = scores.calibration(confidence.astype(np.float64), predicted == found.targets, weights)
    of_two: Block = {}
    if threshold is not None:
        probabilities, labels = found.predictions[:, 1], found.targets.astype(np.int64)
        predicted = (probabilities.astype(np.float64) > threshold).astype(np.int64)
        ranked = scores.Ranked(probabilities, labels, weights)
        of_two = {
            "method": f"{Figures.method}; of the AUC and the average precision {scores.sampled(len(labels))}",
            "auc": scores.averaged([ranked], scores.auc),
            "average_precision": scores.averaged([ranked], scores.average_precision),
            "threshold": threshold,
        }
    is_right, count = predicted == found.targets, len(names)
    counts = np.bincount(found.targets * count + predicted, minlength=count**2)
    each = [scores.of_class(name, found.targets == of, predicted == of, weights) for of, name in enumerate(names)]

    def told(place: int) -> Told:
        of = predicted[place]
        return names[found.targets[place]], names[of], float(found.predictions[place, of])

    figures = {
        **of_two,
        "accuracy": scores.wilson(*scores.counted(is_right, slice(None), weights)),
        "classes": each,
        "confusion": counts.reshape(count, count).tolist(),
        "calibration": bins,
        "expected_calibration_error": error,
    }
    return OfKind(figures, scores.crossentropies(found.logits, found.targets), ~is_right, told)


def of_labels(found: TargetOutputs, names: Sequence[str], threshold: float) -> OfKind:
    """Return what is said of labels, each predicted above the threshold."""
    predicted, is_of = found.predictions.astype(np.float64) > threshold, found.targets > scores.HALF
    is_right, weights = predicted == is_of, found.weights
    columns = [*zip(names, found.predictions.T, is_of.T, predicted.T, strict=True)]

    def told(place: int) -> Told:
        labels = (", ".join(compress(names, of[place])) or "none" for of in (is_of, predicted))
        return next(labels), next(labels), None

    sampled = scores.sampled(len(is_right))
    figures = {
        "method": f"{_OF_SHARES}; of the accuracy of all labels and of the mean average precision {sampled}",
        "threshold": threshold,
        "accuracy": scores.mean(is_right.mean(axis=1), weights),
        "subset_accuracy": scores.wilson(*scores.counted(is_right.all(axis=1), slice(None), weights)),
        "mean_average_precision": scores.averaged(
            [scores.Ranked(shares, there.astype(np.int64), weights) for _, shares, there, _ in columns],
            scores.average_precision,
        ),
        "classes": [scores.of_class(name, there, said, weights) for name, _, there, said in columns],
    }
    return OfKind(figures, scores.binary_crossentropies(found.logits, is_of), ~is_right.all(axis=1), told)


def of_numbers(found: TargetOutputs) -> OfKind:
    """Return what is said of a target that is no class."""
    wanted = found.targets.reshape(len(found.targets), -1).astype(np.float64)
    predicted = found.predictions.reshape(wanted.shape).astype(np.float64)
    losses, weights = ((predicted - wanted) ** 2).mean(axis=1), found.weights

    def told(place: int) -> Told:
        return _shown(wanted[place]), _shown(predicted[place]), None

    figures = {
        "method": f"95 % intervals: {scores.sampled(len(wanted))}",
        **scores.of_numbers(wanted, predicted - wanted, weights),
    }
    return OfKind(figures, losses, np.ones(len(wanted), bool), told)


def _of_baseline(found: TargetOutputs, kind: Kinds, threshold: float) -> Iterator[OfBaseline]:
    """Yield what is said of the baseline of a run."""
    own, weights = measured(kind, found.predictions, found.targets, threshold), found.weights
    for name, predictions in found.simple.items():
        each = measured(kind, predictions, found.targets, threshold)
        is_share = kind in ("class", "binary")
        value = (
            scores.wilson(*scores.counted(each > 0, slice(None), weights)) if is_share else scores.mean(each, weights)
        )
        lead = scores.mean(own - each, weights)
        ends = sorted(-end if kind == "number" else end for end in (lead.low or 0.0, lead.high or 0.0))
        result = BETTER if ends[0] > 0 else WORSE if ends[1] < 0 else TIED
        yield OfBaseline(name=name, value=value, lead=lead, result=result)


def _mistakes(reading: Reading, found: TargetOutputs, of_kind: OfKind) -> Iterator[Mistake]:
    """Yield the wrong predictions with the largest losses."""
    order, flow = np.argsort(-of_kind.losses, kind="stable"), reading.source.dataset.examples
    images = [name for name in flow.inputs if flow.features[name].format == "image"]
    names = [name for name in flow.features if name in flow.inputs and name not in images]
    for place in order[of_kind.is_wrong[order]][:_WORST].tolist():
        number, (target, predicted, probability) = int(found.numbers[place]), of_kind.told(place)
        example = reading.example(number)
        yield Mistake(
            place=reading.place(number),
            target=target,
            predicted=predicted,
            probability=probability,
            loss=float(of_kind.losses[place]),
            columns={name: _plain(example[name].numpy(), flow.features[name]) for name in names},
            image=bytes(example[images[0]].numpy()) if len(images) == 1 else None,
        )


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


def _shown(values: scores.Array) -> str:
    return np.array2string(np.asarray(values), precision=4, threshold=8, separator=", ").strip("[]")


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
        then: Loss, accuracy and figures of numbers of the run's validation in that epoch, if it read this split, or of
            the named validation set that was evaluated.
        targets: Figures of several targets by their names, instead of its own; empty with a single one.
        unchecked: That the classes may be in another order; empty if their names tell.
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

    def plain(self) -> Block:
        """Return it as plain values, without what is for the page alone; figures stand last."""
        plain = dataclasses.asdict(self, dict_factory=lambda items: {name: of for name, of in items if name != "image"})
        last = {*Figures.__dataclass_fields__, "targets", "unchecked"}
        return {name: plain[name] for name in sorted(plain, key=lambda name: name in last)}


def evaluate(
    run: Trained, model: Any, overrides: Sequence[str], threshold: float | None = None, repeats: int | None = None
) -> Evaluation:
    """Return the evaluation of a run's model on the split of its plan.

    The second of two classes is predicted above the `threshold`, None for 0.5; `repeats` are permutations of each
    column for its importance, None for as many as cost little.

    Raises:
        EtlrunError: Data is missing or corrupt, the dataset has other classes, or predictions are not finite.
    """
    flow, dataset, reading = run.flow, run.plan.spec.dataset, of_split(run, model)
    source, split = reading.source, reading.split
    found, loss = _outputs(reading, model, flow, loaded(run.folder))
    for of in found.values():
        require_finite(run, of.predictions, of.numbers, reading)
    is_own, data = is_of_run(run, source), data_of(dataset, source)
    worth = importance(run.plan, model, split, repeats)
    figures = dict[str, Figures]()
    for head, (name, of) in zip(heads(run, model, None, source), found.items(), strict=True):
        above = threshold or scores.HALF
        if not head.names:
            of_kind = of_numbers(of)
        elif head.is_labels:
            of_kind = of_labels(of, head.names, above)
        else:
            of_kind = of_classes(of, head.names, above if flow.features[name].is_binary else None)
        method = {"method": of_kind.figures.get("method", Figures.method) + WEIGHTED * of.is_weighted}
        mistakes = [*_mistakes(reading, of, of_kind)]
        baseline = [*_of_baseline(of, kind_of(flow.features[name]), above)]
        given = {**of_kind.figures, **method, "baseline": baseline}
        figures[name] = Figures(**given, mistakes=mistakes, importance=worth.get(name))
    epoch, then = run.epoch, dict[str, float | None]()
    is_validation = is_own and split.name == run.then.spec.dataset.eval_split
    before = f"{run.named}." if run.named else "val_" * is_validation
    if epoch is not None and before:
        others = (name.removeprefix(before) for name in epoch.metrics if name.startswith(before))
        then = {name: epoch.measure(f"{before}{name}") for name in ("loss", "accuracy", *others)}
    return Evaluation(
        name=_name(run, "" if is_own else dataset.title, data, split.name),
        run=str(run.folder),
        dataset=data,
        split=split.name,
        overrides=list(overrides),
        examples=len(found[flow.target].numbers),
        skipped=[*reading.lost()],
        epoch=None if epoch is None else epoch.epoch,
        loss=loss,
        then=then,
        targets=figures if len(figures) > 1 else {},
        unchecked=unchecked(run, source),
        **(vars(figures[flow.target]) if len(figures) == 1 else {}),
    )


def _name(run: Trained, dataset: str, data: str, split: str) -> str:
    """Return the name of the files: with a digest, if the dataset is another one, or the name is too long."""
    epoch = f" epoch {run.epoch.epoch}" if run.epoch is not None and run.epoch != run.summary.kept_epoch else ""
    whole = f"{dataset} {split}{epoch}".strip().replace("/", "_")
    digest = sha256_of(f"{data}\n{split}{epoch}", 8)
    return f"{whole[:_LONGEST_NAME]} {digest}" if dataset or len(whole) > _LONGEST_NAME else whole


def _outputs(reading: Reading, model: Any, flow: Flow, simple: Simple | None) -> tuple[dict[str, TargetOutputs], float]:
    """Return the outputs of a pass for each target by its name, with those of a baseline, and the loss."""
    test = tester(model, flow, reading.inputs_spec, *reading.wanted_specs)
    found, loss = {name: list[tuple[Any, ...]]() for name in flow.targets}, 0.0
    for batch in reading.batches(_SKIP_WITH):
        predictions, of_batch, logits = test(batch.inputs, *batch.wanted)
        targets, weights = by_target(flow, batch.wanted[0]), batch.weights.astype(np.float64)
        simple_ones = simple.predictions(flow, batch.inputs, len(weights)).values() if simple else ()
        others = [of_each_class(flow, of) for of in simple_ones]
        for name, of in predictions.items():
            each = _logits(of, logits.get(name), flow.features[name])
            beside = (by_name[name] for by_name in others)
            found[name].append((of, each, targets[name], batch.numbers, weights, *beside))
        loss += of_batch * len(weights)
    if not found[flow.target]:
        remedy = "repair the data, or choose another split"
        raise WorldError(reading.split.name, "no example that can be read", "at least one", remedy)
    outputs, own = dict[str, TargetOutputs](), len(TargetOutputs._fields) - 2
    for name, parts in found.items():
        arrays: list[Any] = [*map(np.concatenate, zip(*parts, strict=True))]
        of_baseline = dict(zip((CONSTANT, LINEAR), arrays[own:], strict=False))
        outputs[name] = TargetOutputs._make([bool(flow.weight), *arrays[:own], of_baseline])
    return outputs, loss / len(outputs[flow.target].numbers)


def _logits(predicted: Any, logits: Any, feature: Feature) -> Any:
    """Return the logits of predictions, of each class, also where a model has none, or one of two; of numbers these."""
    if logits is None:
        is_class = feature.is_class or feature.is_labels
        return scores.logits_of(predicted, is_labels=feature.is_labels) if is_class else predicted
    is_of_second = feature.is_binary and logits.shape[-1] == 1
    return np.concatenate([np.zeros_like(logits), logits], axis=-1) if is_of_second else logits
