"""Overrides of a config that is composed already, such as the frozen one of a run."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

from etlrun.config.grammar import parsed
from etlrun.config.request import Request, composed
from etlrun.planning.spec import GROUPS, parse_command, show
from etlrun.stages.sweep import Sweep
from etlrun.system.errors import ConfigError, Fault, did_you_mean


def overlaid(
    config: Mapping[str, Any], words: Sequence[str], config_dir: str | None
) -> tuple[dict[str, Any], set[str]]:
    """Return `config` with overrides, and their keys: options replace whole groups, values replace single ones.

    Options are those of the project's configs, and of the folder `config_dir`.

    Raises:
        ConfigError: Overrides are not in Hydra's grammar, have several values, or name an unknown group or option.
    """
    overrides, faults = parsed(words, None)
    faults += [fault for override in overrides for fault in _unfit(override)]
    overlay = copy.deepcopy(dict(config))
    for override in sorted(overrides, key=lambda override: "." in override.key_or_group):  # groups first, as in Hydra
        *path, name = override.key_or_group.split(".")
        if not path and name in GROUPS:
            try:
                overlay[name] = composed(Request(overrides=[str(override.input_line)], config_dir=config_dir))[name]
            except ConfigError as error:
                faults += [dataclasses.replace(fault, where=name) for fault in error.faults]
        elif path:
            put(overlay, override.key_or_group, override.value())
    if faults:
        raise ConfigError(faults)
    return overlay, {override.key_or_group for override in overrides}


def changed(sweep: Sweep, words: Sequence[str]) -> Sweep:
    """Return `sweep` with overrides applied; the rules that selected its jobs can no longer be changed."""
    overrides, faults = parsed(words, None)
    values = dataclasses.asdict(sweep)
    for override in overrides:
        key = str(override.key_or_group).removeprefix("sweep.")
        if key in {"exclude", "zip"}:
            expected = "the rules that the sweep started with"
            faults.append(
                Fault(where=f"sweep.{key}", found="different rules", expected=expected, remedy="leave it out")
            )
        values[key] = override.value()
    if values["vary_seed"] != sweep.vary_seed:
        found, expected = show(values["vary_seed"]), f"{show(sweep.vary_seed)}, as at the start of the sweep"
        faults.append(Fault(where=Sweep.key("vary_seed"), found=found, expected=expected, remedy="start a new sweep"))
    if faults:
        raise ConfigError(faults)
    return parse_command(values, Sweep)


def _unfit(override: Override) -> Iterator[Fault]:
    key, known = override.key_or_group, GROUPS
    if override.is_delete() or override.is_add() or override.is_sweep_override():
        found = "several values" if override.is_sweep_override() else str(override.input_line)
        yield Fault(where=key, found=found, expected="KEY=VALUE with one value, for a key of the run's config")
    elif "." not in key and key not in known:
        listed, remedy = f"one of the groups {', '.join(known)}", did_you_mean(key, known)
        yield Fault(where=key, found="an unknown group", expected=listed, remedy=remedy)


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key; what stands in the place of a block on the way is replaced."""
    *path, name = key.split(".")
    for part in path:
        inner = values.get(part)
        values[part] = values = inner if isinstance(inner, dict) else {}
    values[name] = value
