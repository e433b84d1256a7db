"""Formatting of Python text, as `ruff format` does at 120 columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from textwrap import indent
from typing import Any

from etlrun.stages.made import Made, Named, Text, quoted
from etlrun.stages.plugins import functions_at

COLUMNS = 120
_ROOM, _ROOM_OF_LIST = 98, 90
"""Columns of a call and of a list in one line: those that remain for the most indented one."""


def literal(value: Any) -> str:
    """Return the text of a plain value, or of one that stands for an object: see `Made`."""
    match value:
        case Made():
            return call(literal(Named(value.path)), *map(literal, value.arguments), *keywords(value.keywords))
        case Named():
            is_printed = value.path.startswith("etlrun.") or functions_at(value.path)
            return value.path.rpartition(".")[2] if is_printed else value.path
        case Text():
            return value.text
        case list() | tuple() | dict() | set() | frozenset():
            return _collection(value)
    return _plain(value)


def _plain(value: Any) -> str:
    match value:
        case str():
            return quoted(value)
        case bytes() if '"' not in repr(value):
            return f'b"{repr(value)[2:-1]}"'
        case float() if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value)


def _collection(value: Collection[Any]) -> str:
    texts = [literal(each) for each in value]
    if isinstance(value, dict):
        return mapping("", {key: literal(each) for key, each in zip(texts, value.values(), strict=True)})
    if isinstance(value, tuple):
        return f"({', '.join(texts)}{',' * (len(value) == 1)})"
    if isinstance(value, set | frozenset):
        return listed(*sorted(texts), brackets="{}")
    line = f"[{', '.join(texts)}]"
    return line if len(line) <= _ROOM_OF_LIST else listed(*texts)


def keywords(values: Mapping[str, Any]) -> list[str]:
    """Return values as the keyword arguments of a call."""
    return [f"{name}={literal(value)}" for name, value in values.items()]


def call(function: str, *arguments: str) -> str:
    """Return a call in one line, or with a line for each argument if it is too long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= _ROOM and "\n" not in line:
        return line
    return "\n".join([f"{function}(", *(indent(f"{argument},", "    ") for argument in arguments), ")"])


def listed(*items: str, brackets: str = "[]") -> str:
    """Return a list, or with other brackets a set, with a line for each item."""
    return "\n".join([brackets[0], *(indent(f"{item},", "    ") for item in items), brackets[1]])


def mapping(before: str, items: Mapping[str, str]) -> str:
    """Return a dict in one line, or with a line for each item if it is too long."""
    lines = [f"{key}: {value}" for key, value in items.items()]
    line = f"{before}{{{', '.join(lines)}}}"
    return line if len(line) <= _ROOM else "\n".join([f"{before}{{", *(indent(f"{of},", "    ") for of in lines), "}"])


def function(signature: str, says: str, *body: str) -> str:
    """Return a function with a docstring; `body` is not indented yet."""
    if len(signature) > COLUMNS - len("def :"):
        name, _, rest = signature.partition("(")
        arguments, _, gives = rest.rpartition(") -> ")
        signature = f"{name}(\n    {arguments}\n) -> {gives}"
    return f"def {signature}:\n" + indent("\n".join([f'"""{says}"""', *body]), "    ")


def constant(name: str, literal: str) -> str:
    """Return an assignment, wrapped in parentheses if the line is too long and the literal fits into one."""
    line = f"{name} = {literal}"
    return line if len(line) <= COLUMNS or len(literal) > COLUMNS - 4 else f"{name} = (\n    {literal}\n)"


def parallel(value: int | str | None) -> str:
    """Return a config's number of calls or buffer size as tf.data takes it."""
    words = {"autotune": "tf.data.AUTOTUNE", "cores": "CORES", "cores-1": "max(1, CORES - 1)"}
    return words.get(str(value), str(value))
