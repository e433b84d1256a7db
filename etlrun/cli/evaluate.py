"""`etlrun evaluate`: evaluation of a run's model on a split."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from etlrun.cli import parsers
from etlrun.report.doc import Lines
from etlrun.report.render import RENDER, show
from etlrun.system.errors import ConfigError
from etlrun.system.files import refuse_unwritable
from etlrun.system.terminal import say_whole


def main(arguments: Sequence[str]) -> None:
    """Evaluate a run, print the result, and write it into the folder of the run.

    Raises:
        EtlrunError: The run, an override, the data or the model is unfit, or the folder can't be written to.
    """
    known = parser().parse_intermixed_args(arguments)
    from etlrun.trained.load import trained, unfit_options

    run = trained(known.run, known.overrides, epoch=known.epoch)
    if faults := [*unfit_options(run, known.threshold, known.importance)]:
        raise ConfigError(faults)
    refuse_unwritable(known.run, "RUN")
    from etlrun.trained.model import ready  # starts TensorFlow, so only after the run has been checked

    with ready(run) as model:
        from etlrun.trained.documents import document, recorded
        from etlrun.trained.evaluate import evaluate
        from etlrun.trained.importance import how_to_ask

        evaluation = evaluate(run, model, known.overrides, known.threshold, known.importance)
        doc = document(evaluation, shlex.join(["etlrun", "evaluate", *arguments]))
        paths = recorded(run, evaluation, doc)
        is_asked = known.importance == 0 or evaluation.importance is not None
        hint = "" if is_asked else how_to_ask(run.plan, evaluation.examples)
    if known.format == "json":
        say_whole(RENDER["json"](doc))
    else:
        written = zip(("results", "page"), map(str, paths), strict=True)
        show(replace(doc, parts=[*doc.parts, Lines([("columns", hint), *written])]))


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
