"""Values: frozen dataclasses, made by keywords alone, plain ones by name, groups of values, and hashes of texts."""

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, dataclass_transform

Block = dict[str, Any]
"""Plain values by name, such as a block of a config."""
Composed = Mapping[str, Any]
"""A composed config, or a block of it, which is not changed."""
_Class = TypeVar("_Class", bound=type)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, both in the order of the pairs."""
    found = defaultdict[_Key, list[_Value]](list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def sha256_of(text: str, digits: int = 16) -> str:
    """Return the first hex digits of a SHA-256 over a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: _Class) -> _Class:
    """Make a dataclass of a class, which is frozen and takes its fields by keywords alone."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[return-value]
