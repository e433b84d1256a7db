"""`etlrun doctor` and `etlrun stats`: examination of a dataset, and figures of its columns or its images."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etlrun.cli import parsers
from etlrun.cli.doctor_device import of_device
from etlrun.cli.doctor_rows import of_rows, plain, print_findings, print_page, print_stats
from etlrun.config import grid
from etlrun.config.request import Request, requested
from etlrun.planning.plan import Plan
from etlrun.stages import STAGES
from etlrun.stages.rows import Rows
from etlrun.system.files import refuse_unwritable
from etlrun.system.machine import rounded
from etlrun.system.terminal import print_table, say, say_whole

if TYPE_CHECKING:
    from etlrun.datasets.examine.doctor import ImageDiagnosis

_SPLITS = ("dataset", "examples", "files", "broken", "bytes each", "width", "height", "aspect", "formats", "colours")


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
    if isinstance(plan.spec.dataset, Rows):
        of_rows(plan, known, made_by)
        return
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.datasets.examine.doctor import diagnosed
        from etlrun.datasets.examine.doctor_page import write
        from etlrun.system.progress import progress

        with progress() as begin:
            found = diagnosed(plan, begin, is_whole=known.all)
            if known.html is not None:
                write(known.html, found, made_by, begin)
    if known.format == "json":
        say_whole(json.dumps(as_dict(found), indent=2) + "\n")
    else:
        print_findings(found)
        _print(found)
        print_page(known.html)


def as_dict(found: ImageDiagnosis) -> dict[str, Any]:
    """Return a diagnosis as plain values."""
    return {**plain(found), "splits": [dataclasses.asdict(split) for split in found.splits]}


def _print(found: ImageDiagnosis) -> None:
    rows = []
    for split in found.splits:
        sizes = [f"{of[0]:g} to {of[-1]:g}" if of else "" for of in (split.widths, split.heights, split.aspect_ratios)]
        counts = [", ".join(f"{name} {count:,}" for name, count in of.items()) for of in (split.formats, split.colours)]
        figures = (f"{split.examples:,}", f"{split.files:,}", str(split.broken), f"{split.bytes_per_example:,.0f}")
        rows.append((split.name, *figures, *sizes, *counts))
    print_table(_SPLITS, rows)
    classes = [
        (split.name, name, f"{count:,}", f"{count / max(sum(split.classes.values()), 1):.1%}")
        for split in found.splits
        for name, count in split.classes.items()
    ]
    print_table(("dataset", "class", "examples", "share"), classes)
    for split in found.splits:
        sizes = [f"{point} {rounded(size)}" for point, size in split.cache_bytes.items()]
        say(f"caches    {split.name}: {', '.join(sizes)}")


def stats(plan: Plan) -> None:
    """Print figures of the training split of `plan`: of each column of rows, or of all pixels, for `normalize`.

    Raises:
        EtlrunError: The config decodes no image, or data is missing or corrupt.
    """
    if isinstance(plan.spec.dataset, Rows):
        print_stats(plan)
        return
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.datasets.examine.stats import measured

        mean, deviation, count = measured(plan)
    say_whole(f"# Of {count:,} training images, pixels in [0, 1].\ntransform:\n  normalize:\n")
    for name, values in (("mean", mean), ("std", deviation)):
        say(f"    {name}: [{', '.join(f'{value:.4f}' for value in values)}]")
