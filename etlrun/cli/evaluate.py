"""`etlrun evaluate`: evaluation of a run's model on a split."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.record import page
from etlrun.system.files import refuse_unwritable
from etlrun.system.terminal import number, print_table

if TYPE_CHECKING:
    from etlrun.trained.evaluate import Evaluation
    from etlrun.trained.scores import Share

_CLASSES = ("class", "examples", "predicted", "precision", "recall", "F1")
_FIRSTS = ("class", "first example of the data")
_MISTAKES = ("loss", "class", "predicted", "probability", "place")
_ERRORS = ("squared error", "value", "predicted", "place")
_MOST_CLASSES, _MOST_MISTAKES = 20, 5
"""Rows in the text; the page and the JSON have all."""


def main(arguments: Sequence[str]) -> None:
    """Evaluate a run, print the result, and write it into the folder of the run.

    Raises:
        EtlrunError: The run, an override, the data or the model is unfit, or the folder can't be written to.
    """
    parser = argparse.ArgumentParser(
        prog="etlrun evaluate",
        description="Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, "
        "precision, recall, F1, calibration and the worst mistakes. Writes RUN/evaluations/NAME.json and .html.",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a completed run")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="dataset.split=SPLIT for another split than the run's validation; data and speed may differ",
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    known = parser.parse_intermixed_args(arguments)
    from etlrun.trained.load import trained

    run = trained(known.run, known.overrides)
    refuse_unwritable(known.run, "RUN")
    from etlrun.trained.model import ready  # starts TensorFlow, so only after the run has been checked

    with ready(run) as model:
        from etlrun.trained.evaluate import evaluate, written
        from etlrun.trained.page import html

        evaluation = evaluate(run, model, known.overrides)
        paths = written(run, evaluation, html(evaluation, shlex.join(["etlrun", "evaluate", *arguments])))
        page.write(run.folder)  # which links to that of the evaluation
    if known.format == "json":
        print(evaluation.as_json(), end="")
    else:
        _print(evaluation, paths)


def _print(of: Evaluation, paths: Sequence[Path]) -> None:
    skipped = f", {len(of.skipped)} skipped" if of.skipped else ""
    print(f"data      {of.dataset} {of.split}, {of.examples:,} examples{skipped}")
    print(f"loss      {of.loss:.4f}{_then(of, 'loss')}")
    if of.accuracy is not None:
        print(f"accuracy  {_share(of.accuracy)}{_then(of, 'accuracy')}")
        if of.auc is not None:
            print(f"AUC       {_share(of.auc)}, by the probability of {of.classes[1].name}")
        print(f"error     {number(of.calibration_error, 4)}, the expected calibration error")
    else:
        print(f"errors    mean squared {number(of.squared_error, 4)}, mean absolute {number(of.absolute_error, 4)}")
        for label, share in (("MAE", of.mae), ("RMSE", of.rmse), ("R2", of.r2)):
            print(f"{label:<9} {_share(share)}")
    print(f"method    {of.method}")
    if of.unchecked:
        print(f"order     {of.unchecked}")
        print_table(_FIRSTS, [(each.name, each.place) for each in of.firsts[:_MOST_CLASSES]])
    rows = [
        (each.name, f"{each.examples:,}", f"{each.predicted:,}", *map(_share, (each.precision, each.recall, each.f1)))
        for each in sorted(of.classes, key=lambda each: each.f1.value or 0.0)[:_MOST_CLASSES]
    ]
    print_table(_CLASSES, rows)
    if 0 < len(of.classes) <= _MOST_CLASSES:
        names = [each.name for each in of.classes]
        matrix = [(name, *map(str, row)) for name, row in zip(names, of.confusion, strict=True)]
        print_table(("class / predicted", *names), matrix)
    is_class = of.accuracy is not None
    mistakes = [
        (number(each.loss, 3), each.target, each.predicted, *[number(each.probability, 3)] * is_class, each.place)
        for each in of.mistakes[:_MOST_MISTAKES]
    ]
    print_table(_MISTAKES if is_class else _ERRORS, mistakes)
    for lost in of.skipped[:_MOST_MISTAKES]:
        print(f"skipped   {lost.place}: {lost.reason}")
    for label, path in zip(("results", "page"), paths, strict=True):
        print(f"{label:<9} {path}")


def _share(of: Share | None) -> str:
    if of is None or of.value is None:
        return "-"
    if of.low is None or of.high is None:
        return f"{of.value:.4f}"
    return f"{of.value:.4f} ({of.low:.4f} to {of.high:.4f})"


def _then(of: Evaluation, key: str) -> str:
    value = of.then.get(key)
    return "" if value is None else f", {value:.4f} in the last epoch of the run"
