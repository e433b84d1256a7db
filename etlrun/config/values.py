"""Plain values of configs: files and overrides are merged as OmegaConf merges them, in a tenth of its time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

NOT_OF_A_RUN = {"hydra", "sweep", "tune"}
"""Config keys that are not part of a plan."""
MISSING = "???"
"""Placeholder for a mandatory value in a config."""
_REFERENCE = re.compile(r"\$\{([a-z_]\w*(?:\.[a-z_]\w*)*)\}", re.IGNORECASE | re.ASCII)
"""A reference to a key from the root of the config; a subset of OmegaConf's."""


class OnlyOmegaConf(Exception):  # noqa: N818 - no error
    """Values that can't be merged, or whose result depends on others: OmegaConf has to tell."""


def merged(old: Any, new: Any, *, adds: bool = True) -> Any:
    """Return a value with another one merged into it, which may share blocks of both; neither is changed.

    Raises:
        OnlyOmegaConf: A block meets a list or a reference; or, unless it `adds` keys, one that is not there.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        found = dict(old)
        for key, value in new.items():
            if not (key in old or adds):
                raise OnlyOmegaConf
            if key not in old or value != MISSING:
                found[key] = merged(old[key], value, adds=adds) if key in old else value
        return found
    kinds = {type(old), type(new)}
    if dict in kinds and (list in kinds or refers(old)):
        raise OnlyOmegaConf
    return new


def with_override(config: dict[str, Any], override: Override) -> dict[str, Any]:
    """Return a config, which is not changed, with a value that is set, added or deleted as Hydra does it.

    Raises:
        OnlyOmegaConf: Hydra refuses it, or only OmegaConf can tell.
    """
    keys, value = override.key_or_group.split("."), override.value()
    old = _selected(config, keys)
    if override.is_delete() and value is None and old not in (None, MISSING):
        return _without(config, keys)
    is_free = override.is_force_add() or isinstance(value, dict | list) or old in (None, MISSING)
    if override.is_delete() or (override.is_add() and not is_free):
        raise OnlyOmegaConf
    return with_value(config, keys, value, adds=override.is_add() or override.is_force_add())


def with_value(block: dict[str, Any], keys: Sequence[str], value: Any, *, adds: bool = True) -> dict[str, Any]:
    """Return a block with a nested value; what it leaves as it is is shared. `OnlyOmegaConf` as for `merged`."""
    name, *inner = keys
    if not _is_plain(value) or not (name in block or adds) or (inner and not isinstance(block.get(name, {}), dict)):
        raise OnlyOmegaConf
    if inner:
        value = with_value(block.get(name, {}), inner, value, adds=adds)
    elif name in block:
        value = merged(block[name], value, adds=adds)
    return {**block, name: value}


def resolved_in(config: Mapping[str, Any], value: Any) -> Any:
    """Return a value with references such as `${load.batch_size}` resolved; `OnlyOmegaConf` for all others."""
    if isinstance(value, dict):
        return {key: resolved_in(config, item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved_in(config, item) for item in value]
    if not isinstance(value, str) or not refers(value):
        return value
    reference = _REFERENCE.fullmatch(value)
    found = None if reference is None else _selected(config, reference[1].split("."))
    if found is None or refers(found) or MISSING in repr(found):
        raise OnlyOmegaConf
    return found


def of_a_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without those that are not part of a plan."""
    return {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}


def without_missing(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value without what is missing in it (`???`)."""
    return {
        key: without_missing(item) if isinstance(item, dict) else item for key, item in value.items() if item != MISSING
    }


def missing(value: Any, key: str = "") -> list[str]:
    """Return the dotted keys of missing values (`???`)."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in missing(item, f"{key}.{name}".lstrip("."))]
    return [key] if value == MISSING else []


def refers(value: Any) -> bool:
    """Return whether a value has references."""
    return "${" in repr(value)


def _selected(block: Any, keys: Sequence[str]) -> Any:
    """Return a nested value; None if there is none."""
    for key in keys:
        if not isinstance(block, dict):
            raise OnlyOmegaConf
        if key not in block:
            return None
        block = block[key]
    if isinstance(block, str) and refers(block):
        raise OnlyOmegaConf
    return block


def _without(block: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    name, *inner = keys
    if inner:
        return {**block, name: _without(block[name], inner)}
    return {key: value for key, value in block.items() if key != name}


def _is_plain(value: Any) -> bool:
    """Return whether OmegaConf keeps a value as it is."""
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and "${" not in value and value != MISSING)
    )
