"""Values: frozen dataclasses, made by keywords alone."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: _Class) -> _Class:
    """Make a dataclass of a class, which is frozen and takes its fields by keywords alone."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[return-value]
