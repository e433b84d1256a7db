"""`etlrun cache`: what is kept on disk, why a config finds it or not, and how it goes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from etlrun.cache.entries import Entry, first_difference, nearest
from etlrun.cache.folders import strangers, unusable
from etlrun.cache.store import Store
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.errors import ConfigError, Fault, WorldError, did_you_mean
from etlrun.plan.plan import Plan
from etlrun.stages import STAGES
from etlrun.stages.cache import DiskCache
from etlrun.terminal import print_table

_HEADER = ("key", "of", "at", "examples", "MB", "made", "used", "state")


def main(words: list[str]) -> None:
    """`etlrun cache ls | why OVERRIDE… | gc --max-bytes N | rm KEY`."""
    parser = argparse.ArgumentParser(prog="etlrun cache", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--dir", help="cache.dir of the runs; the user's cache folder if not given")
    commands.add_parser("ls", parents=[folder], help="what there is")
    why = commands.add_parser("why", help="whether a config finds its caches, and if not, what differs")
    why.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    why.add_argument("--config-dir", "-cd", metavar="DIR")
    collect = commands.add_parser("gc", parents=[folder], help="remove what was not used for longest")
    collect.add_argument("--max-bytes", type=int, required=True, metavar="N", help="that may stay")
    remove = commands.add_parser("rm", parents=[folder], help="remove one")
    remove.add_argument("key", metavar="KEY", help="or the beginning of one")
    known = parser.parse_args(words)
    if known.command == "gc" and known.max_bytes < 0:
        parser.error(f"--max-bytes: found {known.max_bytes}; expected 0 or more")
    if known.command == "why":
        _why(known.overrides, known.config_dir)
        return
    store = Store(known.dir)
    with _told(store, known.command):
        if known.dir is not None and (not known.dir or not store.folder.is_dir()):
            raise WorldError(
                where="--dir",
                found=f"{store.folder}, which is no folder" if known.dir else "nothing",
                expected="the folder of caches that runs have as cache.dir",
                remedy="leave --dir out for the user's cache folder",
            )
        {"ls": _list, "gc": _collect, "rm": _remove}[known.command](store, known)


@contextmanager
def _told(store: Store, command: str) -> Iterator[None]:
    """A folder that can't be used is told of in words."""
    try:
        yield
    except BrokenPipeError:  # of the screen
        raise
    except OSError as error:
        remedy = "do it as a user who may, or with another folder"
        raise unusable(error, store.folder, f"cache {command}", remedy) from error


def _say(text: str) -> None:
    printable = text.encode(errors="backslashreplace").decode()
    Console(soft_wrap=True).print(printable, markup=False, highlight=False)


def _list(store: Store, _known: argparse.Namespace) -> None:
    entries = store.entries()
    print_table(_HEADER, [_row(entry) for entry in entries])
    _end(store, entries)


def _end(store: Store, entries: Sequence[Entry]) -> None:
    """What there is, and what has a cache's name without being one."""
    for name, reason in strangers(store.folder):
        _say(f"left {name} alone: {reason}")
    _say(f"{_count(entries)} in {store.folder}")


def _row(entry: Entry) -> Sequence[str]:
    state = "in use" if entry.in_use else "ready"
    if entry.manifest is None:
        return entry.key, "?", "?", "-", _mb(entry.bytes), "-", _age(entry.used_s), "broken: its next run fills it anew"
    made, examples = entry.manifest.made_by, str(entry.manifest.count)
    kept = next((str(value) for name, value in entry.manifest.identity if name == "kept"), "?")
    made_s = made.get("made_s")
    age = _age(made_s) if isinstance(made_s, float) else "-"
    return entry.key, _of(made), kept, examples, _mb(entry.bytes), age, _age(entry.used_s), state


def _of(made: dict[str, Any]) -> str:
    return f"{made.get('dataset', '?')} {made.get('split', '?')}"


