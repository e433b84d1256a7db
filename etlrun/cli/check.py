"""`etlrun check`: validate all configs, and report which of them are slow."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sized
from pathlib import Path

from etlrun.config import folders as configs
from etlrun.review import golden
from etlrun.review.check import Checked, check
from etlrun.review.folders import working_tree
from etlrun.review.lint import Advice, Machine, lint
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.terminal import console, print_parts


def main(arguments: list[str]) -> None:
    """Run `etlrun check`; `ConfigError` with all faults. Advice is not a fault."""
    known = _parser().parse_args(arguments)
    began = time.perf_counter()
    folders = working_tree(known.config_dir)
    checked = check(folders, strict=known.strict)
    shown = console()
    folder = known.golden or _project_plans(known.config_dir)
    names = set(checked.experiments)
    try:
        if folder is not None and known.update:
            for name in golden.update(folder, checked.plans, names):
                print_parts(shown, (f"updated {folder / name}", ""))
        elif folder is not None:
            checked.add(golden.out_of_date(folder, checked.plans, names))
    except OSError as error:
        found, expected = str(error.strerror), "a folder for golden plans that can be read and written"
        checked.add([Fault(where=str(error.filename or folder), found=found, expected=expected)])
    for line, style in _lines(checked):
        print_parts(shown, (line, style))
    took_s = time.perf_counter() - began
    counts = f"{_count(checked.configs, 'config')} of {_count(checked.experiments, 'experiment')} and of options"
    faults = _count(checked.faults, "fault") if checked.faults else "no fault"
    print_parts(shown, (f"checked {counts} in {took_s:.1f} s: {faults}", ""))
    if checked.faults:
        raise ConfigError(list(checked.faults.values()))


def _project_plans(config_dir: str | None) -> Path | None:
    """Return the folder of the project's golden plans; None in an installation, and for configs of a user."""
    folder = configs.config_dir().parent / "tests" / "golden" / "plans"
    return folder if config_dir is None and folder.is_dir() else None


def _lines(checked: Checked) -> Iterator[tuple[str, str]]:
    for options, fault in checked.refused.items():
        others = "" if options[1:] else " with the defaults of the other groups"
        yield f"refused: {' with '.join(options)}{others}: {fault.place} is {fault.found}", "dim"
    advice: dict[Advice, list[str]] = {}
    for name, plan in checked.plans.items():
        for item in lint(plan, Machine.here()):
            advice.setdefault(item, []).append(name)
    for item, names in advice.items():
        yield f"{', '.join(names)}: {item}", "dim" if item.reason else "yellow"
    for name, machine in checked.tuned.items():
        yield f"{name}: tuned on another machine ({machine}): its speed here is not known", "yellow"
    warned: dict[str, list[str]] = {}
    for fault in checked.warnings:
        warned.setdefault(f"{fault.found}; expected {fault.expected}", []).append(fault.place)
    for text, places in warned.items():
        yield f"{', '.join(places)}: found {text} (a fault with --strict)", "yellow"


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="etlrun check",
        description="Compose every experiment, and every option with those of the neighbouring groups; report all "
        "faults with file and line, and what makes a config slow.",
        allow_abbrev=False,
    )
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="check your configs, not the project's")
    parser.add_argument(
        "--strict", action="store_true", help="experiments without a comment at the top are faults, too"
    )
    parser.add_argument("--golden", type=Path, metavar="DIR", help="folder of the golden plans of your experiments")
    parser.add_argument("--update", action="store_true", help="write the golden plans instead of comparing them")
    return parser
