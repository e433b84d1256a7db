"""Commands on the model of a run: its evaluation, its predictions, and its export."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO, cast

from etlrun.cli.commands import Answer
from etlrun.record.record import EXPORTS
from etlrun.remote.copies import named_by_url
from etlrun.report.doc import Doc, Lines
from etlrun.system.errors import ConfigError, EtlrunError, Fault, refuse
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.loading import examples_told
from etlrun.system.terminal import say_whole
from etlrun.trained.files import NEW_FILE, NEW_FOLDER, OUTPUT, faults_of


def evaluate(known: Namespace) -> Answer:
    """Evaluate a run, and write the result into its folder, too; `EtlrunError` if the run or an option is unfit."""
    from etlrun.trained.load import trained, unfit_options

    run = trained(known.run, known.overrides, epoch=known.epoch)
    refuse(unfit_options(run, known.threshold, known.importance))
    refuse_unwritable(known.run, "RUN")
    from etlrun.trained.model import ready  # starts TensorFlow, so only after the run has been checked

    with ready(run) as model, examples_told():
        from etlrun.trained import evaluate as evaluations
        from etlrun.trained.documents import document, recorded

        evaluation = evaluations.evaluate(run, model, known.overrides, known.threshold, known.importance)
        doc = document(evaluation, shlex.join(["etlrun", "evaluate", *known.words]))
        paths = recorded(run, evaluation, doc)
    written = zip(("results", "page"), map(str, paths), strict=True)
    return Answer(replace(doc, parts=[*doc.parts, Lines([*written])]))


@named_by_url()
def predict(known: Namespace) -> Answer:
    """Predict images, rows or a split, and write a row for each; `EtlrunError` if the run or a path is unfit."""
    from etlrun.trained.files import inputs_of

    inputs = inputs_of(known.run, known.given, known.on_corrupt, [*_faults(known)], known.epoch)
    if known.output is not None:
        refuse_unwritable(Path(known.output).parent, OUTPUT)
    from etlrun.trained.model import ready  # starts TensorFlow, so only after all arguments have been checked

    run = inputs.run
    with ready(run) as model:
        from etlrun.trained import predict as predictions
        from etlrun.trained.rows import FORMATS

        reading = inputs.reading(model)
        heads, form = predictions.heads(run, model, known.top), FORMATS[known.format]
        with _opened(known.output) as file, form(file, heads, reading.header) as write, examples_told():
            lost = predictions.predict(run, reading, model, write)
    examples = reading.split.num_examples
    if lost:
        print(f"etlrun: {lost:,} of {examples:,} skipped", file=sys.stderr)
    return Answer(status=EtlrunError.status if lost == examples else 0)


def _faults(known: Namespace) -> Iterator[Fault]:
    if known.top is not None and known.top < 1:
        yield Fault("--top", str(known.top), "a positive integer")
    if known.format == "parquet" and known.output is None:
        expected = "a file, since Parquet is no text"
        yield Fault("--format", "parquet on the standard output", expected, "add --output FILE.parquet")
    if known.output is not None:
        yield from faults_of(known.output, NEW_FILE)


@contextmanager
def _opened(output: str | None) -> Iterator[TextIO]:
    """Open the file to write, which appears when it is complete; paths of files may be no Unicode."""
    if output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        yield cast("TextIO", SimpleNamespace(write=say_whole))
        return
    with appearing(Path(output), OUTPUT, errors="surrogateescape") as file:
        yield file


def export(known: Namespace) -> Answer:
    """Export the model of a run into a new folder; `EtlrunError` if it is unfit, or the export predicts otherwise."""
    from etlrun.trained import export as exports
    from etlrun.trained.documents import checked
    from etlrun.trained.formats import FORMATS, named, unfit
    from etlrun.trained.load import trained

    name, output = known.format, known.output or str(known.run / EXPORTS / known.format)
    faults, run, is_config = list(named(name)), None, name not in FORMATS
    try:
        run = trained(known.run, reads_split=False, epoch=known.epoch)
        faults += unfit(run, name) if name in FORMATS else ()
    except EtlrunError as error:
        faults += error.faults
        is_config = False
    if name in FORMATS:
        faults += faults_of(output, NEW_FOLDER)
    refuse(faults, ConfigError if is_config else EtlrunError)
    assert run is not None  # noqa: S101 - for mypy
    described = exports.export(run, name, Path(output))
    lines = [
        ("format", f"{name}: {exports.taken_by(run, name)} to predictions"),
        *checked(described),
        ("folder", output),
    ]
    return Answer(Doc(f"An export as {name}", [Lines(lines)], json=lambda: {"folder": output, **described}))
