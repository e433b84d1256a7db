"""Places of the faults that pydantic finds in a block of a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from etlrun.planning.annotations import hints_of, listed_stage, nested_stage
from etlrun.stages.base import Stage

ABSENT = object()
"""Value of a key that a block does not have."""


def innermost(error: ValidationError) -> list[Any]:
    """Return the details of an error, without those of a list whose items have faults: pydantic finds it too short."""
    details = error.errors(include_url=False)
    places = [detail["loc"] for detail in details]
    return [of for of in details if not any(_is_in(place, of["loc"]) for place in places)]


def _is_in(place: tuple[int | str, ...], other: tuple[int | str, ...]) -> bool:
    return len(place) > len(other) > 0 and place[: len(other)] == other


def owner_of(stage_type: type[Stage], location: list[str]) -> tuple[type[Stage], list[str]]:
    """Return the stage type that has the fault, and the keys of the field; a place in a list is `[0]`."""
    keys = location[:1]
    annotation = hints_of(stage_type).get(keys[0])
    nested = nested_stage(annotation)
    if nested is not None and location[1:]:
        inner, deeper = owner_of(nested, location[1:])
        return inner, keys + deeper
    listed = listed_stage(annotation)
    if listed is not None and location[2:]:
        inner, deeper = owner_of(listed, location[2:])
        return inner, [*keys, f"[{location[1]}]", *deeper]
    return stage_type, keys


def value_at(block: Mapping[str, Any], keys: list[str]) -> Any:
    """Return the value that a block has at nested keys; `ABSENT` if it has none."""
    value: Any = block
    for key in keys:
        if key.startswith("[") and isinstance(value, list | tuple):
            value = value[int(key[1:-1])]
        else:
            value = value.get(key, ABSENT) if isinstance(value, Mapping) else ABSENT
    return value
