"""Evaluation of a run's model on a split, with the validation pipeline of the run."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.record import record as records
from etlrun.record.findings import finite
from etlrun.record.page import EVALUATIONS
from etlrun.system.errors import WorldError
from etlrun.system.files import write_atomically
from etlrun.trained import scores
from etlrun.trained.load import Trained
from etlrun.trained.model import class_names, outputs_of, require_finite, same_classes, tester
from etlrun.trained.numbered import Lost, Pass, opened
from etlrun.trained.order import First, data_of, firsts, is_of_run, unchecked

_WORST = 24
"""Mistakes that are shown."""
_SKIP_WITH = "set dataset.on_corrupt=skip to skip and list such records"
_LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong prediction.

    Attributes:
        place: Path of the file of the example, and its record there.
        target: Name of its class, or its value.
        predicted: Name of the predicted class, or the predicted value.
        probability: Probability of the predicted class; None if the target is no class.
        loss: Crossentropy of the example, or its mean squared error.
        image: Its encoded image, for the page alone; None where an example has no single one.
    """

    place: str
    target: str
    predicted: str
    probability: float | None
    loss: float
    image: bytes | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Result of an evaluation. Classes have a confusion matrix and what follows from it, other targets have errors.

    Attributes:
        name: Name of its files: the split, after the dataset if that is another one than the run's.
        run: Folder of the run.
        dataset: Name of the dataset. `split` is the part of it that was evaluated.
        overrides: Overrides of the evaluation.
        examples: Examples that were evaluated.
        skipped: Examples that could not be used.
        loss: The loss of the training, as Keras computes it: the mean over all examples.
        then: Loss and accuracy of the run's last validation, if it read this split.
        method: How the intervals are made.
        accuracy: Share of right predictions.
        classes: Figures of each class.
        confusion: Examples by class (row) and predicted class (column).
        calibration: Bins of confidence. `calibration_error` is the expected calibration error.
        auc: Area under the ROC curve of one of two classes, by the probability of the second one.
        squared_error: Mean squared error of a target that is no class. `absolute_error` is the mean absolute error.
        mae: The mean absolute error, `rmse` the root of the mean squared error and `r2` the coefficient of
            determination, with their intervals.
        mistakes: The worst ones, with the largest loss first.
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
    loss: float
    then: dict[str, float | None]
    method: str = (
        "95 % intervals: Wilson's score interval of shares, and of F1 that of TP / (TP + FP + FN), as 2 p / (1 + p); "
        "15 bins of equal width (Guo et al. 2017)"
    )
    accuracy: scores.Share | None = None
    classes: list[scores.OfClass] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    calibration: list[scores.Bin] = field(default_factory=list)
    calibration_error: float | None = None
    auc: scores.Share | None = None
    squared_error: float | None = None
    absolute_error: float | None = None
    mae: scores.Share | None = None
    rmse: scores.Share | None = None
    r2: scores.Share | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    unchecked: str = ""
    firsts: list[First] = field(default_factory=list)

    def as_json(self) -> str:
        """Return it as JSON, without images."""
        plain = dataclasses.asdict(self)
        for each in (*plain["mistakes"], *plain["firsts"]):
            del each["image"]
        return json.dumps(finite(plain), indent=1) + "\n"


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """What the pass over the split gave, of each example: predictions (examples, outputs), targets and numbers."""

    predictions: npt.NDArray[np.float32]
    targets: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]
    loss: float


def evaluate(run: Trained, model: Any, overrides: Sequence[str]) -> Evaluation:
    """Return the evaluation of a run's model on the split of its plan.

    Raises:
        EtlrunError: Data is missing or corrupt, the dataset has other classes, or predictions are not finite.
    """
    source, split = opened(run.plan, run.split_key)
    outputs = outputs_of(model)
    same_classes(run, source, outputs)
    reading = Pass(run.plan, source, split)
    found = _outputs(reading, model)
    require_finite(run, found.predictions, lambda row: reading.place(int(found.numbers[row])))
    last = {key: getattr(of, f"val_{key}") for of in run.summary.epochs[-1:] for key in ("loss", "accuracy")}
    is_own, data = is_of_run(run, source), data_of(run.plan.spec.dataset, source)
    result = Evaluation(
        name=_name(run, data, split.name, is_own=is_own),
        run=str(run.folder),
        dataset=data,
        split=split.name,
        overrides=list(overrides),
        examples=len(found.numbers),
        skipped=[*reading.lost()],
        loss=found.loss,
        then=last if is_own and split.name == run.then.spec.dataset.eval_split else {},
    )
    names = source.class_names or class_names(run, outputs)
    judged = _of_classes(result, found, names, reading) if names else _of_numbers(result, found, reading)
    text = unchecked(run, source)
    of_model = run.class_names or names or ()
    first = [*firsts(reading, found.targets, found.numbers, of_model)] if text else []
    return dataclasses.replace(judged, unchecked=text, firsts=first)


