"""Unused values of a config: those for options that are not selected, such as an experiment's for its own model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etlrun.planning.annotations import hints_of, nested_stage
from etlrun.stages import Stages
from etlrun.stages.base import Stage, field_metadata, selected
from etlrun.system.errors import Fault

TRANSFORM = "transform"


@dataclass(frozen=True, kw_only=True)
class Unused:
    """An unused value.

    Attributes:
        key: Dotted key.
        value: Its value.
        why: The reason.
        found: Description of the value for an error.
        expected: What would be valid instead.
        remedy: The option to choose so that the value is used.
        is_default: Whether a config that omits it means the same.
    """

    key: str
    value: Any
    why: str
    found: str
    expected: str
    remedy: str
    is_default: bool = False

    def fault(self) -> Fault:
        """Return the error for a value that was set explicitly, or by a file that has no other use."""
        return Fault(where=self.key, found=self.found, expected=self.expected, remedy=self.remedy)


def unused(config: Mapping[str, Any], stages: Stages) -> Iterator[Unused]:
    """Yield the values of a composed config for options of its groups that are not selected, or for unused steps.

    Keys that no option has are not included.
    """
    for group, options in stages.items():
        block = config.get(group)
        if isinstance(block, Mapping):
            yield from _of_steps(block, options) if group == TRANSFORM else _of_options(group, block, options)


def told(values: Sequence[Unused]) -> Iterator[str]:
    """Yield a sentence without its period for each reason, with all keys that are unused for it, but for defaults."""
    keys: dict[str, list[str]] = {}
    for value in (value for value in values if not value.is_default):
        keys.setdefault(value.why, []).append(value.key)
    for why, of in keys.items():
        yield f"{', '.join(of)} {'is' if len(of) == 1 else 'are'} unused: {why}"


def without(config: dict[str, Any], values: Iterable[Unused]) -> dict[str, Any]:
    """Remove these values from `config`, with mappings that become empty, and return it."""
    for value in values:
        _take_out(config, value.key.split("."))
    return config


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the innermost values of a mapping with their dotted keys; for another value, the value itself."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from leaves(f"{key}.{name}" if key else str(name), item)
    else:
        yield key, value


def _of_options(group: str, block: Mapping[str, Any], options: Mapping[str, type[Stage]]) -> Iterator[Unused]:
    option = selected(options, block.get("name"))
    if option is None:
        return
    chosen = options[option]
    known = tuple(field_metadata(chosen))
    for name, item in block.items():
        for key, value in leaves(str(name), item) if name != "name" and name not in known else ():
            owners = [f"{group}={option}" for option, other in options.items() if _has(other, key.split("."))]
            if owners:
                yield Unused(
                    key=f"{group}.{key}",
                    value=value,
                    why=f"{' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} it, {chosen.path} does not",
                    found="an unknown key",
                    expected=f"one of the keys {', '.join(known)}" if known else "no key here",
                    remedy=f"choose {' or '.join(owners)}, which has it",
                )


def _of_steps(block: Mapping[str, Any], steps: Mapping[str, type[Stage]]) -> Iterator[Unused]:
    lists = [block.get(name) for name in ("steps", "eval_steps")]
    if not all(isinstance(listed, list | tuple) for listed in lists):
        return
    for name, step in steps.items():
        parameters = block.get(name)
        if not isinstance(parameters, Mapping) or any(name in listed for listed in lists if listed):
            continue
        for key, value in leaves(name, parameters):
            if key == name or _has(step, key.split(".")[1:]):
                yield Unused(
                    key=f"{TRANSFORM}.{key}",
                    value=value,
                    why=f"{name} is not one of the steps",
                    found="a parameter of a step that is not used",
                    expected=f"`{name}` in transform.steps or transform.eval_steps",
                    remedy="add the step, or leave it out",
                    is_default=value == getattr(step, key.partition(".")[2], step),
                )


def _has(stage_type: type[Stage], keys: Sequence[str]) -> bool:
    """Return whether this stage has the nested key."""
    if keys[0] not in field_metadata(stage_type):
        return False
    inner = nested_stage(hints_of(stage_type).get(keys[0]))
    if keys[1:] and inner is not None:
        return _has(inner, keys[1:])
    return True


def _take_out(block: dict[str, Any], keys: Sequence[str]) -> None:
    if keys[1:]:
        _take_out(block[keys[0]], keys[1:])
    if not keys[1:] or not block[keys[0]]:
        del block[keys[0]]
