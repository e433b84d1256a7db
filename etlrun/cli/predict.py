"""`etlrun predict`: predictions of a run's model for images, the rows of tables or arrays, or a split."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from etlrun.cli import parsers
from etlrun.remote.names import named_by_url
from etlrun.stages.dataset import Dataset
from etlrun.stages.paths import is_remote, with_secrets
from etlrun.stages.rows import Rows
from etlrun.system.errors import ConfigError, EtlrunError, Fault, fault, printable
from etlrun.system.files import refuse_unwritable, replacing
from etlrun.system.loading import load_tensorflow
from etlrun.system.terminal import say_note
from etlrun.trained.outputs import NEW_FILE, OUTPUT, faults_of, placed

if TYPE_CHECKING:
    from etlrun.trained.load import Trained
    from etlrun.trained.numbered import Lost
    from etlrun.trained.paths import Found

_NAMED = 5
_OF_FILES = (f"{Dataset.path}.errors=", f"{Dataset.path}.storage=")
"""Starts of the overrides of a dataset that hold for files that are named, too."""


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
    run, images, tables = _checked(known)
    if known.output is not None and not is_remote(known.output):
        refuse_unwritable(Path(known.output).parent, OUTPUT)
    from etlrun.trained.model import ready  # starts TensorFlow, so only after all arguments have been checked

    for text in _notes(images):
        say_note(text)
    rows = None
    if tables:
        load_tensorflow()
        from etlrun.trained.tables import opened

        rows = opened(run, tables)
    with ready(run) as model:
        from etlrun.system.progress import progress
        from etlrun.trained.predict import heads, of_files, of_split, predict
        from etlrun.trained.rows import FORMATS

        reading = rows or (of_files(run, images.files, images.no_files) if images else of_split(run, model))
        with _opened(known.output) as file, progress() as begin:
            writer = FORMATS[known.format](file, heads(run, model, known.top), reading.header)
            lost = predict(run, reading, model, writer, begin("predicted", reading.split.num_examples))
            writer.close()
    _say_lost(lost, reading.split.num_examples)


def _notes(images: Found | None) -> Iterator[str]:
    """Yield what is left out of the images."""
    ignored, again = (images.ignored, images.again) if images else ((), 0)
    if ignored:
        named = ", ".join(printable(path) for path in ignored[:_NAMED]) + (", …" if ignored[_NAMED:] else "")
        count = "1 file" if len(ignored) == 1 else f"{len(ignored):,} files"
        verb = "is" if len(ignored) == 1 else "are"
        yield f"{count} without the suffix of an image {verb} left out: {named}."
    if again:
        yield f"{'1 path is' if again == 1 else f'{again:,} paths are'} named again, and predicted once."


def _checked(known: argparse.Namespace) -> tuple[Trained, Found | None, list[str]]:
    """Return the run, and the images or the tables if paths are given; `EtlrunError` with all faults."""
    from etlrun.trained.load import trained
    from etlrun.trained.paths import found, is_override

    paths = [word for word in known.given if not is_override(word)]
    words = [word for word in known.given if is_override(word)]
    if told := [*with_secrets(paths)]:
        raise ConfigError([fault("PATH", *of) for of in told])
    faults, run, images = list(_faults(known, paths, words)), None, None
    is_config = True
    try:
        words = [f"dataset.on_corrupt={known.on_corrupt}", *words]
        run = trained(known.run, words, reads_split=not paths)
    except EtlrunError as error:
        faults += error.faults
        is_config = isinstance(error, ConfigError)
    takes_rows = run is not None and isinstance(run.then.spec.dataset, Rows)
    try:
        are_images = bool(paths) and not takes_rows and (run is not None or not any(map(_is_table, paths)))
        images = found(paths, run.storage if run else {}, skips=known.on_corrupt == "skip") if are_images else None
    except EtlrunError as error:
        faults += error.faults
        is_config = False
    if takes_rows and paths:
        faults += _unfit_for_rows(known)
    elif run is not None and paths:
        faults += _unfit_for_files(run)
    if faults or run is None:
        raise ConfigError(faults) if is_config else EtlrunError(faults)
    return run, images, paths if takes_rows else []


def _is_table(path: str) -> bool:
    from etlrun.sources.rows.table import has_format  # imports Arrow

    return has_format(path)


def _faults(known: argparse.Namespace, paths: Sequence[str], words: Sequence[str]) -> Iterator[Fault]:
    of_dataset = [word for word in words if word.startswith(Dataset.path) and not word.startswith(_OF_FILES)]
    if not paths and not of_dataset:
        found, expected = "no images to predict", "image files, folders of them, or dataset.split=SPLIT"
        yield Fault(where="PATH", found=found, expected=expected, remedy="name some")
    if paths and of_dataset:
        found, remedy = f"{paths[0]}, and {of_dataset[0]}", "leave one out"
        yield Fault(where="PATH", found=found, expected="either paths or a dataset", remedy=remedy)
    if known.top is not None and known.top < 1:
        yield Fault(where="--top", found=str(known.top), expected="a positive integer")
    if known.format == "parquet" and known.output is None:
        found, expected = "parquet on the standard output", "a file, since Parquet is no text"
        yield Fault(where="--format", found=found, expected=expected, remedy="add --output FILE.parquet")
    if known.output is not None:
        yield from faults_of(known.output, NEW_FILE)


def _unfit_for_files(run: Trained) -> Iterator[Fault]:
    if not run.takes_images:
        flow = run.then.spec.dataset.examples
        expected = "a model of a single image, or dataset.split=SPLIT"
        yield Fault(where="PATH", found=f"images for a model of {', '.join(flow.inputs)}", expected=expected)


def _unfit_for_rows(known: argparse.Namespace) -> Iterator[Fault]:
    if known.on_corrupt == "skip":
        expected, remedy = "raise with tables, all of whose rows are predicted", "leave it out"
        yield Fault(where="--on-corrupt", found="skip", expected=expected, remedy=remedy)


@contextmanager
def _opened(output: str | None) -> Iterator[TextIO]:
    """Open the file to write, which appears when it is complete; paths of files may be no Unicode."""
    if output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        yield sys.stdout
        return
    with placed(output) as path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            replacing(path) as temporary,
            temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
        ):
            yield file


def _say_lost(lost: Sequence[Lost], examples: int) -> None:
    """List the examples that could not be read on standard error; status 1 if none is left."""
    for of in lost:
        print(f"skipped   {of.place}: {of.reason}", file=sys.stderr)
    if lost:
        print(f"etlrun: {len(lost):,} of {examples:,} skipped", file=sys.stderr)
    if len(lost) == examples:
        raise SystemExit(EtlrunError.status)
