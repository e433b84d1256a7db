"""Config files in today's spelling: deprecated keys in the text of a file are replaced, and nothing else is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import yaml

from etlrun.system.deprecated import DEPRECATIONS, Deprecation, tell
from etlrun.system.errors import ConfigError, Fault, of_file

_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "tag:yaml.org,2002:merge"
_PARAMS = ("hydra", "sweeper", "params")
"""Block whose keys are dotted keys of a config."""
_ITEM = "[]"
"""Part of the path of an item of a list."""
_OF_KEYS = {("sweep", "zip", _ITEM, _ITEM), ("sweep", "exclude", _ITEM)}
"""Texts that name dotted keys of a config."""
_RELATIVE = re.compile(r"\$\{(\.+)([\w.]+)\}")
_MOST_VISITS = 100_000
_BOM = "\ufeff"
Keys = tuple[str, ...]


@dataclass(frozen=True)
class OldKey:
    """A place in the text of a config file that names a deprecated key.

    Attributes:
        of: The deprecation.
        line: Line of the file, from 1.
        start: Index of its first character in the text.
        end: Index behind its last character.
        by: Text in its place; None if it can't be replaced without changing something else.
        beside: Line of the new key in the same block; None if the block doesn't have it.
    """

    of: Deprecation
    line: int
    start: int
    end: int
    by: str | None
    beside: int | None = None

    def fault(self, file: str) -> Fault | None:
        """Return why the file can't be read, or rewritten, with this key; None if it can."""
        old, new = self.of.names
        if self.beside is not None:
            found, expected = f"{self.of.old}, and {self.of.new} in line {self.beside}", f"{self.of.new} alone"
            return of_file(file, found, expected, f"remove `{old}`, the deprecated name", line=self.line)
        if self.by is None:
            found, expected = f"{self.of.old} where it can't be replaced by itself", self.of.new
            remedy = f"write `{new}` in the place of `{old}` by hand"
            return of_file(file, found, expected, remedy, line=self.line)
        return None


def package_of(group: str, text: str) -> str:
    """Return the dotted package of a config file in the folder `group`, which its header may change, as for Hydra."""
    own = group.strip("/").replace("/", ".")
    for line in text[:512].splitlines():
        if line.strip() and (header := re.match(r"\s*#\s*@package\s+(\S+)", line)):
            return header[1].replace("_group_", own).rpartition("_global_")[2].removeprefix(".")
        if line.strip() and not re.match(r"\s*#\s*@", line):
            break
    return own


def current(text: bytes, package: str, file: str) -> bytes:
    """Return the text of a config file in today's spelling, with a warning for each deprecated key in it.

    Raises:
        ConfigError: A key is gone, or given beside its new name, or can't be replaced.
    """
    keys = old_keys(text, package)
    faults = [key.fault(file) for key in keys]
    faults += [key.of.refusal("", file=file, line=key.line) for key in keys if key.of.is_gone]
    if found := [fault for fault in faults if fault is not None]:
        raise ConfigError(found)
    for key in keys:
        tell(f"{file}:{key.line}", key.of)
    return respelled(text, package)


@lru_cache(maxsize=1_000)
def respelled(text: bytes, package: str) -> bytes:
    """Return the text of a file with the deprecated keys replaced that can be."""
    keys = old_keys(text, package)
    if not keys:
        return text
    whole = text.decode()
    for key in reversed(keys):
        whole = whole if key.by is None else f"{whole[: key.start]}{key.by}{whole[key.end :]}"
    return whole.encode()


@lru_cache(maxsize=1_000)
def old_keys(text: bytes, package: str) -> tuple[OldKey, ...]:
    """Return the places that name deprecated keys in a file of that package, in order; none if it isn't YAML."""
    try:
        whole = text.decode()
        if not any(of.names[0] in whole for of in DEPRECATIONS):
            return ()
        walk = _Walk(whole)
        for node in yaml.compose_all(whole.removeprefix(_BOM), Loader=_LOADER):
            walk.visit(node, tuple(package.split(".")) if package else (), frozenset())
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):  # which is told where the file is loaded
        return ()
    return tuple(walk.places())


