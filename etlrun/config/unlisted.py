"""Keys of overrides that no file of a config sets."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from etlrun.config.overrides import Axis
from etlrun.system.errors import Fault


def unlisted(base: DictConfig, axes: Sequence[Axis], idle: Container[str]) -> Iterator[Fault]:
    """Yield the faults of valid keys that need a `+`, since no file of this config sets them.

    Keys that are `idle` in a combination belong to another option, and need not be in the files of this one.
    """
    config = OmegaConf.to_container(base)
    for axis in axes:
        for value in axis.values:
            nested = value.plain
            for part in reversed(axis.key.split(".")):
                nested = {part: nested}
            for key in _absent(config, nested):
                if key not in idle:
                    yield Fault(
                        where=key,
                        found="a key that no file of this config sets",
                        expected="an existing key",
                        remedy=f"write +{axis.override.input_line} to add it",
                    )


def _absent(block: Any, values: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of `values` that are missing in a composed `block`."""
    if isinstance(block, dict) and isinstance(values, dict):
        for key, value in values.items():
            if key in block:
                yield from _absent(block[key], value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"
