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
from argparse import Namespace
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from operator import itemgetter
from pathlib import Path
from typing import Any

from etlrun.cli.commands import Answer
from etlrun.report.doc import Col, Doc, Lines, Paragraph, Table
from etlrun.stages import UNUSABLE
from etlrun.stages.dataset import Dataset
from etlrun.stages.installed import fault_of, place_of
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, MODELS, PLUGINS, ROWS, STEPS, Plugin
from etlrun.system.errors import DOCS, ConfigError, Fault, WorldError, fault
from etlrun.system.files import elsewhere

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
        expected = "a folder that can be created and written to"
        raise WorldError(str(folder), str(error.strerror), expected, elsewhere("folder", error)) from error
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
    expected = "a name that Python can import: letters, digits and _, which no other module or package has"
    remedy = "choose another name" if is_given else "choose another folder, or name the package with --name"
    found = f"the name {name!r}"
    if not _NAME.fullmatch(name):
        pass
    elif keyword.iskeyword(name):
        found += ", which is a word of Python's"
    elif name in _TAKEN:
        found += ", which another folder of the project has"
    elif (spec := importlib.util.find_spec(name)) is not None and spec.origin:  # a folder of the project has no origin
        is_file = f"the module {spec.origin}" if spec.has_location else f"a {spec.origin} module of Python"
        found += f", which {is_file} already has"
    else:
        try:
            found += f", which the installed package {metadata.distribution(name).name} already has"
        except metadata.PackageNotFoundError:
            return
    yield fault("--name" if is_given else folder, found, expected, remedy)


def plugins(_: Namespace) -> Answer:
    """List what installed packages add by their entry points, and the faults of those that can't be used."""
    found = [_listed(entry, group) for group in _KINDS for entry in entry_points(group=group)]
    columns = [Col(name, itemgetter(name)) for name in ("kind", "name", "package", "version", "where")]
    columns += [
        Col("loads", lambda of: of["fault"] is None),
        Col("fields", lambda of: ["=".join(map(str, each.values())) for each in of["fields"]]),
    ]
    none = Paragraph("" if found else f"no installed package adds anything: see {DOCS}/extending.md")
    faults = [fault for _, fault in found if fault is not None]
    rows = [of for of, _ in found]
    doc = Doc("Plugins", [Table(rows, columns), none], json=lambda: rows)
    return Answer(doc, error=ConfigError(faults) if faults else None)


def _listed(entry: EntryPoint, group: str) -> tuple[dict[str, Any], Fault | None]:
    """Return what an entry point adds, as JSON has it, and why it can't be used; None if it can."""
    plugin, unfit = Plugin.of(entry, entry.name), None
    if group != ROWS:
        unfit = next((fault for fault in UNUSABLE if fault.where == place_of(entry)), None)
        if unfit is None:
            plugin = next(of for of in PLUGINS.values() if (of.group, of.where) == (group, entry.value))
    else:
        expected = "a function without arguments"
        try:
            plugin = Plugin.of(entry, entry.name, made := entry.load())
            unfit = None if inspect.isfunction(made) else fault_of(entry, repr(made), expected)
        except Exception as error:  # noqa: BLE001 - importing another package may raise anything
            unfit = fault_of(entry, f"{type(error).__name__}: {error}", expected)
    made, fields = plugin.made, dict[str, Any]()
    if dataclasses.is_dataclass(made):
        fields = {field.name: field.default for field in dataclasses.fields(made)}
    elif made is not None and group != ROWS:
        fields = plugin.arguments
    values = {
        "kind": "dataset" if isinstance(made, type) and issubclass(made, Dataset) else _KINDS[group],
        **{name: getattr(plugin, name) for name in ("name", "package", "version", "where")},
        "fault": unfit and unfit.found,
        "fields": [{"name": name, **({} if of is _REQUIRED else {"default": of})} for name, of in fields.items()],
    }
    return values, unfit


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
        serve(known.port, known.dispatcher, known.host)
