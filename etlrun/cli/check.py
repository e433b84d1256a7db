"""`etlrun check`: validate all configs, and report which of them are slow."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from etlrun.cli import parsers
from etlrun.config import folders as configs
from etlrun.report.render import show
from etlrun.review.check import Checked, check, of_check
from etlrun.review.evidence import GoldenPlans
from etlrun.review.folders import working_tree
from etlrun.review.lint import Advice, Machine, lint
from etlrun.system.errors import ConfigError, of_file
from etlrun.system.terminal import say_whole


def main(arguments: list[str]) -> None:
    """Run `etlrun check`; `ConfigError` with all faults. Advice is not a fault."""
    known = parser().parse_args(arguments)
    began = time.perf_counter()
    folders = working_tree(known.config_dir)
    checked = check(folders, strict=known.strict)
    updated = _golden(known, checked)
    advice = _advice(checked)
    if known.format == "text":
        show(of_check(checked, advice, updated, time.perf_counter() - began))
    else:
        from etlrun.review.annotations import FORMATS, annotated

        sys.stderr.writelines(f"{line}\n" for line in updated)
        loud = {item: names for item, names in advice.items() if not item.reason}
        say_whole(FORMATS[known.format](annotated(checked, loud, folders), checked, folders))
    if checked.faults:
        raise ConfigError(list(checked.faults.values()))


def _golden(known: argparse.Namespace, checked: Checked) -> list[str]:
    """Compare the golden plans, or write them; return lines that say what is written."""
    folder = known.golden or _project_plans(known.config_dir)
    names = set(checked.experiments)
    try:
        if folder is not None:
            plans = GoldenPlans(folder, checked.plans, names)
            if known.update:
                return [f"updated {folder / name}" for name in plans.update()]
            checked.add(plans.faults())
    except OSError as error:
        found, expected = str(error.strerror), "a folder for golden plans that can be read and written"
        checked.add([of_file(str(error.filename or folder), found, expected)])
    return []


def _project_plans(config_dir: str | None) -> Path | None:
    """Return the folder of the project's golden plans; None in an installation, and for configs of a user."""
    folder = configs.config_dir().parent / "tests" / "golden" / "plans"
    return folder if config_dir is None and folder.is_dir() else None


def _advice(checked: Checked) -> dict[Advice, list[str]]:
    """Return what makes experiments slow, with their names."""
    advice: dict[Advice, list[str]] = {}
    for name, plan in checked.plans.items():
        for item in lint(plan, Machine.here()):
            advice.setdefault(item, []).append(name)
    return advice


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "check",
        "Compose every experiment, and every option with those of the neighbouring groups; report all "
        "faults with file and line, and what makes a config slow.",
    )
    parsers.add_config_dir(parser, "folder of your configs, checked instead of the project's")
    parser.add_argument(
        "--strict", action="store_true", help="experiments without a comment at the top are faults, too"
    )
    formats = ["text", "json", "github", "junit", "sarif"]
    parser.add_argument(
        "--format", choices=formats, default="text", help="output format; default: text; the last three are for CI"
    )
    parser.add_argument("--golden", type=Path, metavar="DIR", help="folder of the golden plans of your experiments")
    parser.add_argument("--update", action="store_true", help="write the golden plans instead of comparing them")
    return parser
