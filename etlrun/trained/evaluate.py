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

from etlrun.record import record as records
from etlrun.record.findings import finite
from etlrun.record.page import EVALUATIONS
from etlrun.system.errors import WorldError
from etlrun.system.files import write_atomically
from etlrun.trained import ranking
from etlrun.trained.figures import Figures, Outputs, of_classes, of_numbers
from etlrun.trained.importance import Importance, importance
from etlrun.trained.load import Trained
from etlrun.trained.model import class_names, outputs_of, require_finite, same_classes, tester
from etlrun.trained.numbered import Lost, Pass, opened
from etlrun.trained.order import First, data_of, firsts, is_of_run, unchecked

_SKIP_WITH = "set dataset.on_corrupt=skip to skip and list such records"
_LONGEST_NAME = 100
_OF_ROWS = ("mae", "rmse", "r2", "auc")
"""Metrics of numbers and of two classes that an evaluation has, too."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command asks of an evaluation.

    Attributes:
        threshold: Probability above which the second of two classes is predicted; None for 0.5.
        repeats: Permutations of each column for its importance; None for as many as cost little.
    """

    threshold: float | None = None
    repeats: int | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation(Figures):
    """Result of an evaluation.

    Attributes:
        name: Name of its files: the split, after the dataset if that is another one than the run's.
        run: Folder of the run.
        dataset: Name of the dataset. `split` is the part of it that was evaluated.
        overrides: Overrides of the evaluation.
        examples: Examples that were evaluated.
        skipped: Examples that could not be used.
        loss: The loss of the training, as Keras computes it: the mean over all examples.
        then: Loss, accuracy and figures of numbers of the run's last validation, if it read this split.
        importance: How much worse predictions get without what a column tells; None if it is left out.
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
    importance: Importance | None = None
    unchecked: str = ""
    firsts: list[First] = field(default_factory=list)

    def as_json(self) -> str:
        """Return it as JSON, without what is for the page alone."""
        plain = dataclasses.asdict(self)
        del plain["points"]
        for each in (*plain["mistakes"], *plain["firsts"]):
            del each["image"]
        figures = [name for name in plain if name in Figures.__dataclass_fields__]
        last = [*figures, "importance", "unchecked", "firsts"]
        ordered = {name: plain[name] for name in (*(name for name in plain if name not in last), *last)}
        return json.dumps(finite(ordered), indent=1) + "\n"


def evaluate(run: Trained, model: Any, overrides: Sequence[str], asked: Asked = Asked()) -> Evaluation:
    """Return the evaluation of a run's model on the split of its plan.

    Raises:
        EtlrunError: Data is missing or corrupt, the dataset has other classes, or predictions are not finite.
    """
    source, split = opened(run.plan, run.split_key)
    outputs = outputs_of(model)
    same_classes(run, source, outputs)
    reading = Pass(run.plan, source, split)
    found, loss = _outputs(reading, model)
    require_finite(run, found.predictions, lambda row: reading.place(int(found.numbers[row])))
    is_own, data = is_of_run(run, source), data_of(run.plan.spec.dataset, source)
    result = Evaluation(
        name=_name(run, data, split.name, is_own=is_own),
        run=str(run.folder),
        dataset=data,
        split=split.name,
        overrides=list(overrides),
        examples=len(found.numbers),
        skipped=[*reading.lost()],
        loss=loss,
        then=_last(run) if is_own and split.name == run.then.spec.dataset.eval_split else {},
    )
    names = source.class_names or class_names(run, outputs)
    threshold = (asked.threshold or ranking.HALF) if is_binary(run) else None
    figures = of_classes(found, names, reading, threshold) if names else of_numbers(found, reading)
    text = unchecked(run, source)
    of_model = run.class_names or names or ()
    first = [*firsts(reading, found.targets, found.numbers, of_model)] if text else []
    of_columns = importance(run.plan, model, source, split, asked.repeats)
    return dataclasses.replace(result, **figures, importance=of_columns, unchecked=text, firsts=first)


def is_binary(run: Trained) -> bool:
    """Return whether the model of a run gives the probability of the second of two classes."""
    flow = run.then.spec.dataset.examples
    return flow.features[flow.target].is_binary


def _last(run: Trained) -> dict[str, float | None]:
    """Return the loss, the accuracy, and the figures of numbers and of two classes of the last validation."""
    if not run.summary.epochs:
        return {}
    last = run.summary.epochs[-1]
    others = [name for name in _OF_ROWS if f"val_{name}" in last.metrics]
    return {name: last.measure(f"val_{name}") for name in ("loss", "accuracy", *others)}


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


def _outputs(reading: Pass, model: Any) -> tuple[Outputs, float]:
    """Return the outputs of a pass, and the loss."""
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
    found, of_target, known = (np.concatenate(of) for of in (predictions, targets, numbers))
    loss = sum(loss * size for loss, size in losses) / sum(size for _, size in losses)
    return Outputs(predictions=found, targets=of_target, numbers=known), loss


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
