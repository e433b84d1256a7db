"""`etlrun cache`: list caches, kept columns and fetched files on disk, explain hits and misses, and remove caches."""

from __future__ import annotations

import argparse
import itertools
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etlrun.cache.keeper import Keeper
from etlrun.cache.store import Entry, Store, first_difference, nearest, strangers, unusable
from etlrun.cli import parsers
from etlrun.cli.commands import COMMANDS
from etlrun.remote.room import Fetched, fetched_in, remove_unused
from etlrun.sources.rows import folders as rows
from etlrun.sources.rows.folders import KeptFolder
from etlrun.stages.cache import DiskCache
from etlrun.system.errors import ConfigError, Fault, WorldError, did_you_mean
from etlrun.system.files import as_unicode
from etlrun.system.terminal import STANDARD_OUTPUT, print_table, say

_HEADER = ("key", "dataset", "elements", "examples", "MB", "created", "used", "state")


_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def main(arguments: list[str]) -> None:
    """Run `etlrun cache ls | why OVERRIDE… | gc --max-bytes N [--yes] | rm KEY`."""
    known = parser().parse_args(arguments)
    if known.command == "why":
        _why(known.overrides, known.config_dir)
        return
    store = Store(known.dir)
    with _reported(store, known.command):
        if known.dir is not None and (not known.dir or not store.folder.is_dir()):
            raise WorldError(
                where="--dir",
                found=f"{store.folder}, which is not a folder" if known.dir else "nothing",
                expected="a folder of caches, cache.dir of the runs",
                remedy="omit --dir for the user's cache folder",
            )
        {"ls": _list, "gc": _collect, "rm": _remove}[known.command](store, known)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    says = "List caches, kept columns and fetched files on disk, explain hits and misses, and remove caches."
    parser = parsers.of_command("cache", says)
    commands = parser.add_subparsers(dest="command", required=True)
    folder = parsers.Parser(add_help=False)
    folder.add_argument("--dir", metavar="DIR", help="cache.dir of the runs; default: the user's cache folder")
    parsers.of_part(commands, "ls", "list all caches", "etlrun cache ls", parents=[folder])
    says = "explain why a config hits or misses its caches"
    parsers.add_config(parsers.of_part(commands, "why", says, COMMANDS["cache"].example))
    says, example = (
        "show the least recently used caches, and remove them with --yes",
        "etlrun cache gc --max-bytes 50GB",
    )
    collect = parsers.of_part(commands, "gc", says, example, parents=[folder])
    collect.add_argument(
        "--max-bytes", type=_bytes, required=True, metavar="N", help="total size to keep: bytes, or such as 50MB"
    )
    collect.add_argument("--yes", action="store_true", help="remove what is shown")
    remove = parsers.of_part(commands, "rm", "remove a cache", "etlrun cache rm 4bc028587e6d", parents=[folder])
    remove.add_argument("key", metavar="KEY", help="key of the cache, or a prefix of it")
    return parser


def _bytes(text: str) -> int:
    """Return a number of bytes from an argument such as `2000000` or `50MB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?b)?", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text}; expected a number of bytes, or one with a unit such as 50MB")
    return int(float(found[1]) * _UNITS[found[2] or "b"])


@contextmanager
def _reported(store: Store, command: str) -> Iterator[None]:
    """Report a folder of caches that can't be used."""
    try:
        yield
    except OSError as error:
        if error.filename == STANDARD_OUTPUT:
            raise
        remedy = "run it as a user with permission, or choose another folder"
        raise unusable(error, store.folder, f"cache {command}", remedy) from error


def _say(text: str) -> None:
    say(as_unicode(text))


def _entries(store: Store) -> list[Entry | KeptFolder | Fetched]:
    """Return all caches, kept columns and what is fetched from URLs, most recently used first."""
    found: list[Entry | KeptFolder | Fetched] = [
        *store.entries(),
        *rows.kept_folders(store.folder),
        *fetched_in(store.folder),
    ]
    return sorted(found, key=lambda entry: -entry.used_s)


def _removed(store: Store, key: str) -> bool:
    """Remove a cache, kept columns, or all that is fetched but what is in use; return False if it is in use."""
    if key == Fetched.key:
        return remove_unused(store.folder)
    return rows.remove(store.folder, key) if key.startswith("rows-") else store.remove(key)


def _list(store: Store, _known: argparse.Namespace) -> None:
    entries = _entries(store)
    print_table(_HEADER, [_row(entry) for entry in entries])
    _end(store, entries)


def _end(store: Store, entries: Sequence[Entry | KeptFolder | Fetched]) -> None:
    """Print the total, and a line for each file that is named like a cache without being one."""
    for name, reason in strangers(store.folder):
        _say(f"ignored {name}: {reason}")
    _say(f"{_count(entries)} in {store.folder}")


def _row(entry: Entry | KeptFolder | Fetched) -> Sequence[str]:
    if isinstance(entry, Fetched):
        state = f"{entry.num_used} in use" if entry.num_used else "ready"
        return entry.key, "URLs", f"{entry.count} files", "-", _mb(entry.bytes), "-", _age(entry.used_s), state
    state = "in use" if entry.in_use else "ready"
    if isinstance(entry, KeptFolder):
        what, made_ago = f"{entry.num_columns} columns", _age(entry.made_s)
        title, state = (entry.title, state) if entry.title is not None else ("?", "broken: will be rebuilt")
        return entry.key, title, what, f"{entry.num_rows}", _mb(entry.bytes), made_ago, _age(entry.used_s), state
    if entry.manifest is None:
        return entry.key, "?", "?", "-", _mb(entry.bytes), "-", _age(entry.used_s), "broken: will be rebuilt"
    made, examples = entry.manifest.made_by, str(entry.manifest.count)
    elements = next((str(value) for name, value in entry.manifest.identity if name == "kept"), "?")
    made_s = made.get("made_s")
    age = _age(made_s) if isinstance(made_s, float) else "-"
    return entry.key, _dataset(made), elements, examples, _mb(entry.bytes), age, _age(entry.used_s), state


