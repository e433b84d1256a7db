"""Commands that set up: a new project, what installed packages add, and a service of the input pipeline."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import keyword
import os
import re
import shlex
import shutil
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from etlrun.cli.commands import Answer
from etlrun.report.doc import Col, Doc, Lines, Paragraph, Table
from etlrun.stages import UNUSABLE
from etlrun.stages.dataset import Dataset
from etlrun.stages.installed import fault_of, place_of
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, MODELS, PLUGINS, ROWS, STEPS, Plugin
from etlrun.system.errors import DOCS, ConfigError, Fault, WorldError, fault

TEMPLATE = Path(__file__).parents[1] / "template"
"""Files of a new project, whose package has the name `PLACEHOLDER`."""
PLACEHOLDER = "my_project"
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?")
_TAKEN = ("conf", "outputs", "tests")
"""Folders of a project beside its package."""
_ALLOWED = frozenset({".git"})
"""What a folder may contain that becomes a project."""


_KINDS = {STEPS: "step", MODELS: "model", LOSSES: "loss", METRICS: "metric", CALLBACKS: "callback", ROWS: "rows"}
_REQUIRED = dataclasses.MISSING
_ALL = ("0.0.0.0", "::", "[::]")  # noqa: S104 - which a worker may not have
"""Addresses of all interfaces, at which nobody can be reached."""


def init(known: Namespace) -> Answer:
    """Write a new project; `EtlrunError` if the folder or the name can't be one's, which leaves nothing behind."""
    folder = Path(known.folder)
    name = folder.resolve().name.replace("-", "_") if known.name is None else known.name
    if faults := [*_unfit_folder(known.folder), *_unfit_name(name, folder, is_given=known.name is not None)]:
        raise ConfigError(faults)
    try:
        _write(folder, name)
    except OSError as error:
        raise WorldError(
            where=str(folder),
            found=f"{error.strerror}",
            expected="a folder that can be created and written to",
            remedy="choose another folder, or free disk space",
        ) from error
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    lines = [
        ("folder", str(folder)),
        ("begin", f"{enter}pip install -e '.[test]'"),
        ("train", "etlrun --config-dir conf experiment=first"),
        ("then", "README.md says what is there, and how a change is reviewed"),
    ]
    return Answer(Doc("A new project", [Lines(lines)]))


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
    """Yield the fault of a folder in which something is, or whose parent is none."""
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
    """Yield the fault of a name that no package of Python can have, or that another one has."""
    where = "--name" if is_given else str(folder)
    expected = "a name that Python can import: letters, digits and _, which no other module or package has"
    remedy = "choose another name" if is_given else "choose another folder, or name the package with --name"
    if not _NAME.fullmatch(name):
        yield fault(where, f"the name {name!r}", expected, remedy)
    elif keyword.iskeyword(name):
        yield fault(where, f"the name {name!r}, which is a word of Python's", expected, remedy)
    elif name in _TAKEN:
        yield fault(where, f"the name {name!r}, which another folder of the project has", expected, remedy)
    elif (other := _other(name)) is not None:
        yield fault(where, f"the name {name!r}, which {other} already has", expected, remedy)


def _other(name: str) -> str | None:
    """Return the module or the installed package that has that name; None if none has."""
    spec = importlib.util.find_spec(name)  # a folder without __init__.py is none: it may be that of the project
    if spec is not None and spec.origin:
        return f"the module {spec.origin}" if spec.has_location else f"a {spec.origin} module of Python"
    with suppress(metadata.PackageNotFoundError):
        return f"the installed package {metadata.distribution(name).name}"
    return None


class _Listed(NamedTuple):
    """What an entry point adds, and why it can't be used; None if it can."""

    plugin: Plugin
    fault: Fault | None

    @property
    def kind(self) -> str:
        made = self.plugin.made
        return "dataset" if isinstance(made, type) and issubclass(made, Dataset) else _KINDS[self.plugin.group]

    def fields(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields of a class, or the arguments of a function, with their defaults, or `_REQUIRED`."""
        if dataclasses.is_dataclass(self.plugin.made):
            for field in dataclasses.fields(self.plugin.made):
                yield field.name, field.default
        elif self.plugin.made is not None and self.plugin.group != ROWS:
            yield from self.plugin.arguments.items()

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        plugin = self.plugin
        fields = [{"name": name} | ({} if value is _REQUIRED else {"default": value}) for name, value in self.fields()]
        values = {"kind": self.kind, "name": plugin.name, "package": plugin.package, "version": plugin.version}
        return {**values, "where": plugin.where, "fault": self.fault and self.fault.found, "fields": fields}


def plugins(_: Namespace) -> Answer:
    """List what installed packages add by their entry points, and the faults of those that can't be used."""
    found = [_listed(entry, group) for group in _KINDS for entry in entry_points(group=group)]
    columns = [
        Col("kind", lambda of: of.kind),
        Col("name", lambda of: of.plugin.name),
        Col("package", lambda of: of.plugin.package),
        Col("version", lambda of: of.plugin.version),
        Col("where", lambda of: of.plugin.where),
        Col("loads", lambda of: of.fault is None),
        Col("fields", lambda of: ", ".join(n if v is _REQUIRED else f"{n}={v}" for n, v in of.fields())),
    ]
    none = Paragraph("" if found else f"no installed package adds anything: see {DOCS}/extending.md")
    faults = [of.fault for of in found if of.fault is not None]
    doc = Doc("Plugins", [Table(found, columns), none], json=lambda: [of.as_dict() for of in found])
    return Answer(doc, error=ConfigError(faults) if faults else None)


def _listed(entry: EntryPoint, group: str) -> _Listed:
    if group != ROWS:
        same = (plugin for plugin in PLUGINS.values() if (plugin.group, plugin.where) == (group, entry.value))
        unusable = next((fault for fault in UNUSABLE if fault.where == place_of(entry)), None)
        return _Listed(Plugin.of(entry, entry.name), unusable) if unusable else _Listed(next(same), None)
    expected = "a function without arguments"
    try:
        made = entry.load()
    except Exception as error:  # noqa: BLE001 - importing another package may raise anything
        return _Listed(Plugin.of(entry, entry.name), fault_of(entry, f"{type(error).__name__}: {error}", expected))
    is_fit = inspect.isfunction(made)
    return _Listed(Plugin.of(entry, entry.name, made), None if is_fit else fault_of(entry, repr(made), expected))


def service(known: Namespace) -> None:
    """Serve until a SIGINT or a SIGTERM.

    Raises:
        ConfigError: The network is not said to be trusted, or a worker has no name.
        WorldError: The port is taken, or there is no dispatcher of the same version.
    """
    if not known.trusted_network:
        expected = "it, since tf.data's service listens on all interfaces, and neither encrypts nor authenticates"
        remedy = "add --trusted-network where a firewall lets only machines that you trust through"
        raise ConfigError([Fault(where="--trusted-network", found="no such option", expected=expected, remedy=remedy)])
    if known.command == "worker" and known.host in _ALL:
        expected = "the name under which runs on other machines reach this one"
        raise ConfigError([Fault(where="--host", found=known.host, expected=expected, remedy="name it")])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from etlrun.service.pipeline import dispatch, work

    if known.command == "dispatcher":
        dispatch(known.port, _say)
    else:
        work(known.dispatcher, known.host, known.port, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
