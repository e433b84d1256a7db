"""`etlrun runs`: list runs and sweeps, and remove those that are not needed any more."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from etlrun.results.folders import kind_of, left_of
from etlrun.results.removal import Rules, collectable, needed, refusal, remove
from etlrun.results.runs import Entry, entries, entry
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError, printable
from etlrun.system.terminal import megabytes, number, print_table

_OUTPUTS = Path("outputs")
"""Folder in which runs write their folders by default."""
_HEADER = ("folder", "created at", "status", "jobs", "bound by", "max gain", "best", "seconds", "MB", "overrides")
_UNITS_S = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}


def main(arguments: list[str]) -> None:
    """Run `etlrun runs ls | rm FOLDER… | gc`."""
    known = _parser().parse_args(arguments)
    {"ls": _list, "rm": _remove, "gc": _collect}[known.command](known)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="etlrun runs", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("ls", help="list runs and sweeps, the newest first")
    listing.add_argument("--format", choices=("text", "json"), default="text")
    remove = commands.add_parser("rm", help="remove runs and sweeps")
    remove.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folder of a run or a sweep")
    collect = commands.add_parser(
        "gc",
        help="remove what is not needed any more",
        description="Remove the checkpoints of completed runs with a saved model, runs that ended before their "
        "first checkpoint, and what a killed removal has left. Without --yes, only print it.",
    )
    collect.add_argument("--keep", type=_count, metavar="N", help="remove runs and sweeps but for the newest N")
    collect.add_argument("--older-than", type=_age_s, metavar="AGE", help="remove older ones: 12h, 30d or 8w; with "
                         "--keep, those that are both")  # fmt: skip
    collect.add_argument("--failed", action="store_true", help="remove runs that failed, or were interrupted or killed")
    for command in (listing, collect):
        command.add_argument(
            "folder", nargs="?", default=_OUTPUTS, type=Path, metavar="FOLDER", help=f"default: {_OUTPUTS}"
        )
    for command in (remove, collect):
        command.add_argument("--yes", action="store_true", help="remove it without asking")
    return parser


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"found {text}; expected a non-negative integer")
    return int(text)


def _age_s(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text}; expected hours, days or weeks, such as 12h, 30d or 8w")
    return int(found[1]) * _UNITS_S[found[2]]


def _list(known: argparse.Namespace) -> None:
    found = entries(known.folder)
    if known.format == "json":
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=2, default=str))
        return
    print_table(_HEADER, [_row(one) for one in found])
    _say(f"{_counted(found)} in {known.folder} ({megabytes(sum(one.bytes for one in found))})")


def _row(one: Entry) -> Sequence[str]:
    return [
        printable(str(one.folder)),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created_s)),
        one.status,
        "" if one.jobs is None else f"{one.completed}/{one.jobs}",
        one.bound_by,
        "" if one.max_gain is None else number(one.max_gain, 2),
        " ".join(f"{name} {value:.4f}" for name, value in one.best.items()),
        "" if one.wall_s is None else number(one.wall_s, 1),
        f"{one.bytes / 1e6:,.1f}",
        " ".join(one.overrides),
    ]


def _counted(found: Sequence[Entry]) -> str:
    counts = {kind: sum(one.kind == kind for one in found) for kind in ("run", "sweep", "search")}
    told = [(kind, count) for kind, count in counts.items() if count or kind != "search"]
    return " and ".join(f"{count} {kind}{('e' * (kind == 'search') + 's') * (count != 1)}" for kind, count in told)


def _remove(known: argparse.Namespace) -> None:
    folders = _outermost(Path(os.path.abspath(folder)) for folder in known.folders)  # noqa: PTH100 - links stay links
    found, faults = _asked(folders)
    if faults:
        raise EtlrunError(faults)
    for one in found:
        _say(f"removes {one.folder}: {_described(one)}, {megabytes(one.bytes)}")
    total = f"{len(found)} folder{'s' * (len(found) != 1)}, {megabytes(sum(one.bytes for one in found))}"
    if not known.yes:
        _confirm(total)
    for one in found:
        remove(one.folder)
    _say(f"removed {total}")


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that are not in another one of them, each once."""
    every = list(dict.fromkeys(folders))
    return [folder for folder in every if not set(folder.parents) & set(every)]