def _dataset(made: dict[str, Any]) -> str:
    return f"{made.get('dataset', '?')} {made.get('split', '?')}"


def _count(entries: Sequence[Entry | KeptFolder | Fetched]) -> str:
    count = len(entries)
    return f"{count} cache{'s' * (count != 1)} ({_mb(sum(entry.bytes for entry in entries))} MB)"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def _age(moment_s: float) -> str:
    """Format the time since `moment_s`, in seconds since 1970."""
    passed = max(0.0, time.time() - moment_s)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{passed / length:.0f} {unit} ago"
    return f"{passed:.0f} s ago"


def _collect(store: Store, known: argparse.Namespace) -> None:
    """Remove the least recently used caches, and what killed runs have left; without `--yes` only show them."""
    left = itertools.chain(store.leftovers(), rows.leftovers(store.folder)) if known.yes else ()
    for leftover, reason in left:
        name = f"{leftover.name}, left by a killed run"
        _say(f"kept {name}: {reason}" if reason else f"removed {name}")
    entries = _entries(store)
    total_bytes = sum(entry.bytes for entry in entries)
    is_any = False
    for entry in reversed(entries):
        if total_bytes <= known.max_bytes:
            break
        if reason := _kept(store, entry) if known.yes else "in use" * entry.in_use:
            _say(f"kept {entry.key}, {_mb(entry.bytes)} MB: {reason}")
            continue
        is_any, total_bytes = True, total_bytes - entry.bytes
        verb = "removed" if known.yes else "would remove"
        _say(f"{verb} {entry.key}, {_mb(entry.bytes)} MB, used {_age(entry.used_s)}")
    _end(store, _entries(store))
    if is_any and not known.yes:
        _say("add --yes to remove what is shown, and what killed runs have left")


def _kept(store: Store, entry: Entry | KeptFolder | Fetched) -> str:
    """Remove a cache; return why it is kept, empty if it is removed."""
    try:
        return "" if _removed(store, entry.key) else "in use"
    except PermissionError as error:
        return str(error.strerror)


def _remove(store: Store, known: argparse.Namespace) -> None:
    keys = [entry.key for entry in _entries(store)]
    found = [key for key in keys if key.startswith(known.key)]
    if len(found) != 1:
        raise WorldError(
            where=f"cache rm {known.key}",
            found=f"{len(found)} caches with this prefix" if found else "no such cache",
            expected=f"the key of one of the {len(keys)} caches in {store.folder}, or a unique prefix",
            remedy=did_you_mean(known.key, keys, otherwise="list them with: etlrun cache ls"),
        )
    if not _removed(store, found[0]):
        raise WorldError(
            where=f"cache rm {known.key}",
            found="a cache in use",
            expected="a cache that no run uses",
            remedy="wait for the run to end",
        )
    _say(f"removed {found[0]}")


def _why(overrides: list[str], config_dir: str | None) -> None:
    from etlrun.config import grid  # which the other parts, and the help, do without
    from etlrun.config.request import Request
    from etlrun.run.keepers import keepers_for
    from etlrun.stages import STAGES

    plan = grid.resolve(Request(overrides=overrides, config_dir=config_dir).resuming(), STAGES).plan
    if not plan.spec.cache.outlives_run:
        found = f"{plan.spec.cache.path}, which other runs can't read"
        remedy = "add cache=disk to explain a cache on disk"
        raise ConfigError([Fault(where="cache", found=found, expected=DiskCache.path, remedy=remedy)])
    for name, keeper in keepers_for(plan).items():
        _explain(name, keeper)


def _explain(name: str, keeper: Keeper) -> None:
    with _reported(keeper.store, "why"):
        entries = keeper.store.entries()
    same = next((entry for entry in entries if entry.key == keeper.key), None)
    if same is not None and same.manifest is not None:
        size = f"{same.manifest.count} examples, {_mb(same.bytes)} MB"
        _say(f"{name:<11}hit   {keeper.key}  {size}, used {_age(same.used_s)}")
        return
    near = nearest(keeper.kept.identity, entries)
    if near is None or near.manifest is None:
        _say(f"{name:<11}miss  {keeper.key}  no cache yet in {keeper.store.folder}")
        return
    difference = first_difference(keeper.kept.identity, near.manifest.identity)
    what, here, there = difference or ("nothing", None, None)
    made = near.manifest.made_by
    _say(f"{name:<11}miss  {keeper.key}")
    _say(f"{'':<11}      nearest is {near.key} ({_dataset(made)}, created by {_creator(made)})")
    _say(f"{'':<11}      differs in {what}: {_value(there)} in the cache, {_value(here)} in this config")


def _creator(made: dict[str, Any]) -> str:
    overrides = " ".join(map(str, made.get("overrides", []))) or "no overrides"
    return f"{Path(str(made.get('folder', '?'))).name} with {overrides}"


def _value(value: Any) -> str:
    return "nothing" if value is None else str(value)
