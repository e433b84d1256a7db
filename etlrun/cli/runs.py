"""`etlrun runs`: list runs and sweeps."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.record.summary import MEASURES, RUNNING
from etlrun.results.runs import UNREADABLE, Entry, entries
from etlrun.system.errors import printable
from etlrun.system.terminal import megabytes, number, print_table, say, say_whole, significant

_OUTPUTS = Path("outputs")
"""Folder in which runs write their folders by default."""
_HEADER = ("folder", "created at", "status", "jobs", "bound by", "max gain", "best", "seconds", "MB", "overrides")


def main(arguments: list[str]) -> None:
    """Run `etlrun runs ls`."""
    known = parser().parse_args(arguments)
    found = entries(known.folder)
    if known.format == "json":
        say_whole(json.dumps([dataclasses.asdict(one) for one in found], indent=2, default=str) + "\n")
    elif known.format == "paths":
        _print_paths(found)
    else:
        print_table(_HEADER, [_row(one) for one in found])
        total = megabytes(sum(one.bytes for one in found))
        say(f"{_counted(found)} in {known.folder} ({total})")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command("runs", "List runs and sweeps.")
    parts = parser.add_subparsers(dest="command", required=True)
    listing = parsers.of_part(parts, "ls", "list runs and sweeps, the newest first", COMMANDS["runs"].example)
    listing.add_argument(
        "--format",
        choices=("text", "json", "paths"),
        default="text",
        help="output format; default: text; paths: folders of those that have ended, one per line",
    )
    listing.add_argument(
        "folder", nargs="?", default=_OUTPUTS, type=Path, metavar="FOLDER", help=f"folder of runs; default: {_OUTPUTS}"
    )
    return parser


def _print_paths(found: Sequence[Entry]) -> None:
    """Print the folders of runs and sweeps that have ended, as they are; names of two lines go to standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    for one in found:
        if one.status in (RUNNING, UNREADABLE):
            continue
        if "\n" in str(one.folder):
            print(f"etlrun: left out {printable(str(one.folder))}, which is no single line", file=sys.stderr)
        else:
            say_whole(f"{one.folder}\n")


def _row(one: Entry) -> Sequence[str]:
    return [
        printable(str(one.folder)),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created_s)),
        one.status,
        "" if one.jobs is None else f"{one.completed}/{one.jobs}",
        one.bound_by,
        "" if one.max_gain is None else number(one.max_gain, 2),
        " ".join(f"{name} {_metric(name, value)}" for name, value in one.best.items()),
        "" if one.wall_s is None else number(one.wall_s, 1),
        f"{one.bytes / 1e6:,.1f}",
        " ".join(one.overrides),
    ]


def _metric(name: str, value: float) -> str:
    return f"{value:.4f}" if name in MEASURES else significant(value)


def _counted(found: Sequence[Entry]) -> str:
    counts = {kind: sum(one.kind == kind for one in found) for kind in ("run", "sweep", "search")}
    told = [(kind, count) for kind, count in counts.items() if count or kind != "search"]
    return " and ".join(f"{count} {kind}{('e' * (kind == 'search') + 's') * (count != 1)}" for kind, count in told)
