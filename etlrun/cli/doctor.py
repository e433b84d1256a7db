"""`etlrun doctor` and `etlrun stats`: examination of a dataset, and figures of its columns or its images."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from etlrun.cli import parsers
from etlrun.cli.doctor_device import of_device
from etlrun.config import grid
from etlrun.config.request import Request, requested
from etlrun.planning.plan import Plan
from etlrun.report.doc import Lines
from etlrun.report.html import pieces
from etlrun.report.render import as_json, show
from etlrun.stages import STAGES
from etlrun.stages.rows import Rows
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.machine import rounded
from etlrun.system.progress import progress
from etlrun.system.terminal import say, say_whole


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_config(
        "doctor",
        "Examine a dataset. Of images: broken, duplicate and nearly duplicate ones, classes, sizes, "
        "formats, and what caches would take. Of rows: what is missing, equal or far from all others, columns that "
        "give the target away, and splits that differ. Of a device: what a convolution, a product in mixed precision "
        "and a copy of a batch take. Nothing is written but the page.",
    )
    parsers.add_format(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="page with samples to write")
    parser.add_argument("--device", action="store_true", help="test the device and its driver, not the dataset")
    parser.add_argument("--all", action="store_true", help="all splits of the dataset, not only those of the config")
    says = "print versions, device, plan and last run as Markdown for an issue, without secrets"
    parser.add_argument("--report", action="store_true", help=says)
    parser.add_argument("--run", type=Path, metavar="RUN", help="folder of the run in the report; default: the last")
    return parser


def main(arguments: list[str]) -> None:
    """Run `etlrun doctor`; see `doctor` for what it raises."""
    known, request = requested(parser(), arguments)
    if known.report or known.run is not None:
        _report(known, request)
        return
    doctor(grid.resolve(request.resuming(), STAGES).plan, known, arguments)


def _report(known: argparse.Namespace, request: Request) -> None:
    """Print the report for an issue."""
    if not known.report:
        parser().error("--run is for --report")
    if known.device or known.all or known.html is not None or known.format != "text":
        parser().error("--report is Markdown, and has the device: leave out --device, --all, --html and --format")
    from etlrun.cli.doctor_report import report

    report(request, known.run)


def doctor(plan: Plan, known: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Print the diagnosis of the dataset of `plan`, and write its page.

    Raises:
        WorldError: Data is missing or can't be read, or the page can't be written.
    """
    if known.device:
        if known.html is not None or known.all:
            parser().error("--device examines no dataset: leave out --html and --all")
        of_device(plan, as_json=known.format == "json")
        return
    if known.html is not None:
        refuse_unwritable(known.html.parent, "--html")
    made_by = shlex.join(["etlrun", "doctor", *arguments])
    with _prepared(plan), progress() as begin:
        from etlrun.datasets.examine.doctor import diagnosed, of_doctor

        doc = of_doctor(diagnosed(plan, begin, is_whole=known.all), made_by)
        if known.html is not None:
            with appearing(known.html, "--html") as file:
                file.writelines(pieces(doc))
            page = Lines([("page", f"{known.html}, {rounded(known.html.stat().st_size)}")])
            doc = dataclasses.replace(doc, parts=[*doc.parts, page])
    say_whole(as_json(doc)) if known.format == "json" else show(doc)


@contextmanager
def _prepared(plan: Plan) -> Iterator[None]:
    """Prepare TensorFlow for a dataset of images, so only after the config has been validated; rows need none."""
    if isinstance(plan.spec.dataset, Rows):
        yield
        return
    from etlrun.run.backend import prepare
    from etlrun.sources.corrupt import pillow_as_header_reader

    with prepare(None), pillow_as_header_reader():
        yield


def stats(plan: Plan) -> None:
    """Print figures of the training split of `plan`: of each column of rows, or of all pixels, for `normalize`.

    Raises:
        EtlrunError: The config decodes no image, or data is missing or corrupt.
    """
    if isinstance(plan.spec.dataset, Rows):
        from etlrun.datasets.examine.rows import of_stats

        with progress() as begin:
            doc = of_stats(plan, begin)
        show(doc)
        return
    with _prepared(plan):
        from etlrun.datasets.examine.images import measured

        mean, deviation, count = measured(plan)
    say_whole(f"# Of {count:,} training images, pixels in [0, 1].\ntransform:\n  normalize:\n")
    for name, values in (("mean", mean), ("std", deviation)):
        say(f"    {name}: [{', '.join(f'{value:.4f}' for value in values)}]")
