"""`etlrun migrate`: give deprecated keys in config files their new names."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from etlrun.cli import parsers
from etlrun.config.migrate import Migration, files_of, migration
from etlrun.system.errors import EtlrunError, printable
from etlrun.system.terminal import say


def main(arguments: list[str]) -> None:
    """Rewrite config files; exit with status 1 under `--check` if there is something to rewrite.

    Raises:
        EtlrunError: Some files can't be rewritten; all others are.
    """
    known = parser().parse_args(arguments)
    files = list(files_of(known.paths or [Path()]))
    found = [one for one in map(migration, files) if one is not None]
    for one in found:
        if one.left:
            print(printable(f"etlrun: {one.name}: left as it is, since {one.left}"), file=sys.stderr)
    rewritten = [one for one in found if one.is_to_write]
    for one in rewritten:
        if not known.check:
            one.write()
        _print(one)
    done = "to rewrite" if known.check else "rewritten"
    say(f"{len(rewritten)} of {len(files)} config file{'s' * (len(files) != 1)} {done}")
    if faults := [fault for one in found if not one.left for fault in one.faults]:
        raise EtlrunError(faults)
    if known.check and rewritten:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "migrate",
        "Give deprecated keys in config files their new names. Only these names are replaced: comments, quotes, "
        "anchors, order and line ends stay. Files of other programs are left alone, as are the frozen configs of runs "
        "in a folder, which are rewritten if the run is named.",
    )
    of = "config file, folder of such files, or folder of a run; default: the current folder"
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help=of)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if something is to be rewritten")
    return parser


def _print(one: Migration) -> None:
    for key in one.keys:
        say(f"{one.name}:{key.line}: {key.of.old} -> {key.of.new}")
