"""`etlrun diff`: the effect of a change in YAML."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from etlrun.errors import ConfigError
from etlrun.review import show
from etlrun.review.folders import working_tree
from etlrun.review.measured import Runs
from etlrun.review.review import review
from etlrun.review.sides import of_folders, resolve

_DIFFERS, _REFUSED = 1, ConfigError.status
_NOW = "the working tree"


def main(arguments: list[str]) -> None:
    """Run `etlrun diff OLD [NEW]`; status 2 if a plan can't be compared, and 1 for a difference with `--exit-code`."""
    known = _parser().parse_intermixed_args(arguments)
    now = working_tree(known.config_dir)
    old = resolve(known.old, now, known.experiment)
    new = (
        of_folders(_NOW, now, known.experiment, old)
        if known.new is None
        else resolve(known.new, now, known.experiment, old)
    )
    found = review(old, new, known.experiment, None if known.runs is None else Runs(known.runs))
    if known.format == "text":
        show.text(found, Console(highlight=False))
    else:
        sys.stdout.write({"markdown": show.markdown, "json": show.as_json}[known.format](found))
    if found.is_faulty:
        raise SystemExit(_REFUSED)
    if known.exit_code and found.changes:
        raise SystemExit(_DIFFERS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="etlrun diff",
        description="Compare two configs, and report whether the difference changes the data, the order, the training, "
        "or only the speed. OLD and NEW are quoted overrides, a config file, a run's folder, or a git revision.",
        allow_abbrev=False,
    )
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW", nargs="?", help="default: the configs of the working tree")
    parser.add_argument("--experiment", metavar="NAME", help="compare only this experiment of the revisions")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="folder of runs whose measurements to report")
    parser.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    parser.add_argument("--exit-code", action="store_true", help="exit with status 1 if a plan differs")
    parser.add_argument("--config-dir", "-cd", metavar="DIR")
    return parser
