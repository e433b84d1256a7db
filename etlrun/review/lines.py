"""Location of config faults: the file and the line that set the key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from etlrun.config.files import Layer
from etlrun.config.libyaml import node_of
from etlrun.config.refusals import in_file
from etlrun.review.folders import Folders
from etlrun.system.errors import Fault


@dataclass(frozen=True)
class Entry:
    """A key in a file.

    Attributes:
        key: Dotted key in the composed config.
        line: Line number, from 1.
        file: Name of the file in messages.
    """

    key: str
    line: int
    file: str


@cache
def entries(text: bytes, package: str, file: str) -> tuple[Entry, ...]:
    """Return the keys that a file sets, outer before inner ones; empty if it is not a mapping."""
    node = node_of(text)
    return tuple(
        Entry(key, line, file)
        for key, line in _keys(node, f"{package}." if package else "")
        if not key.startswith((f"{package}.defaults".lstrip("."), "hydra"))
    )


def _keys(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _keys(value, f"{prefix}{key.value}.")


def located(fault: Fault, layers: Sequence[Layer], folders: Folders, words: Sequence[str]) -> Fault:
    """Return the fault with the location of its key: the last file and line that set it, or its parent.

    With configs of a user it is in one of these: no other can be mended.
    """
    found = _in_working_tree(fault, layers, folders, words)
    prefix = revision_prefix(folders)
    if found.file:
        return replace(found, file=f"{prefix}{found.file}")
    return replace(found, where=f"{prefix}{found.where}")


def _in_working_tree(fault: Fault, layers: Sequence[Layer], folders: Folders, words: Sequence[str]) -> Fault:
    if fault.where == "config":
        return _without_key(fault, folders, words)
    if fault.file:  # one that can't be loaded
        return replace(fault, file=folders.name(Path(fault.file)))
    if fault.where.startswith("/"):  # a path; keys are dotted
        return replace(fault, where=folders.name(Path(fault.where)))
    own = [layer for layer in layers if folders.own is not None and layer.path.is_relative_to(folders.own)]
    place = place_of(fault.where, own or layers, folders) or chosen_in(own, fault.where.partition(".")[0], folders)
    if place is not None:
        return replace(fault, file=place.file, line=place.line)
    return replace(fault, file=folders.name(own[-1].path)) if own else fault


def _without_key(fault: Fault, folders: Folders, words: Sequence[str]) -> Fault:
    names = [name for name, path in folders.paths.items() if folders.own is None or path.is_relative_to(folders.own)]
    fault = in_file(fault, {name: folders.files[name].decode(errors="replace") for name in names}, words)
    option = next(filter(folders.is_own, words), None)
    if option is not None and not fault.file:
        return of_whole(fault, folders.file_of(option), folders)
    return fault if fault.file or not words else replace(fault, where=" ".join(words))


def of_whole(fault: Fault, file: str, folders: Folders) -> Fault:
    """Return a fault without a key as that of a whole file, at its defaults list if it is about one."""
    lines = folders.files[file].decode(errors="replace").splitlines()
    found = (number for number, line in enumerate(lines, 1) if line.startswith("defaults"))
    return replace(fault, where="", file=file, line=next(found, None) if "defaults list" in fault.found else None)


def place_of(key: str, layers: Sequence[Layer], folders: Folders) -> Entry | None:
    """Return the last entry of these files that sets a key, or its parent; None if none of them does."""
    found = [
        entry
        for layer in layers
        for entry in entries(folders.files.get(folders.name(layer.path), b""), layer.package, folders.name(layer.path))
    ]
    key = re.sub(r"\[.*", "", key)
    while key:
        places = [entry for entry in found if entry.key == key]
        places = places or [Entry(key, 1, folders.name(layer.path)) for layer in layers if layer.package == key]
        if places:
            return places[-1]
        key = key.rpartition(".")[0]
    return None


def chosen_in(layers: Sequence[Layer], group: str, folders: Folders) -> Entry | None:
    """Return the last entry of the defaults lists of these files that chooses an option of a group."""
    found = None
    for layer in layers:
        name = folders.name(layer.path)
        node = node_of(folders.files.get(name, b""))
        top = {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
        items = top["defaults"].value if isinstance(top.get("defaults"), yaml.SequenceNode) else []
        for key, _ in (pair for item in items if isinstance(item, yaml.MappingNode) for pair in item.value):
            if re.fullmatch(rf"(override\s+)?/?{re.escape(group)}(@.*)?", str(key.value)):
                found = Entry(group, key.start_mark.line + 1, name)
    return found


def revision_prefix(folders: Folders) -> str:
    """Return the prefix of file names in messages; empty for the working tree."""
    return f"{folders.revision}:" if folders.revision else ""