def _name(run: Trained, data: str, split: str, *, is_own: bool) -> str:
    """Return the name of the files: with a number, if the evaluation of another dataset has it already."""
    text = split if is_own else f"{run.plan.spec.dataset.title} {split}"
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


def _outputs(reading: Pass, model: Any) -> _Outputs:
    test = tester(model, reading.inputs_spec, reading.targets_spec)
    predictions, targets, numbers, losses = [], [], [], list[tuple[float, int]]()
    for batch in reading.batches(_SKIP_WITH):
        found, loss = test(batch.inputs, batch.targets)
        predictions.append(found)
        targets.append(batch.targets)
        numbers.append(batch.numbers)
        losses.append((loss, len(batch.numbers)))
    if not numbers:
        raise WorldError(
            where=reading.split.name,
            found="no example that can be read",
            expected="at least one",
            remedy="repair the data, or choose another split",
        )
    return _Outputs(
        predictions=np.concatenate(predictions),
        targets=np.concatenate(targets),
        numbers=np.concatenate(numbers),
        loss=sum(loss * size for loss, size in losses) / sum(size for _, size in losses),
    )


def _of_classes(result: Evaluation, found: _Outputs, names: Sequence[str], reading: Pass) -> Evaluation:
    """Return the evaluation with the figures of classes, and the worst mistakes."""
    flow = reading.source.dataset.examples
    predicted, confidence = found.predictions.argmax(axis=1), found.predictions.max(axis=1).astype(np.float64)
    is_right = predicted == found.targets
    counts = scores.confusion(found.targets, predicted, len(names))
    losses = scores.crossentropies(found.predictions, found.targets)
    bins, error = scores.calibration(confidence, is_right)
    worst = [place for place in np.argsort(-losses, kind="stable") if not is_right[place]][:_WORST]
    mistakes = [
        _mistake(reading, found, place, losses, (names[found.targets[place]], names[predicted[place]]), confidence)
        for place in worst
    ]
    return dataclasses.replace(
        result,
        auc=scores.auc(found.predictions[:, 1], found.targets) if flow.features[flow.target].is_binary else None,
        accuracy=scores.wilson(int(is_right.sum()), len(is_right)),
        classes=scores.of_classes(counts, names),
        confusion=counts.tolist(),
        calibration=bins,
        calibration_error=error,
        mistakes=mistakes,
    )


def _of_numbers(result: Evaluation, found: _Outputs, reading: Pass) -> Evaluation:
    """Return the evaluation with the errors of a target that is no class, and the worst examples."""
    wanted = found.targets.reshape(len(found.targets), -1).astype(np.float64)
    errors = found.predictions.reshape(wanted.shape).astype(np.float64) - wanted
    each, figures = (errors**2).mean(axis=1), scores.of_numbers(wanted, errors)
    mistakes = [
        _mistake(reading, found, place, each, (_shown(wanted[place]), _shown(wanted[place] + errors[place])))
        for place in np.argsort(-each, kind="stable")[:_WORST]
    ]
    return dataclasses.replace(
        result,
        method=f"95 % intervals: percentiles of {scores.resamples(len(each)):,} bootstrap samples of the examples",
        mae=figures["mae"],
        rmse=figures["rmse"],
        r2=figures["r2"],
        squared_error=float(each.mean()),
        absolute_error=float(np.abs(errors).mean()),
        mistakes=mistakes,
    )


def _mistake(
    reading: Pass,
    found: _Outputs,
    place: int,
    losses: scores.Floats,
    names: tuple[str, str],
    confidence: scores.Floats | None = None,
) -> Mistake:
    """Return the mistake at a place of these outputs, whose target and prediction have `names`."""
    number = int(found.numbers[place])
    return Mistake(
        place=reading.place(number),
        target=names[0],
        predicted=names[1],
        probability=None if confidence is None else float(confidence[place]),
        loss=float(losses[place]),
        image=reading.image(number),
    )


def _shown(values: npt.NDArray[Any]) -> str:
    return np.array2string(values, precision=4, threshold=8, separator=", ").strip("[]")


def written(run: Trained, evaluation: Evaluation, page: str) -> tuple[Path, Path]:
    """Write the evaluation and its page into the folder of the run; return their paths."""
    folder, name = run.folder / EVALUATIONS, evaluation.name
    try:
        folder.mkdir(exist_ok=True)
        paths = folder / f"{name}.json", folder / f"{name}.html"
        write_atomically(paths[0], evaluation.as_json())
        write_atomically(paths[1], page)
    except OSError as error:
        raise records.unwritable(folder, error) from error
    return paths
