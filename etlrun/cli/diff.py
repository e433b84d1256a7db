"""`etlrun diff`: what a change of YAML does."""

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


def main(words: list[str]) -> None:
    """`etlrun diff OLD [NEW]`; with `--exit-code` status 1 where a plan differs, and 2 where one can't be compared."""
    known = _parser().parse_intermixed_args(words)
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
        description="Tell what differs between two configs, and whether it changes the data, the order, the training, "
        "or only the speed. OLD and NEW are overrides in one word, a config file, a run's folder, or a git revision.",
        allow_abbrev=False,
    )
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW", nargs="?", help="the configs of the working tree, if not given")
    parser.add_argument("--experiment", metavar="NAME", help="of revisions: this one, instead of all")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="tell what the runs below it measured")
    parser.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    parser.add_argument("--exit-code", action="store_true", help="end with status 1 where a plan differs")
    parser.add_argument("--config-dir", "-cd", metavar="DIR")
    return parser
