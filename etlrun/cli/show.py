"""`etlrun show`: images of examples after each step of a plan."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from etlrun.cli.launch import refuse_unwritable
from etlrun.errors import ConfigError, Fault
from etlrun.machine import rounded
from etlrun.plan.plan import Plan
from etlrun.stages.dataset import Dataset
from etlrun.terminal import print_table

_HEADER = ("stage", "result", "pass", "values shown")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's own options."""
    parser = argparse.ArgumentParser(
        prog="etlrun show",
        description="Show the examples that training sees, after each step of the plan: one row an example, one column "
        "a step. No cache is read or filled.",
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


def show(plan: Plan, known: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Write the page and the image of `plan`, and print what they show.

    Raises:
        ConfigError: The validation is to be shown of a run without one.
        WorldError: Data is missing or corrupt, or a file can't be written.
    """
    if not plan.pipelines[known.split]:
        remedy = "set it, or leave --split out"
        where, expected = Dataset.key("eval_split"), "a split, since --split validation shows its examples"
        raise ConfigError([Fault(where=where, found="null", expected=expected, remedy=remedy)])
    for option, path in (("--output", known.output), ("--png", known.png)):
        if path is not None:
            refuse_unwritable(path.parent, option)
    from etlrun.run.backend import prepare  # imports TensorFlow, so only after the config has been validated

    with prepare(None):
        from etlrun.examine.images import picture
        from etlrun.examine.page import html
        from etlrun.examine.show import Wanted, collect

        wanted = Wanted(batches=known.batches, examples=known.examples, passes=known.passes)
        sheet = collect(plan, known.split, wanted)
        _write(known.output, html(sheet, shlex.join(["etlrun", "show", *arguments])).encode())
        rows = [
            [column.path, str(feature), view.name, view.shown(name)]
            for column, view in sheet.views
            for name, feature in view.features.items()
        ]
        print_table(_HEADER, rows)
        print(f"page      {known.output}, {rounded(known.output.stat().st_size)}")
        if known.png is not None:
            known.png.parent.mkdir(parents=True, exist_ok=True)
            picture(sheet).save(known.png, "PNG")
            print(f"image     {known.png}, {rounded(known.png.stat().st_size)}")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
