"""Resolvers in configs, such as `${oc.env:NAME}`: those that read the machine are refused, and never called.

A config means the same on every machine, and a review shows nothing of the machine on which it is made. An option
of a store may name a variable of the environment, which is read when the store is opened, and stays a text until then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from etlrun.config.folders import POLICY
from etlrun.config.libyaml import node_of
from etlrun.system.errors import Fault, did_you_mean
from etlrun.system.hidden import FORM, Variable

_OF_THE_CONFIG = frozenset({"oc.select", "oc.dict.keys", "oc.dict.values", "oc.deprecated"})
"""Resolvers that read only other values of the config; `oc.create` and `oc.decode` can call others in their text."""
_OF_THE_MACHINE = frozenset({"hydra", "now", "python_version"})
"""Resolvers that Hydra registers when it starts."""
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_LEFT = re.compile(r"\$\{\s*([^:\s${}\[\]'\"]*)\s*:")
_HYDRA = "hydra"
_STORE = ("dataset", "storage")
"""Keys of the block whose values may name variables."""


def machine_resolvers(text: str) -> list[str]:
    """Return the names of the resolvers in a value that may read the machine, each once; escapes make no difference."""
    names = []
    while (match := _INNERMOST.search(text)) is not None:
        name, colon, _ = match[1].partition(":")
        names += [name.strip()] if colon else []
        text = f"{text[: match.start()]}_{text[match.end() :]}"
    return [name for name in dict.fromkeys([*names, *_LEFT.findall(text)]) if name not in _OF_THE_CONFIG]


def _fault(where: str, names: list[str], remedy: str) -> Fault:
    found = f"the resolver{'s' * (len(names) > 1)} {', '.join(names)}"
    expected = "a value that is the same on every machine"
    return Fault(where=where, found=found, expected=expected, remedy=f"write the value{remedy}")


def with_names(values: dict[str, Any]) -> dict[str, Any]:
    """Return a composed config in which resolving leaves variables of options of a store as they are."""
    group, block = _STORE
    store = (values.get(group) or {}).get(block) if isinstance(values.get(group), dict) else None
    if not isinstance(store, dict) or not any(map(Variable.of, store.values())):
        return values
    kept = {name: f"\\{value}" if Variable.of(value) else value for name, value in store.items()}
    return {**values, group: {**values[group], block: kept}}


def _is_of_store(keys: Sequence[str], value: str) -> bool:
    return tuple(keys[:-1]) == _STORE and Variable.of(value) is not None


def in_values(value: Any, key: str = "") -> Iterator[Fault]:
    """Yield the faults of a composed config, by dotted key; its references are not resolved yet."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from in_values(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from in_values(item, key)
    elif isinstance(value, str) and (names := machine_resolvers(value)) and not _is_of_store(key.split("."), value):
        yield _fault(key, names, f', or give it on the command line: {key}="$NAME"')


def in_override(word: str) -> Iterator[Fault]:
    """Yield the fault of an override, unless it is one of Hydra's own, whose folders may be named after the machine."""
    key, _, value = word.partition("=")
    if key.lstrip("+").startswith((f"{_HYDRA}.", f"{_HYDRA}/")) or not (names := machine_resolvers(value)):
        return
    if unknown := [name for name in names if name not in _OF_THE_MACHINE and not OmegaConf.has_resolver(name)]:
        known = sorted(_OF_THE_CONFIG)
        expected = f"one of the resolvers {', '.join(known)}, or a reference such as ${{trainer.epochs}}"
        close, found = (
            did_you_mean(unknown[0], known, otherwise="write the value"),
            f"the unknown resolver {unknown[0]}",
        )
        yield Fault(where=key.lstrip("+"), found=found, expected=expected, remedy=close)
    elif tuple(key.lstrip("+").split(".")[:2]) == _STORE and not machine_resolvers(FORM.sub("", value)):
        found, expected = (
            f"the resolver {', '.join(names)}",
            "a value, since Hydra writes those of overrides into folders",
        )
        remedy = "write it into a config file, where the text stays as it is, and choose that file"
        yield Fault(where=key.lstrip("+"), found=found, expected=expected, remedy=remedy)
    else:
        yield _fault(key.lstrip("+"), names, f', or let the shell put it in: {key}="$NAME"')


@lru_cache(maxsize=1_000)
def in_file(text: bytes, file: str) -> Fault | None:
    """Return the fault of the first such value of a config file that can be loaded; None if there is none.

    Hydra's own config may read the machine, but for where further configs are.
    """
    if b"${" not in text and b"\\" not in text:  # with which YAML writes any letter
        return None
    is_hydras = _HYDRA in Path(file).parent.parts
    for key, line, value in _scalars(node_of(text), ()):
        names = machine_resolvers(value)
        is_others = key[:1] == ("defaults",) or key[:2] == (_HYDRA, "searchpath")
        is_free = not is_others and (is_hydras or key[:1] == (_HYDRA,) or _is_of_store((*_STORE[:1], *key[-2:]), value))
        if names and not is_free:
            remedy = "" if file.endswith(POLICY) else ", or ??? and give it on the command line"
            found = _fault(".".join(key), names, remedy)
            return replace(found, file=file, line=line)
    return None


def _scalars(node: yaml.Node | None, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Yield the scalars that are no keys: their keys from outside in, their line, from 1, and their text."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(value, (*keys, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item, keys)
    elif isinstance(node, yaml.ScalarNode):
        yield keys, node.start_mark.line + 1, node.value