class _Walk:
    """Walk through the nodes of a file, which meets a node with an anchor once for each alias of it."""

    def __init__(self, text: str) -> None:
        self.text, self.shift, self.visits = text, len(text) - len(text.removeprefix(_BOM)), 0
        self._keys: dict[int, tuple[yaml.Node, str, set[tuple[Deprecation, int | None] | None]]] = {}
        self._values: dict[int, OldKey] = {}

    def places(self) -> Iterator[OldKey]:
        """Yield what has been found, in the order of the text."""
        found = dict(self._values)
        for start, (node, name, meanings) in self._keys.items():
            for meaning in sorted(filter(None, meanings), key=lambda of: of[1] or 0)[-1:]:
                of, beside = meaning
                new = of.new if "." in name else of.names[1]
                inside = _replaced(self._text(node), rf"{re.escape(name)}(?=['\"]?\s*\Z)", new)
                by = inside if len(meanings) == 1 or beside else None  # with an alias it is another key elsewhere
                found[start] = self._place(of, node, by, beside)
        yield from (found[start] for start in sorted(found))

    def visit(self, node: yaml.Node | None, path: Keys, above: frozenset[int]) -> None:
        """Visit a node whose dotted key has the parts `path`; `above` are the nodes around it."""
        self.visits += 1
        if id(node) in above or self.visits > _MOST_VISITS:
            return
        above |= {id(node)}
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                is_merge = key.tag == _MERGE
                if not is_merge and isinstance(key, yaml.ScalarNode):
                    self._key(node, key, path)
                self.visit(value, path if is_merge else (*path, str(key.value)), above)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self.visit(item, (*path, _ITEM), above)
        elif isinstance(node, yaml.ScalarNode):
            self._value(node, path)

    def _key(self, block: yaml.MappingNode, key: yaml.ScalarNode, path: Keys) -> None:
        name = key.value.lstrip("+") if path == _PARAMS else key.value
        dotted = name if path == _PARAMS else ".".join((*path, name))
        of = next((of for of in DEPRECATIONS if of.old == dotted), None)
        if of is None and not any(name == other.names[0] for other in DEPRECATIONS):
            return
        meaning = None
        if of is not None:
            new = of.new if path == _PARAMS else of.names[1]
            other = next((other for other, _ in block.value if other.value == new), None)
            meaning = (of, None if other is None else other.start_mark.line + 1)
        self._keys.setdefault(key.start_mark.index, (key, name, set()))[2].add(meaning)

    def _value(self, node: yaml.ScalarNode, path: Keys) -> None:
        if "${" not in node.value and path not in _OF_KEYS:
            return
        found: list[Deprecation] = []
        by: str | None = self._text(node)
        for of in DEPRECATIONS:
            patterns = {of.pattern: of.new}
            for dots, rest in _RELATIVE.findall(node.value):
                if ".".join((*path[: -len(dots)], rest)) == of.old:
                    new = ".".join((*rest.split(".")[:-1], of.names[1]))
                    patterns[rf"(?<={re.escape(dots)}){re.escape(rest)}(?=\}})"] = new
            for pattern, new in patterns.items():
                if re.search(pattern, node.value):
                    found.append(of)
                    by = None if by is None else _replaced(by, pattern, new)
        if found:
            self._values[node.start_mark.index] = self._place(found[0], node, by)

    def _text(self, node: yaml.Node) -> str:
        return self.text[self.shift + node.start_mark.index : self.shift + node.end_mark.index]

    def _place(self, of: Deprecation, node: yaml.Node, by: str | None, beside: int | None = None) -> OldKey:
        start = self.shift + node.start_mark.index
        return OldKey(of, node.start_mark.line + 1, start, self.shift + node.end_mark.index, by, beside)


def _replaced(text: str, pattern: str, new: str) -> str | None:
    """Return a text with what matches a pattern replaced; None if nothing does, as where YAML has escapes."""
    found, count = re.subn(pattern, new, text)
    return found if count else None
