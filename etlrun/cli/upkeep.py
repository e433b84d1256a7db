"""Commands that set up and maintain: new projects, a service of the input pipeline, and caches."""

import importlib.util
import itertools
import keyword
import os
import re
import shlex
import shutil
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from operator import itemgetter
from pathlib import Path

from etlrun.cache.keeper import Keeper
from etlrun.cache.store import (
    BROKEN,
    IN_USE,
    READY,
    CacheEntry,
    CacheStore,
    ListedBeside,
    first_difference,
    nearest,
    strangers,
    unusable,
)
from etlrun.cli.commands import Answer
from etlrun.remote.room import FETCHED, fetched_in, remove_unused
from etlrun.report.doc import Col, Doc, Line, Lines, Part, Table
from etlrun.sources.rows import folders as rows
from etlrun.stages.cache import DiskCache
from etlrun.system.errors import ConfigError, Fault, WorldError, counted, did_you_mean, fault, refuse
from etlrun.system.files import elsewhere
from etlrun.system.git import git
from etlrun.system.terminal import STANDARD_OUTPUT

_Entry = CacheEntry | ListedBeside
_HEADER = ("key", "dataset", "elements", "examples", "MB", "created", "used", "state")


def cache(known: Namespace) -> Answer:
    """Run `etlrun cache ls | gc --max-bytes N [--yes] | rm KEY`."""
    store = CacheStore(known.dir)
    with _reported(store, known.command):
        if known.dir is not None and (not known.dir or not store.folder.is_dir()):
            found = f"{store.folder}, which is not a folder" if known.dir else "nothing"
            remedy = "omit --dir for the user's cache folder"
            raise WorldError("--dir", found, "a folder of caches, cache.dir of the runs", remedy)
        parts = {"ls": _list, "gc": _collect, "rm": _remove}[known.command](store, known)
        values = {"folder": str(store.folder), "caches": [*map(_values, _entries(store))]}
        return Answer(Doc(f"Caches in {store.folder}", parts, json=lambda: values))


