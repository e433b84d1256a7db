"""Annotations and docstrings of stages: what their fields resolve to, the stages that they hold, and what they mean."""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any

from etlrun.stages.base import Stage

_HINTS: dict[tuple[Any, bool], dict[str, Any]] = {}


def hints_of(stage_type: type[Any], *, include_extras: bool = False) -> dict[str, Any]:
    """Return `typing.get_type_hints` of a stage type, which takes milliseconds, once for each type."""
    key = stage_type, include_extras
    if key not in _HINTS:
        _HINTS[key] = typing.get_type_hints(stage_type, include_extras=include_extras)
    return _HINTS[key]


def listed_stage(annotation: Any) -> type[Stage] | None:
    """Return the type of the stages that a field holds a list of; None if it holds none."""
    args = typing.get_args(annotation)
    if not args:
        return None
    if typing.get_origin(annotation) is tuple:
        return args[0] if isinstance(args[0], type) and issubclass(args[0], Stage) else None
    return next(filter(None, map(listed_stage, args)), None)


def nested_stage(annotation: Any) -> type[Stage] | None:
    """Return the type of the stage that a field holds, which may be optional; None if it holds none."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Stage) else None
    args = () if typing.get_origin(annotation) is tuple else typing.get_args(annotation)
    return next(filter(None, map(nested_stage, args)), None)


def summary_of(*stages: type[Stage]) -> str:
    """Return the first sentence of the docstring of each stage."""
    return " ".join((inspect.getdoc(stage) or "").partition("\n\n")[0].replace("\n", " ") for stage in stages)


def attributes_of(documented: type[Any]) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of its attributes."""
    found: dict[str, str] = {}
    for base in reversed(documented.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")[2]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            found[name] = " ".join(text.split())
    return found