def _count(entries: Sequence[Entry]) -> str:
    count = len(entries)
    return f"{count} cache{'s' * (count != 1)} of {_mb(sum(entry.bytes for entry in entries))} MB"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def _age(moment_s: float) -> str:
    """Since a time in seconds since 1970."""
    passed = max(0.0, time.time() - moment_s)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{passed / length:.0f} {unit} ago"
    return f"{passed:.0f} s ago"


def _collect(store: Store, known: argparse.Namespace) -> None:
    for leftover, reason in store.leftovers():
        whose = f"{leftover.name}, left by a run that was killed"
        _say(f"kept {whose}: {reason}" if reason else f"removed {whose}")
    entries = store.entries()
    held = sum(entry.bytes for entry in entries)
    for entry in reversed(entries):
        if held <= known.max_bytes:
            break
        try:
            kept = "" if store.remove(entry.key) else "in use"
        except PermissionError as error:
            kept = str(error.strerror)
        if kept:
            _say(f"kept {entry.key}, {_mb(entry.bytes)} MB: {kept}")
        else:
            held -= entry.bytes
            _say(f"removed {entry.key}, {_mb(entry.bytes)} MB, used {_age(entry.used_s)}")
    _end(store, store.entries())


def _remove(store: Store, known: argparse.Namespace) -> None:
    keys = [entry.key for entry in store.entries()]
    found = [key for key in keys if key.startswith(known.key)]
    if len(found) != 1:
        raise WorldError(
            where=f"cache rm {known.key}",
            found=f"{len(found)} caches whose key begins so" if found else "no such cache",
            expected=f"the key of one of the {len(keys)} caches in {store.folder}",
            remedy=did_you_mean(known.key, keys, otherwise="list them with: etlrun cache ls"),
        )
    if not store.remove(found[0]):
        raise WorldError(
            where=f"cache rm {known.key}",
            found="a cache in use",
            expected="one that no run reads",
            remedy="wait for the run to end",
        )
    _say(f"removed {found[0]}")


def _why(overrides: list[str], config_dir: str | None) -> None:
    plan = grid.resolve(Request(overrides=overrides, config_dir=config_dir).resuming(), STAGES).plan
    if not plan.spec.cache.outlives_run:
        found = f"{plan.spec.cache.path}, which keeps nothing for other runs"
        remedy = "add cache=disk to see what a cache on disk would do"
        raise ConfigError([Fault(where="cache", found=found, expected=DiskCache.path, remedy=remedy)])
    for name, keeper in _keepers(plan).items():
        _explain(name, keeper)


def _keepers(plan: Plan) -> dict[str, Any]:
    """Opens the data set, which is not prepared for this."""
    from etlrun.run.backend import prepare  # imports TensorFlow, so not before the config is known to be right

    with prepare(plan.spec.fit):
        from etlrun.run.fit import keepers

        return keepers(plan)


def _explain(name: str, keeper: Any) -> None:
    with _told(keeper.store, "why"):
        entries = keeper.store.entries()
    same = next((entry for entry in entries if entry.key == keeper.key), None)
    if same is not None and same.manifest is not None:
        size = f"{same.manifest.count} examples, {_mb(same.bytes)} MB"
        _say(f"{name:<11}hit   {keeper.key}  {size}, used {_age(same.used_s)}")
        return
    near = nearest(keeper.kept.identity, entries)
    if near is None or near.manifest is None:
        _say(f"{name:<11}miss  {keeper.key}  there is no cache yet in {keeper.store.folder}")
        return
    difference = first_difference(keeper.kept.identity, near.manifest.identity)
    what, here, there = difference or ("nothing", None, None)
    made = near.manifest.made_by
    _say(f"{name:<11}miss  {keeper.key}")
    _say(f"{'':<11}      nearest is {near.key} ({_of(made)}, made by {_made(made)})")
    _say(f"{'':<11}      it differs in {what}: {_value(there)} there, {_value(here)} here")


def _made(made: dict[str, Any]) -> str:
    overrides = " ".join(map(str, made.get("overrides", []))) or "no overrides"
    return f"{Path(str(made.get('folder', '?'))).name} with {overrides}"


def _value(value: Any) -> str:
    return "nothing" if value is None else str(value)
