"""Values in the place of others in a config that has been composed, without OmegaConf where that gives the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

NOT_OF_A_RUN = {"hydra", "sweep", "tune"}
"""Config keys that are not part of a plan."""
MISSING = "???"
"""Placeholder for a mandatory value in a config."""
_REFERENCE = re.compile(r"\$\{([a-z_][\w.]*)\}")
"""A reference to a key from the root of the config; a subset of OmegaConf's."""


class Settable:
    """A composed config for jobs that differ in plain values only."""

    def __init__(self, unresolved: dict[str, Any], resolved: dict[str, Any]) -> None:
        """Keep a config with its references, and with these resolved; neither may be changed from now on."""
        self._unresolved, self._resolved = unresolved, resolved
        self._of_a_run = of_a_run(without_missing(resolved))
        self._targets = _targets(unresolved)

    def with_values(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the config of a run with these values, by dotted key; blocks without a new value are shared.

        None if only OmegaConf can tell: for mappings, references and what they refer to, and keys that no file sets.
        """
        config = self._resolved
        for key, value in values.items():
            keys = key.split(".")
            if not (_is_plain(value) and _has(self._unresolved, keys) and self._is_free(key)):
                return None
            config = _replaced(config, keys, value)
        return {
            name: self._of_a_run[name] if block is self._resolved[name] else without_missing(block)
            for name, block in config.items()
            if name not in NOT_OF_A_RUN and block != MISSING
        }

    def _is_free(self, key: str) -> bool:
        """Return whether no reference leads to a key, to a block around it, or into it."""
        return self._targets is not None and not any(
            f"{key}.".startswith(f"{target}.") or f"{target}.".startswith(f"{key}.") for target in self._targets
        )


def of_a_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without those that are not part of a plan."""
    return {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}


def without_missing(value: Any) -> Any:
    """Return a value without what is missing in it (`???`)."""
    if not isinstance(value, dict):
        return value
    return {key: without_missing(item) for key, item in value.items() if item != MISSING}


def missing(value: Any, key: str = "") -> list[str]:
    """Return the dotted keys of missing values (`???`)."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in missing(item, f"{key}.{name}".lstrip("."))]
    return [key] if value == MISSING else []


def _targets(unresolved: dict[str, Any]) -> set[str] | None:
    """Return the keys that references of a config name; None if one of them is of another kind."""
    texts = [text for text in _texts(unresolved) if "${" in text]
    if any("${" in _REFERENCE.sub("", text) for text in texts):
        return None
    return {target for text in texts for target in _REFERENCE.findall(text)}


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a value, with those that are keys."""
    if isinstance(value, dict):
        yield from (key for key in value if isinstance(key, str))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _is_plain(value: Any) -> bool:
    """Return whether OmegaConf keeps a value as it is."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and _is_text(value))


def _is_text(value: str) -> bool:
    return "${" not in value and value != MISSING


def _has(block: Any, keys: list[str]) -> bool:
    """Return whether a nested value exists that is no block."""
    if not isinstance(block, dict) or keys[0] not in block:
        return False
    return _has(block[keys[0]], keys[1:]) if keys[1:] else not isinstance(block[keys[0]], dict)


def _replaced(block: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    """Return a block with another nested value; what it leaves as it is is shared."""
    name, *inner = keys
    return {**block, name: _replaced(block[name], inner, value) if inner else value}
