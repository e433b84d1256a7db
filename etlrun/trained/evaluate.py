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

from etlrun.planning.plan import given_to_model
from etlrun.record import record as records
from etlrun.record.findings import finite
from etlrun.record.report import EVALUATIONS
from etlrun.sources.base import Source
from etlrun.stages.flow import Feature, Flow
from etlrun.system.errors import WorldError
from etlrun.system.files import write_atomically
from etlrun.trained import ranking, scores
from etlrun.trained.figures import WEIGHTED, Figures, Outputs, of_classes, of_labels, of_numbers
from etlrun.trained.importance import Importance, importance
from etlrun.trained.load import Trained
from etlrun.trained.model import class_names, outputs_of, require_finite, same_classes, tester
from etlrun.trained.numbered import Batch, Lost, Pass, opened
from etlrun.trained.order import First, data_of, firsts, is_of_run, unchecked

_SKIP_WITH = "set dataset.on_corrupt=skip to skip and list such records"
_LONGEST_NAME = 100
_OF_ROWS = ("mae", "rmse", "r2", "auc")
"""Metrics of numbers and of two classes that an evaluation has, too."""


@dataclass(frozen=True, kw_only=True)
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

    def as_json(self) -> str:
        """Return it as JSON, without what is for the page alone."""
        plain = dataclasses.asdict(self)
        for of in (plain, *plain["targets"].values()):
            del of["points"]
            for mistake in of["mistakes"]:
                del mistake["image"]
        for each in plain["firsts"]:
            del each["image"]
        last = [*(name for name in plain if name in Figures.__dataclass_fields__), "targets", "unchecked", "firsts"]
        ordered = {name: plain[name] for name in (*(name for name in plain if name not in last), *last)}
        return json.dumps(finite(ordered), indent=1) + "\n"


def evaluate(
    run: Trained, model: Any, overrides: Sequence[str], threshold: float | None = None, repeats: int | None = None
) -> Evaluation:
    """Return the evaluation of a run's model on the split of its plan.

    The second of two classes is predicted above the `threshold`, None for 0.5; `repeats` are permutations of each
    column for its importance, None for as many as cost little.

    Raises:
        EtlrunError: Data is missing or corrupt, the dataset has other classes, or predictions are not finite.
    """
    flow, threshold = given_to_model(run.plan.evaluation), threshold or ranking.HALF
    reading = _reading(run, model, flow)
    source, split = reading.source, reading.split
    found, loss = _outputs(reading, model, flow)
    for of in found.values():
        require_finite(run, of.predictions, lambda row, of=of: reading.place(int(of.numbers[row])))  # type: ignore[misc]
    is_own, data, first = is_of_run(run, source), data_of(run.plan.spec.dataset, source), found[flow.target]
    worth, text = importance(run.plan, model, source, split, repeats), unchecked(run, source)
    names = {name: _names(run, source, flow, name, of) for name, of in found.items()}
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
        then=_last(run, flow) if is_own and split.name == run.then.spec.dataset.eval_split else {},
        targets=figures if len(figures) > 1 else {},
        unchecked=text,
        firsts=[*firsts(reading, first.targets, first.numbers, classes)] if text else [],
        **(vars(figures[flow.target]) if len(figures) == 1 else {}),
    )


def _reading(run: Trained, model: Any, flow: Flow) -> Pass:
    """Return the pass over the split; raise `WorldError` if its classes are not those of the model."""
    source, split = opened(run.plan, run.split_key)
    if len(flow.targets) == 1 and not flow.features[flow.target].is_labels:
        same_classes(run, source, outputs_of(model))
    return Pass(run.plan, source, split)


def _names(run: Trained, source: Source, flow: Flow, name: str, found: Outputs) -> Sequence[str] | None:
    """Return the names of the classes or the labels of a target; None if it has none."""
    feature = flow.features[name]
    if feature.is_labels or len(flow.targets) > 1:
        return source.names_of(name) or feature.classes or None
    return source.class_names or class_names(run, found.predictions.shape[-1])


def _figures(
    found: Outputs,
    feature: Feature,
    names: Sequence[str] | None,
    reading: Pass,
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


def _last(run: Trained, flow: Flow) -> dict[str, float | None]:
    """Return the loss, the accuracy, and the figures of numbers and of two classes of the epoch's validation.

    Those of several targets have their names before them.
    """
    if run.epoch is None:
        return {}
    names: tuple[str, ...] = _OF_ROWS
    if len(flow.targets) > 1:
        names = tuple(f"{target}_{name}" for target in flow.targets for name in ("accuracy", *_OF_ROWS))
    others = [name for name in names if f"val_{name}" in run.epoch.metrics]
    return {name: run.epoch.measure(f"val_{name}") for name in ("loss", "accuracy", *others)}


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


def _outputs(reading: Pass, model: Any, flow: Flow) -> tuple[dict[str, Outputs], float]:
    """Return the outputs of a pass for each target by its name, and the loss."""
    test = tester(model, reading.inputs_spec, *reading.wanted_specs)
    found, batches, losses = list[dict[str, tuple[Any, Any]]](), list[Batch](), list[tuple[float, int]]()
    for batch in reading.batches(_SKIP_WITH):
        weight = () if batch.weights is None else (batch.weights,)
        predictions, loss, logits = test(batch.inputs, batch.targets, *weight)
        if not isinstance(predictions, dict):
            predictions, logits = {flow.target: predictions}, {flow.target: logits.get("")}
        found.append({name: _of_target(of, logits.get(name), flow.features[name]) for name, of in predictions.items()})
        losses.append((loss, len(batch.numbers)))
        batches.append(dataclasses.replace(batch, inputs=None))
    if not batches:
        raise WorldError(
            where=reading.split.name,
            found="no example that can be read",
            expected="at least one",
            remedy="repair the data, or choose another split",
        )
    numbers = np.concatenate([batch.numbers for batch in batches])
    weights = [batch.weights for batch in batches if batch.weights is not None]
    outputs = {}
    for name in flow.targets:
        targets = [batch.targets[name] if isinstance(batch.targets, dict) else batch.targets for batch in batches]
        predicted, logits = map(np.concatenate, zip(*(of[name] for of in found), strict=True))
        outputs[name] = Outputs(
            predictions=predicted,
            logits=logits,
            targets=np.concatenate(targets),
            numbers=numbers,
            weights=np.concatenate(weights).reshape(-1).astype(np.float64) if weights else None,
        )
    return outputs, sum(loss * size for loss, size in losses) / sum(size for _, size in losses)


def _of_target(predicted: Any, logits: Any, feature: Feature) -> tuple[Any, Any]:
    """Return the predictions of a batch with each class, also of two of which a model gives one, and their logits."""
    if feature.is_binary and predicted.shape[-1] == 1:
        predicted = np.concatenate([1 - predicted, predicted], axis=-1)
    if logits is None:
        is_class = feature.is_class or feature.is_labels
        return predicted, scores.logits_of(predicted, is_labels=feature.is_labels) if is_class else predicted
    if feature.is_binary and logits.shape[-1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=-1)
    return predicted, logits


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
