"""`etlrun show`: examples after each step of a plan."""

from __future__ import annotations

import argparse
import io
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.cli import parsers
from etlrun.config import grid
from etlrun.config.request import requested
from etlrun.planning.plan import Plan
from etlrun.report.doc import Doc, Lines
from etlrun.report.html import pieces
from etlrun.report.render import show as print_doc
from etlrun.stages import STAGES
from etlrun.stages.dataset import Dataset
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.files import appearing, refuse_unwritable
from etlrun.system.machine import rounded

if TYPE_CHECKING:
    from etlrun.datasets.examine.show import Sheet


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_config(
        "show",
        "Show the examples that training sees, after each step of the plan: one row per example, one "
        "column per step. No cache is read or filled.",
    )
    parser.add_argument("--output", type=Path, default=Path("show.html"), metavar="FILE.html", help="the page to write")
    parser.add_argument("--png", type=Path, metavar="FILE.png", help="an image of the same to write")
    parser.add_argument("--split", choices=["train", "validation"], default="train", help="pipeline to show")
    parser.add_argument("--batches", type=_positive, default=1, metavar="N", help="number of batches; default: 1")
    parser.add_argument("--examples", type=_positive, default=8, metavar="N", help="examples of each; default: 8")
    parser.add_argument(
        "--passes", type=_positive, metavar="N", help="passes in which random steps are shown; default: 3"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text}; expected a positive integer")
    return int(text)


def main(arguments: list[str]) -> None:
    """Run `etlrun show`; see `show` for what it raises."""
    known, request = requested(parser(), arguments)
    show(grid.resolve(request.resuming(), STAGES).plan, known, arguments)


def show(plan: Plan, known: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Write the page and the image of `plan`, and print what they show.

    Raises:
        ConfigError: The validation is to be shown of a run without one, or the image has another suffix than `.png`.
        WorldError: Data is missing or corrupt, or a file can't be written.
    """
    if not plan.pipelines[known.split]:
        remedy = "set it, or leave --split out"
        where, expected = Dataset.key("eval_split"), "a split, since --split validation shows its examples"
        raise ConfigError([Fault(where=where, found="null", expected=expected, remedy=remedy)])
    if known.png is not None and known.png.suffix.lower() != ".png":
        found, remedy = str(known.png), f"write --png {shlex.quote(str(known.png.with_suffix('.png')))}"
        raise ConfigError([Fault(where="--png", found=found, expected="a file named *.png", remedy=remedy)])
    for option, path in (("--output", known.output), ("--png", known.png)):
        if path is not None:
            refuse_unwritable(path.parent, option)
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.datasets.examine.show import Wanted, collect

        wanted = Wanted(batches=known.batches, examples=known.examples, passes=known.passes)
        sheet = collect(plan, known.split, wanted)
        doc = write(sheet, known.output, known.png, shlex.join(["etlrun", "show", *arguments]))
    written = [("page", known.output), ("image", known.png)]
    files = [(name, f"{path}, {rounded(path.stat().st_size)}") for name, path in written if path is not None]
    print_doc(replace(doc, parts=[*doc.parts, Lines(files)]))


def write(
    sheet: Sheet, page: Path, image: Path | None, made_by: str, keys: tuple[str, str] = ("--output", "--png")
) -> Doc:
    """Write a sheet as a page, which says what it was `made_by`, and as one image; `keys` are their options.

    Raises:
        WorldError: A file can't be written.
    """
    from etlrun.datasets.examine.compare import of_sheet, picture

    doc = of_sheet(sheet, made_by)
    with appearing(page, keys[0]) as file:
        file.writelines(pieces(doc))
    if image is not None:
        picture(sheet).save(png := io.BytesIO(), "PNG")
        with appearing(image, keys[1]) as file:
            file.buffer.write(png.getvalue())
    return doc
