"""Objects as values: a run makes them, an ejected program contains their text."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
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
class Partial:
    """A function of a module of stages with some of its arguments; a program contains it."""

    function: Callable[..., Any]
    keywords: Mapping[str, Any]


@dataclass(frozen=True)
class UpToAll:
    """A number of examples, which a graph limits to those of its split."""

    value: int


@dataclass(frozen=True)
class PassSeed:
    """The seed of a pass, which determines all randomness in it and differs for each pass of each run."""


@dataclass(frozen=True)
class Named:
    """A function or a class, which a program imports with Keras, or contains with its source.

    Attributes:
        path: Its module and its name.
    """

    path: str


@dataclass(frozen=True)
class Made(Named):
    """What a function or a class returns.

    Attributes:
        arguments: Positional arguments: plain values, values of this module, or lists of them.
        keywords: Keyword arguments.
    """

    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """An expression of a program in place of a value that only a run knows: a number, or a list of names."""

    text: str

    def __sub__(self, other: int) -> Text:
        return Text(f"{self.text} - {other}")


def quoted(text: str) -> str:
    """Return a string literal, in double quotes unless that takes more escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text else literal


def user_path(path: str) -> str | Text:
    """Return a path as a value of a program, with `~` expanded where the program runs."""
    return Text(f"str(pathlib.Path({quoted(path)}).expanduser())") if path.startswith("~") else path


def make(value: Any) -> Any:
    """Return the object that a value stands for, and lists and dicts of such; any other value is returned as it is."""
    match value:
        case Made():
            return _named(value.path)(*map(make, value.arguments), **make(dict(value.keywords)))
        case Named():
            return _named(value.path)
        case list():
            return [make(each) for each in value]
        case dict():
            return {name: make(each) for name, each in value.items()}
    return value


def _named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