@contextmanager
def _reported(store: CacheStore, command: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename == STANDARD_OUTPUT:
            raise
        remedy = "run it as a user with permission, or choose another folder"
        raise unusable(error, store.folder, f"cache {command}", remedy) from error


def _entries(store: CacheStore) -> list[_Entry]:
    found: list[_Entry] = [*store.entries(), *rows.kept_folders(store.folder), *fetched_in(store.folder)]
    return sorted(found, key=lambda entry: -entry.used_s)


def _removed(store: CacheStore, key: str) -> bool:
    """Remove a cache, kept columns, or all that is fetched but what is in use; return False if it is in use."""
    if key == FETCHED:
        return remove_unused(store.folder)
    return rows.remove(store.folder, key) if key.startswith("rows-") else store.remove(key)


def _list(store: CacheStore, _known: Namespace) -> list[Part]:
    entries = _entries(store)
    columns = [Col(name, itemgetter(place), ",.1f" * (name == "MB")) for place, name in enumerate(_HEADER)]
    return [Table([_row(entry) for entry in entries], columns), _told([*_end(store, entries)])]


def _told(lines: list[str]) -> Lines:
    return Lines([Line("", line) for line in lines])


def _end(store: CacheStore, entries: list[_Entry]) -> Iterator[str]:
    for name, reason in strangers(store.folder):
        yield f"ignored {name}: {reason}"
    total_bytes = sum(entry.bytes for entry in entries)
    yield f"{counted(len(entries), 'cache')} ({total_bytes / 1e6:,.1f} MB) in {store.folder}"


def _row(entry: _Entry) -> tuple[str | int | float | None, ...]:
    title, elements, count, made_s, state = "?", "?", None, None, BROKEN
    if isinstance(entry, ListedBeside):
        title, elements, count, made_s, state = entry.title, entry.elements, entry.count, entry.made_s, entry.state
    elif entry.manifest is not None:
        made, count, state = entry.manifest.made_by, entry.manifest.count, IN_USE if entry.in_use else READY
        elements = next((str(value) for name, value in entry.manifest.identity if name == "kept"), "?")
        title, made_s = f"{made.get('dataset', '?')} {made.get('split', '?')}", made.get("made_s")
    age = _age(made_s) if isinstance(made_s, float) else None
    return entry.key, title, elements, count, entry.bytes / 1e6, age, _age(entry.used_s), state


def _values(entry: _Entry) -> dict[str, object]:
    """Return an entry of the list as plain values, `used_s` in seconds since 1970."""
    known, names = dict(zip(_HEADER, _row(entry), strict=True)), ("key", "dataset", "elements", "examples", "state")
    return {**{name: known[name] for name in names}, "bytes": entry.bytes, "used_s": entry.used_s}


def _age(moment_s: float) -> str:
    """Format the time since `moment_s`, in seconds since 1970."""
    passed = max(0.0, time.time() - moment_s)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{passed / length:.0f} {unit} ago"
    return f"{passed:.0f} s ago"


def _collect(store: CacheStore, known: Namespace) -> list[Part]:
    """Remove the least recently used caches, and what killed runs have left; without `--yes` only show them."""
    left = itertools.chain(store.leftovers(), rows.leftovers(store.folder)) if known.yes else ()
    names = ((f"{leftover.name}, left by a killed run", reason) for leftover, reason in left)
    told = [f"kept {name}: {reason}" if reason else f"removed {name}" for name, reason in names]
    entries = _entries(store)
    total_bytes = sum(entry.bytes for entry in entries)
    is_any = False
    for entry in reversed(entries):
        if total_bytes <= known.max_bytes:
            break
        if reason := _kept(store, entry) if known.yes else "in use" * entry.in_use:
            told.append(f"kept {entry.key}, {entry.bytes / 1e6:,.1f} MB: {reason}")
            continue
        is_any, total_bytes = True, total_bytes - entry.bytes
        verb = "removed" if known.yes else "would remove"
        told.append(f"{verb} {entry.key}, {entry.bytes / 1e6:,.1f} MB, used {_age(entry.used_s)}")
    told += _end(store, _entries(store))
    return [
        _told([*told, *["add --yes to remove what is shown, and what killed runs have left"] * (is_any > known.yes)])
    ]


def _kept(store: CacheStore, entry: _Entry) -> str:
    """Remove a cache; return why it is kept, empty if it is removed."""
    try:
        return "" if _removed(store, entry.key) else "in use"
    except PermissionError as error:
        return str(error.strerror)


def _remove(store: CacheStore, known: Namespace) -> list[Part]:
    keys = [entry.key for entry in _entries(store)]
    found = [key for key in keys if key.startswith(known.key)]
    if len(found) != 1:
        what = f"{len(found)} caches with this prefix" if found else "no such cache"
        expected = f"the key of a cache in {store.folder}, or a unique prefix"
        remedy = did_you_mean(known.key, keys, otherwise="list them with: etlrun cache ls")
        raise WorldError(f"cache rm {known.key}", what, expected, remedy)
    if not _removed(store, found[0]):
        remedy = "wait for the run to end"
        raise WorldError(f"cache rm {known.key}", "a cache in use", "a cache that no run uses", remedy)
    return [_told([f"removed {found[0]}"])]


def why(known: Namespace) -> Answer:
    """Explain hits and misses of the caches of a config."""
    from etlrun.config import grid  # which the other parts, and the help, do without
    from etlrun.run.readings import keepers_for
    from etlrun.stages import STAGES

    plan = grid.resolve(known.request.resuming(), STAGES).plan
    if not plan.spec.cache.outlives_run:
        found = f"{plan.spec.cache.path}, which other runs can't read"
        raise ConfigError([Fault("cache", found, DiskCache.path, "add cache=disk to explain a cache on disk")])
    lines = [Line(*line) for name, keeper in keepers_for(plan).items() for line in _explained(name, keeper)]
    return Answer(Doc("Caches of a config", [Lines(lines)], json=lambda: {of.label: of.text for of in lines}))


def _explained(name: str, keeper: Keeper) -> Iterator[tuple[str, str]]:
    """Yield what the cache of a pipeline is, or which cache comes nearest, and why it is not that."""
    with _reported(keeper.store, "why"):
        entries = keeper.store.entries()
    same = next((entry for entry in entries if entry.key == keeper.key), None)
    if same is not None and same.manifest is not None:
        size = f"{same.manifest.count} examples, {same.bytes / 1e6:,.1f} MB"
        yield name, f"hit   {keeper.key}  {size}, used {_age(same.used_s)}"
        return
    near = nearest(keeper.kept.identity, entries)
    if near is None or near.manifest is None:
        yield name, f"miss  {keeper.key}  no cache yet in {keeper.store.folder}"
        return
    what, *sides = first_difference(keeper.kept.identity, near.manifest.identity) or ("nothing", None, None)
    here, there = ("nothing" if value is None else str(value) for value in sides)
    made = near.manifest.made_by
    overrides = " ".join(map(str, made.get("overrides", []))) or "no overrides"
    creator = f"{Path(str(made.get('folder', '?'))).name} with {overrides}"
    near_is = f"nearest is {near.key} ({made.get('dataset', '?')} {made.get('split', '?')}, created by {creator})"
    lines = [f"miss  {keeper.key}", near_is, f"differs in {what}: {there} in the cache, {here} in this config"]
    yield name, "\n      ".join(lines)


TEMPLATE = Path(__file__).parents[1] / "template"
"""Files of a new project, whose package has the name `PLACEHOLDER`."""
PLACEHOLDER = "my_project"
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?")
_TAKEN = ("conf", "outputs", "tests")
"""Folders of a project beside its package."""
_ALLOWED = frozenset({".git"})
"""What a folder may contain that becomes a project."""


_ALL = ("0.0.0.0", "::", "[::]")  # noqa: S104 - which a worker may not have
"""Addresses of all interfaces, at which nobody can be reached."""


def init(known: Namespace) -> Answer:
    """Write a new project; `EtlrunError` if the folder or the name can't be one's, which leaves nothing behind."""
    folder = Path(known.folder)
    name = folder.resolve().name.replace("-", "_") if known.name is None else known.name
    refuse([*_unfit_folder(known.folder), *_unfit_name(name, folder, is_given=known.name is not None)])
    is_tracked = git(folder if folder.is_dir() else folder.parent, "rev-parse", "--git-dir") is not None
    wants_git = not is_tracked and (known.git or _agrees(f"Create a git repository in {folder}? [Y/n] "))
    try:
        _write(folder, name)
    except OSError as error:
        expected = "a folder that can be created and written to"
        raise WorldError(str(folder), str(error.strerror), expected, elsewhere("folder", error)) from error
    if wants_git and git(folder, "init", "--quiet") is None:
        expected = f"a repository in {folder}, where the project is written"
        raise WorldError("git init", "no git, or one that fails", expected, "install git, and run git init there")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    create = "" if is_tracked or wants_git else "git init && "
    lines = [
        ("folder", str(folder)),
        ("begin", f"{enter}pip install -e '.[test]'"),
        ("train", "etlrun experiment=first"),
        ("commit", f"{create}pre-commit install && git add . && git commit -m 'Begin with the template of etlrun'"),
        ("then", "README.md says what is there, and how a change is reviewed"),
    ]
    return Answer(Doc("A new project", [Lines(lines)], json=lambda: dict(lines)))


def _agrees(question: str) -> bool:
    """Ask who sits at the terminal; nobody agrees where there is none."""
    try:
        return sys.stdin.isatty() and input(question).strip().lower() in {"", "y", "yes"}
    except EOFError:
        return False


def _write(folder: Path, name: str) -> None:
    """Write the project beside its folder, or inside one that is there, and move it to its place as a whole."""
    is_there = folder.is_dir()
    temporary = folder / f".{name}.{os.getpid()}" if is_there else folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        for path in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            target = temporary / str(path.relative_to(TEMPLATE)).replace(PLACEHOLDER, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text(encoding="utf-8").replace(PLACEHOLDER, name), encoding="utf-8")
        if is_there:
            for path in temporary.iterdir():
                path.rename(folder / path.name)
        else:
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unfit_folder(given: str) -> Iterator[Fault]:
    folder = Path(given)
    if not given:
        yield fault("DIR", "nothing", "a new or an empty folder", "name one; the current one is .")
    elif folder.is_dir():
        names = sorted(path.name for path in folder.iterdir() if path.name not in _ALLOWED)
        if names:
            more = f" and {len(names) - 1} more" if names[1:] else ""
            remedy = "choose another folder: no file is ever overwritten"
            yield fault(folder, f"a folder with {names[0]}{more}", "a new or an empty folder", remedy)
    elif os.path.lexists(folder):
        found = "a file" if folder.exists() else "a link to what is not there"
        yield fault(folder, found, "a new or an empty folder", "choose another folder")
    elif not (parent := folder.parent).is_dir():
        remedy = f"mkdir -p {shlex.quote(str(parent))}, or choose another folder"
        yield fault(folder, f"no folder {parent}", "a new folder in one that exists", remedy)


def _unfit_name(name: str, folder: Path, *, is_given: bool) -> Iterator[Fault]:
    expected = "a name that Python can import: letters, digits and _, which no other module, package or folder has"
    remedy = "choose another name" if is_given else "choose another folder, or name the package with --name"
    found = f"the name {name!r}"
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in _TAKEN:
        pass
    elif (spec := importlib.util.find_spec(name)) is not None and spec.origin:  # a folder of the project has no origin
        is_file = f"the module {spec.origin}" if spec.has_location else f"a {spec.origin} module of Python"
        found += f", which {is_file} already has"
    else:
        try:
            found += f", which the installed package {metadata.distribution(name).name} already has"
        except metadata.PackageNotFoundError:
            return
    yield fault("--name" if is_given else folder, found, expected, remedy)


def service(known: Namespace) -> None:
    """Serve until a SIGINT or a SIGTERM; `EtlrunError` without `--trusted-network`, a port, a name or a dispatcher."""
    if not known.trusted_network:
        expected = "it, since tf.data's service listens on all interfaces, and neither encrypts nor authenticates"
        remedy = "add --trusted-network where a firewall lets only machines that you trust through"
        raise ConfigError([Fault("--trusted-network", "no such option", expected, remedy)])
    if known.command == "worker" and known.host in _ALL:
        expected = "the name under which runs on other machines reach this one"
        raise ConfigError([Fault("--host", known.host, expected, "name it")])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from etlrun.cluster.service import serve

    if known.command == "dispatcher":
        serve(known.port)
    else:
        serve(known.port or 0, known.dispatcher, known.host)
