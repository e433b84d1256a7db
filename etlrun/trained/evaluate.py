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

from etlrun.record.report import EVALUATIONS
from etlrun.stages.flow import Feature, Flow
from etlrun.system.errors import WorldError
from etlrun.trained import ranking, scores
from etlrun.trained.figures import WEIGHTED, Figures, Outputs, of_classes, of_labels, of_numbers
from etlrun.trained.importance import Importance, importance
from etlrun.trained.load import Trained
from etlrun.trained.model import by_target, names_of, outputs_of, require_finite, same_classes, tester
from etlrun.trained.numbered import Lost, Pass, opened
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
    flow, threshold, outputs = run.flow, threshold or ranking.HALF, outputs_of(model, run.flow)
    source, split = opened(run.plan, run.split_key)
    same_classes(run, source, outputs)
    reading = Pass(run.plan, source, split)
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
        then=_last(run, flow) if is_own and split.name == run.then.spec.dataset.eval_split else {},
        targets=figures if len(figures) > 1 else {},
        unchecked=text,
        firsts=[*firsts(reading, first.targets, first.numbers, classes)] if text else [],
        **(vars(figures[flow.target]) if len(figures) == 1 else {}),
    )


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
            where=reading.split.name,
            found="no example that can be read",
            expected="at least one",
            remedy="repair the data, or choose another split",
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
