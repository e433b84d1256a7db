"""A call of a method of `tf.data.Dataset` as a value: a graph makes it, and an ejected program holds its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Call:
    """What a stage does to a dataset.

    Attributes:
        method: Of `tf.data.Dataset`.
        arguments: By position; plain values, or those below, which a graph and a program say each in its own way.
        keywords: By name.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> dict[str, Any]:
        """Those of its arguments that stand above a program, by their names."""
        arguments = (*self.arguments, *self.keywords.values())
        return {argument.name: argument.value for argument in arguments if isinstance(argument, Constant)}


@dataclass(frozen=True)
class Constant:
    """A value that stands above a program, by a name."""

    name: str
    value: Any


@dataclass(frozen=True)
class Parallel:
    """A config's number of calls or elements, which may be left to AUTOTUNE or to the number of cores."""

    value: int | Literal["autotune", "cores", "cores-1"] | None


@dataclass(frozen=True)
class UpToAll:
    """A number of examples, of which a graph needs no more than its split has."""

    value: int


@dataclass(frozen=True)
class PassSeed:
    """From which all that is random in a pass follows: another one in each pass of each run."""