def _asked(folders: Sequence[Path]) -> tuple[list[Entry], list[Fault]]:
    """Return the runs and sweeps in these folders, and why some of them are not removed."""
    found, faults = [], []
    for folder in folders:
        path = folder if kind_of(folder) or not kind_of(left_of(folder)) else left_of(folder)
        kind = kind_of(path)
        if kind is None:
            faults.append(_no_run(folder))
        else:
            found.append(entry(path, kind))
    known = [*_in_outputs(), *_beside(folders)]
    needs = [(name, by) for name, by in needed(known) if not {by, *by.parents} & set(folders)]
    return found, [*faults, *filter(None, (refusal(one, needs, is_asked=True) for one in found))]


def _in_outputs() -> list[Entry]:
    """Return the runs in `outputs`, which may have to be resumed from those that a person names."""
    folder = _OUTPUTS.absolute()
    return entries(folder) if folder.is_dir() else []


def _beside(folders: Iterable[Path]) -> Iterator[Entry]:
    for parent in dict.fromkeys(folder.parent for folder in folders if folder.is_dir()):
        yield from (entry(path, kind) for path in parent.iterdir() if (kind := kind_of(path)) is not None)


def _no_run(folder: Path) -> Fault:
    found = "no such folder"
    if folder.is_symlink():
        found = "a symbolic link"
    elif folder.exists():
        found = "no run and no sweep"
    remedy = f"list them with: etlrun runs ls {folder.parent}"
    return Fault(where=str(folder), found=found, expected="the folder of a run or a sweep", remedy=remedy)


def _described(one: Entry) -> str:
    if one.kind == "removed":
        return "what a killed removal has left"
    jobs = "" if one.jobs is None else f" of {one.jobs} jobs, {one.completed} completed"
    return f"a {one.kind}{jobs or f', {one.status}'}"


def _confirm(total: str) -> None:
    """Ask on a terminal whether to remove it; exit with status 1 if not."""
    if not sys.stdin.isatty():
        found, expected = "no terminal to ask on", "--yes, or an answer"
        raise ConfigError([Fault(where="runs rm", found=found, expected=expected, remedy="add --yes to remove it")])
    try:
        answer = input(f"remove {total}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        _say("removed nothing")
        raise SystemExit(1)


def _collect(known: argparse.Namespace) -> None:
    rules = Rules(keep=known.keep, older_than_s=known.older_than, failed=known.failed)
    found = entries(known.folder)
    is_inside = known.folder.resolve() in (_OUTPUTS.resolve(), *_OUTPUTS.resolve().parents)
    needs = needed(found if is_inside else [*found, *_in_outputs()])
    removals, kept = collectable(found, rules, needs, time.time())
    freed = 0
    for removal in removals:
        what = "" if removal.is_whole else "checkpoints of "
        try:
            if known.yes:
                removal.carry_out()
        except WorldError as error:  # a process has begun to work there
            kept += error.faults
            continue
        freed += removal.bytes
        verb = "removed" if known.yes else "would remove"
        _say(f"{verb} {what}{removal.folder}: {removal.reason}, {megabytes(removal.bytes)}")
    for fault in kept:
        _say(f"kept {fault.where}: {fault.found}")
    total = f"{megabytes(freed)} of {megabytes(sum(one.bytes for one in found))} in {known.folder}"
    _say(f"freed {total}" if known.yes else f"would free {total}; add --yes to remove it")


def _say(text: str) -> None:
    Console(soft_wrap=True).print(printable(text), markup=False, highlight=False)
