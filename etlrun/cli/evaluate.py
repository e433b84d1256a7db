"""`etlrun evaluate`: evaluation of a run's model on a split."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli import parsers
from etlrun.system.errors import ConfigError
from etlrun.system.files import refuse_unwritable
from etlrun.system.terminal import number, print_table, say, say_whole, significant

if TYPE_CHECKING:
    from etlrun.trained.evaluate import Evaluation
    from etlrun.trained.figures import Figures, Mistake
    from etlrun.trained.importance import Importance
    from etlrun.trained.scores import Share

_CLASSES = ("examples", "predicted", "precision", "recall", "F1")
_FIRSTS = ("class", "first example of the data")
_MISTAKES = ("loss", "class", "predicted", "probability", "place", "columns")
_ERRORS = ("squared error", "value", "predicted", "probability", "place", "columns")
_OF_NUMBERS = (("MAE", "mae"), ("RMSE", "rmse"), ("R2", "r2"), ("MedAE", "median_absolute_error"))
Then = Mapping[str, float | None]
_IMPORTANCE = ("column", "importance")
_MOST_CLASSES, _MOST_MISTAKES, _MOST_COLUMNS, _LONGEST_COLUMNS, _LONGEST_PROSE = 20, 5, 20, 60, 160
"""Rows, and characters of the inputs of one, or of its text of many words; the page and the JSON have more."""


def main(arguments: Sequence[str]) -> None:
    """Evaluate a run, print the result, and write it into the folder of the run.

    Raises:
        EtlrunError: The run, an override, the data or the model is unfit, or the folder can't be written to.
    """
    known = parser().parse_intermixed_args(arguments)
    from etlrun.trained.load import trained
    from etlrun.trained.options import unfit_options

    run = trained(known.run, known.overrides, epoch=known.epoch)
    if faults := [*unfit_options(run, known.threshold, known.importance)]:
        raise ConfigError(faults)
    refuse_unwritable(known.run, "RUN")
    from etlrun.trained.model import ready  # starts TensorFlow, so only after the run has been checked

    with ready(run) as model:
        from etlrun.trained.evaluate import evaluate
        from etlrun.trained.importance import how_to_ask
        from etlrun.trained.page import recorded

        evaluation = evaluate(run, model, known.overrides, known.threshold, known.importance)
        paths = recorded(run, evaluation, shlex.join(["etlrun", "evaluate", *arguments]))
        hint = "" if known.importance == 0 else how_to_ask(run.plan, evaluation.examples)
    if known.format == "json":
        say_whole(evaluation.as_json())
    else:
        _print(evaluation, paths, hint)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "evaluate",
        "Evaluate the model of a run with the run's validation pipeline: loss, accuracy, confusions, "
        "precision, recall, F1 and calibration, or the errors of numbers, and the worst mistakes. Writes "
        "RUN/evaluations/NAME.json and .html.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a completed run")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="dataset.split=SPLIT for another split than the run's validation; data and speed may differ",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="probability above which the second of two classes is predicted; default: 0.5",
    )
    parser.add_argument(
        "--importance",
        type=int,
        metavar="N",
        help="permute each column N times in all examples, to see what it is worth; 0 leaves this out; "
        "default: 5 times, in as many rows as cost little",
    )
    parsers.add_epoch(parser)
    parsers.add_format(parser)
    return parser


def _print(of: Evaluation, paths: Sequence[Path], hint: str) -> None:
    skipped = f", {len(of.skipped)} skipped" if of.skipped else ""
    epoch = f", by the model of epoch {of.epoch}" if of.epoch else ""
    say(f"data      {of.dataset} {of.split}, {of.examples:,} examples{skipped}{epoch}")
    shown = _four if of.accuracy is not None else significant
    say(f"loss      {shown(of.loss)}{_then(of.then, 'loss', shown)}")
    for name, figures in (of.targets or {"": of}).items():
        if name:
            say(f"target    {name}")
        _print_figures(figures, {key.removeprefix(f"{name}_"): then for key, then in of.then.items()})
        if of.unchecked:
            say(f"order     {of.unchecked}")
            print_table(_FIRSTS, [(each.name, each.place) for each in of.firsts[:_MOST_CLASSES]])
        _print_details(figures)
    if hint and not any(figures.importance for figures in (of, *of.targets.values())):
        say(f"columns   {hint}")
    for lost in of.skipped[:_MOST_MISTAKES]:
        say(f"skipped   {lost.place}: {lost.reason}")
    for label, path in zip(("results", "page"), paths, strict=True):
        say(f"{label:<9} {path}")


def _print_figures(of: Figures, then: Then) -> None:
    """Print the figures of a target; `then` are those that the run had with it."""
    if of.subset_accuracy is not None:
        say(f"accuracy  {_share(of.accuracy)}{_then(then, 'accuracy')}, the mean over the labels")
        say(f"subset    {_share(of.subset_accuracy)}, the examples of which all labels are right")
        say(f"mAP       {_share(of.mean_average_precision)}, the mean average precision")
    elif of.accuracy is not None:
        say(f"accuracy  {_share(of.accuracy)}{_then(then, 'accuracy')}")
        if of.thresholds:
            _print_of_two(of)
        say(f"ECE       {number(of.expected_calibration_error, 4)}, the expected calibration error")
    else:
        for label, key in _OF_NUMBERS:
            name = ", the median absolute error" if label == "MedAE" else ""
            say(f"{label:<9} {_share(getattr(of, key), significant)}{_then(then, key, significant)}{name}")
        say(f"MSE       {significant(of.mean_squared_error)}, the mean squared error")
    say(f"method    {of.method}")


def _print_details(of: Figures) -> None:
    """Print the classes or labels of a target, its worst mistakes, and what columns are worth for it."""
    rows = [
        (each.name, f"{each.examples:,}", f"{each.predicted:,}", *map(_share, (each.precision, each.recall, each.f1)))
        for each in sorted(of.classes, key=lambda each: each.f1.value or 0.0)[:_MOST_CLASSES]
    ]
    print_table(("class" if of.subset_accuracy is None else "label", *_CLASSES), rows)
    if of.confusion and len(of.classes) <= _MOST_CLASSES:
        names = [each.name for each in of.classes]
        matrix = [(name, *map(str, row)) for name, row in zip(names, of.confusion, strict=True)]
        print_table(("class / predicted", *names), matrix)
    _print_mistakes(of.mistakes, is_class=of.accuracy is not None)
    if of.importance is not None:
        _print_importance(of.importance)


def _print_mistakes(mistakes: Sequence[Mistake], *, is_class: bool) -> None:
    from etlrun.trained.figures import prose_of  # starts TensorFlow

    rows = [
        (
            number(each.loss, 3) if is_class else significant(each.loss),
            each.target,
            each.predicted,
            "" if each.probability is None else number(each.probability, 3),
            each.place,
            _columns(each, prose_of(each.columns)),
        )
        for each in mistakes[:_MOST_MISTAKES]
    ]
    print_table(_MISTAKES if is_class else _ERRORS, rows)
    for row, each in zip(rows, mistakes, strict=False):
        if text := prose_of(each.columns):
            say(f"{'text':<9} {row[0]}  {_cut(text, _LONGEST_PROSE)}")


def _print_of_two(of: Figures) -> None:
    """Print the figures of the second of two classes by its probability."""
    second = of.classes[1].name
    say(f"AUC       {_share(of.auc)}, by the probability of {second}")
    say(f"AP        {_share(of.average_precision)}, the average precision of {second}")
    for each, what in zip(of.thresholds, ("", ", the largest of these examples"), strict=False):
        say(f"threshold {significant(each.threshold)}: F1 of {second} {_share(each.f1)}{what}")


def _print_importance(of: Importance) -> None:
    """Print how much worse the measure gets without what each column tells."""
    worse = "the mean absolute error grows" if of.measure == "mae" else "the accuracy falls"
    sample = f"{of.examples:,} examples, {of.predictions:,} predictions"
    say(f"columns   how much {worse} while a column is permuted: mean of {of.repeats} times and its interval; {sample}")
    shown = of.columns[:_MOST_COLUMNS]
    print_table(_IMPORTANCE, [(each.name, _share(each.importance, significant)) for each in shown])
    if len(shown) < len(of.columns):
        say(f"          and {len(of.columns) - len(shown):,} more")


def _columns(of: Mistake, prose: str) -> str:
    """Return the inputs of a mistake in a line, without the text that has a line of its own."""
    shown = (f"{name}={_value(value)}" for name, value in of.columns.items() if not prose or value != prose)
    return _cut(", ".join(shown), _LONGEST_COLUMNS)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"


def _value(value: object) -> str:
    return significant(value) if isinstance(value, float) else "" if value is None else str(value)


def _four(value: float) -> str:
    return f"{value:.4f}"


def _share(of: Share | None, shown: Callable[[float], str] = _four) -> str:
    if of is None or of.value is None:
        return "-"
    if of.low is None or of.high is None:
        return shown(of.value)
    return f"{shown(of.value)} ({shown(of.low)} to {shown(of.high)})"


def _then(then: Then, key: str, shown: Callable[[float], str] = _four) -> str:
    value = then.get(key)
    return "" if value is None else f", {shown(value)} in the run"
