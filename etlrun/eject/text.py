"""Python's text, laid out as `ruff format` does at 120 columns."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from typing import Any

COLUMNS = 120
_ROOM = 98
"""Of them, that a call may take in one line: what the deepest one has left."""


def quoted(text: str) -> str:
    """A literal, in double quotes unless that takes more escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text else literal


def literal(value: Any) -> str:
    """Return the literal of a plain value."""
    return quoted(value) if isinstance(value, str) else repr(value)


def call(function: str, *arguments: str) -> str:
    """A call in one line, or with a line for each argument where that gets too long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= _ROOM and "\n" not in line:
        return line
    return "\n".join([f"{function}(", *(indent(f"{argument},", "    ") for argument in arguments), ")"])


def listed(*items: str) -> str:
    """A list with a line for each item."""
    return "\n".join(["[", *(indent(f"{item},", "    ") for item in items), "]"])


def mapping(before: str, items: Mapping[str, str]) -> str:
    """Return a dict in one line, or with a line for each item where that gets too long."""
    lines = [f"{key}: {value}" for key, value in items.items()]
    line = f"{before}{{{', '.join(lines)}}}"
    return line if len(line) <= _ROOM else "\n".join([f"{before}{{", *(f"    {of}," for of in lines), "}"])


def function(signature: str, says: str, *body: str, decorator: str = "") -> str:
    """A function with a docstring; `body` is not indented yet."""
    head = f"{decorator}\ndef {signature}:\n" if decorator else f"def {signature}:\n"
    return head + indent("\n".join([f'"""{says}"""', *body]), "    ")


def constant(name: str, literal: str) -> str:
    """An assignment, which takes lines of its own where one is too short for a literal that fits into another."""
    line = f"{name} = {literal}"
    return line if len(line) <= COLUMNS or len(literal) > COLUMNS - 4 else f"{name} = (\n    {literal}\n)"


def path(text: str) -> str:
    """An expression for a path of this machine or another."""
    return f"str(pathlib.Path({quoted(text)}).expanduser())" if text.startswith("~") else quoted(text)


def parallel(value: int | str | None) -> str:
    """A config's number of calls or buffer, as tf.data takes it."""
    words = {"autotune": "tf.data.AUTOTUNE", "cores": "CORES", "cores-1": "max(1, CORES - 1)"}
    return words.get(str(value), str(value))
