"""Config files as libyaml parses them: short and plain ones in half of the time of OmegaConf's loader, and counts."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

FAST_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST_BYTES = 8_000  # of blocks nested so deeply libyaml's stack is large enough
_PLAIN = re.compile(rb'(?:#[ -~]*\n|(?:[ "$-=@-{}~][ "-=@-{}~]*)?\n)*')  # lines that both parsers read alike
_FLOAT = re.compile(
    r"[-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+|(?::[0-5]?[0-9])+\.[0-9_]*)$"
    r"|\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?$"
)


class _Loader(FAST_LOADER):  # type: ignore[misc]
    """Loader with OmegaConf's numbers, such as 1e-3, without dates, and without keys that are there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - yaml's
        keys = [str(key.value) for key, _ in node.value]
        if len(keys) > len({*keys}):
            raise yaml.YAMLError
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
for _first, _tags in _Loader.yaml_implicit_resolvers.items():
    _Loader.yaml_implicit_resolvers[_first] = [found for found in _tags if "timestamp" not in found[0]]


def fast(text: bytes) -> DictConfig | None:
    """Return the content of a file; None if OmegaConf has to load it, or to tell what is wrong."""
    if len(text) > _LONGEST_BYTES or _PLAIN.fullmatch(text) is None:
        return None
    try:
        values = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
        return OmegaConf.create(values) if isinstance(values, dict) else None
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, OmegaConfBaseException):
        return None


def node_of(text: bytes) -> yaml.Node | None:
    """Return the nodes of a file; None if it is no YAML, or is empty."""
    for loader in (FAST_LOADER, yaml.SafeLoader):  # Hydra uses the second one, which accepts slightly more
        with suppress(yaml.YAMLError, RecursionError):
            return yaml.compose(text, Loader=loader)
    return None


def error_of(text: bytes) -> yaml.MarkedYAMLError | None:
    """Return the error of libyaml, which is more precise; it must not parse deeply nested text."""
    try:
        yaml.compose(text, Loader=FAST_LOADER)
    except yaml.MarkedYAMLError as error:
        return error
    return None


def conflict_line(text: bytes) -> int | None:
    """Return the line of the first conflict marker of git, which no YAML has; None without one."""
    marker = re.search(rb"^<{7} ", text, re.MULTILINE)
    return None if marker is None else text.count(b"\n", 0, marker.start()) + 1


def count_of(text: bytes) -> int:
    """Return the number of keys and values after expanding aliases: a few lines can expand to billions."""
    if b"*" not in text:
        return 0
    of_anchors: dict[str | None, int] = {}
    inside: list[tuple[str | None, int]] = [(None, 0)]
    try:
        for event in yaml.parse(text, Loader=FAST_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                inside.append((event.anchor, 1))
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, count = inside.pop()
            elif isinstance(event, yaml.NodeEvent):
                anchor = event.anchor
                count = of_anchors.get(anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
            else:
                continue
            of_anchors[anchor] = count
            inside[-1] = (inside[-1][0], inside[-1][1] + count)
    except yaml.YAMLError:  # reported when the file is loaded
        return 0
    return inside[0][1]
