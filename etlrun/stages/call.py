"""Calls of methods of `tf.data.Dataset` as values: a graph makes the call, and an ejected program contains its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Call:
    """A call of a method of a dataset.

    Attributes:
        method: The name of a method of `tf.data.Dataset`.
        arguments: The positional arguments: plain values, or those below, which graphs and programs write differently.
        keywords: The keyword arguments, of the same kinds.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> dict[str, Any]:
        """The named constants among its arguments."""
        arguments = (*self.arguments, *self.keywords.values())
        return {argument.name: argument.value for argument in arguments if isinstance(argument, Constant)}


@dataclass(frozen=True)
class Constant:
    """A value that a program defines at its top, under a name."""

    name: str
    value: Any


@dataclass(frozen=True)
class Parallel:
    """A number of calls or elements as a config has it, which AUTOTUNE or the number of cores may set."""

    value: int | Literal["autotune", "cores", "cores-1"] | None


@dataclass(frozen=True)
class UpToAll:
    """A number of examples, which a graph limits to the size of its split."""

    value: int


@dataclass(frozen=True)
class PassSeed:
    """The seed of everything random in a pass; it differs between the passes of a run."""
