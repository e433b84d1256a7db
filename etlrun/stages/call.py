"""Method calls of `tf.data.Dataset` as values: a graph makes the call, an ejected program contains its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Call:
    """Method call that a stage makes on a dataset.

    Attributes:
        method: Name of a method of `tf.data.Dataset`.
        arguments: Positional arguments: plain values, or those below, which graphs and programs resolve differently.
        keywords: Keyword arguments.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> dict[str, Any]:
        """Arguments that are constants of a program, by name."""
        arguments = (*self.arguments, *self.keywords.values())
        return {argument.name: argument.value for argument in arguments if isinstance(argument, Constant)}


@dataclass(frozen=True)
class Constant:
    """A value that is a named constant of a program."""

    name: str
    value: Any


@dataclass(frozen=True)
class Parallel:
    """A number of calls or elements, which may be left to AUTOTUNE or to the number of cores."""

    value: int | Literal["autotune", "cores", "cores-1"] | None


@dataclass(frozen=True)
class UpToAll:
    """A number of examples, which a graph limits to those of its split."""

    value: int


@dataclass(frozen=True)
class PassSeed:
    """The seed of a pass, which determines all randomness in it and differs for each pass of each run."""
