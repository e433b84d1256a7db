"""`etlrun init`: begin a project of one's own: configs, a step, a model, tests and the workflow of reviews."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from etlrun.cli import parsers
from etlrun.system.errors import ConfigError, Fault, WorldError, fault
from etlrun.system.terminal import say_whole

TEMPLATE = Path(__file__).parents[1] / "template"
"""Files of a new project, whose package has the name `PLACEHOLDER`."""
PLACEHOLDER = "my_project"
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?")
_TAKEN = ("conf", "outputs", "tests")
"""Folders of a project beside its package."""
_ALLOWED = frozenset({".git"})
"""What a folder may contain that becomes a project."""


def main(arguments: list[str]) -> None:
    """Write a new project; `EtlrunError` if the folder or the name can't be one's, which leaves nothing behind."""
    known = parser().parse_args(arguments)
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
    lines = (
        f"folder    {folder}",
        f"begin     {enter}pip install -e '.[test]'",
        "train     etlrun --config-dir conf experiment=first",
        "then      README.md says what is there, and how a change is reviewed",
    )
    say_whole("".join(f"{line}\n" for line in lines))


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


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = parsers.of_command(
        "init",
        "Write a new project: configs, a step and a model of its own, tests, a workflow that reviews configs, and a "
        "README. No file is overwritten.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder of the project: a new one, or an empty one")
    parser.add_argument("--name", metavar="NAME", help="name of its package; default: that of the folder")
    return parser
