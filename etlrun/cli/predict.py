"""`etlrun predict`: predictions of a run's model for images, the rows of tables or arrays, or a split."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, TextIO, cast

from etlrun.cli import parsers
from etlrun.remote.copies import named_by_url
from etlrun.stages.paths import is_remote
from etlrun.system.errors import EtlrunError, Fault
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.terminal import say_note, say_whole
from etlrun.trained.files import NEW_FILE, OUTPUT, faults_of, placed

if TYPE_CHECKING:
    from etlrun.trained.predict import Lost


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    says = "Predict images, or rows of tables or arrays, with a run's model and validation pipeline."
    parser = parsers.of_command("predict", says)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a completed run")
    parser.add_argument(
        "given",
        nargs="*",
        metavar="PATH|OVERRIDE",
        help="image files and their folders; tables, or arrays of NumPy; URLs of such files; or dataset.split=SPLIT "
        "for those of a dataset",
    )
    parser.add_argument(
        "--format",
        choices=["csv", "jsonl", "parquet"],
        default="csv",
        help="CSV (default), JSON lines, or Parquet, which --output is for",
    )
    parser.add_argument(
        OUTPUT, metavar="FILE", help="new file to write, or a URL of S3 or GCS; default: standard output"
    )
    parsers.add_epoch(parser)
    parser.add_argument("--top", type=int, metavar="K", help="only the K likeliest classes; default: all")
    parser.add_argument(
        "--on-corrupt",
        choices=["raise", "skip"],
        default="raise",
        help="end at the first image that can't be used (default), or list all of them on standard error",
    )
    return parser


@named_by_url()
def main(arguments: Sequence[str]) -> None:
    """Predict images, the rows of tables or arrays, or examples of a split, and write a row for each.

    Raises:
        EtlrunError: The run, a path, an override, an image or the model is unfit.
    """
    known = parser().parse_intermixed_args(arguments)
    from etlrun.trained.files import inputs_of

    inputs = inputs_of(known.run, known.given, known.on_corrupt, [*_faults(known)], known.epoch)
    if known.output is not None and not is_remote(known.output):
        refuse_unwritable(Path(known.output).parent, OUTPUT)
    from etlrun.trained.model import ready  # starts TensorFlow, so only after all arguments have been checked

    for text in inputs.notes():
        say_note(text)
    rows, run = inputs.opened(), inputs.run
    with ready(run) as model:
        from etlrun.system.progress import progress
        from etlrun.trained.predict import heads, predict
        from etlrun.trained.rows import FORMATS

        reading = rows or inputs.reading(model)
        with _opened(known.output) as file, progress() as begin:
            writer = FORMATS[known.format](file, heads(run, model, known.top), reading.header)
            lost = predict(run, reading, model, writer, begin("predicted", reading.split.num_examples))
            writer.close()
    _say_lost(lost, reading.split.num_examples)


def _faults(known: argparse.Namespace) -> Iterator[Fault]:
    if known.top is not None and known.top < 1:
        yield Fault(where="--top", found=str(known.top), expected="a positive integer")
    if known.format == "parquet" and known.output is None:
        found, expected = "parquet on the standard output", "a file, since Parquet is no text"
        yield Fault(where="--format", found=found, expected=expected, remedy="add --output FILE.parquet")
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
    with placed(output) as path, appearing(path, OUTPUT, errors="surrogateescape") as file:
        yield file


def _say_lost(lost: Sequence[Lost], examples: int) -> None:
    """List the examples that could not be read on standard error; status 1 if none is left."""
    for of in lost:
        print(f"skipped   {of.place}: {of.reason}", file=sys.stderr)
    if lost:
        print(f"etlrun: {len(lost):,} of {examples:,} skipped", file=sys.stderr)
    if len(lost) == examples:
        raise SystemExit(EtlrunError.status)
