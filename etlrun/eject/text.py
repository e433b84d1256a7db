"""Text of values, as `ruff format` has it at 120 columns, and sources of this package, in programs."""

import ast
import functools
import importlib
import inspect
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from types import FunctionType, ModuleType
from typing import Any

from etlrun.eject.printed import NOWHERE, records
from etlrun.stages import columns, extract, flow, image, installed, load, mix, model, network, words
from etlrun.stages.dataset import Dataset
from etlrun.stages.made import Constant, Made, Named, Parallel, Partial, PassSeed, Text, UpToAll, quoted
from etlrun.stages.plugins import functions_at, names_outside, source

_STAGES = (columns, extract, flow, image, installed, load, mix, model, network, words)


def of_data(dataset: Dataset) -> dict[str, Any]:
    """Return what programs know by name: functions of stages, those of `records`, and of the kind of a dataset."""
    own = vars(importlib.import_module(dataset.printed))
    parts = [*map(vars, (*_STAGES, records)), own, {name: own[of] for name, of in dataset.printed_as.items()}]
    return {name: value for part in parts for name, value in part.items() if value is not NOWHERE}


def missing(dataset: Dataset) -> list[str]:
    """Return the functions that programs need for the kind of a dataset, and its module does not have."""
    own = {*vars(importlib.import_module(dataset.printed)), *dataset.printed_as}
    needed = ["classes", "parts_of", *(["parse", "by_number", "labels_of"] if "reader" in own else [])]
    return [name for name in needed if name not in own]


def complete(known: Mapping[str, Any], texts: Iterable[str]) -> Iterator[str]:
    """Yield texts, each behind the functions and classes that it names, and those that these name; each once."""
    texts = [*texts]
    own = dict.fromkeys(name for text in texts for name in re.findall(r"^def (\w+)", text, re.MULTILINE))
    seen = set[str]()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield from _named(text, {**known, **own}, {}, seen)
            yield text


def names_in(text: str) -> Iterator[str]:
    """Yield the names that a text does not define in its functions: of modules, functions and constants."""
    return names_outside(compile(text, "program", "exec", dont_inherit=True))


def _named(text: str, known: Mapping[str, Any], outside: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """Yield what a text names and is not yet `seen`, of functions that may call each other."""
    for name in names_in(text):
        made = known.get(name, outside.get(name))
        made = made if isinstance(made, ModuleType) else inspect.unwrap(made)  # which may be imported lazily
        found = _classes().get(name, text)
        if isinstance(made, FunctionType) and (name in known or made.__module__.startswith("etlrun.")):
            found = source(made).replace("@staticmethod\n", "", 1).replace("  # type: ignore[override]", "")
            found = found.replace(f"def {made.__name__}(", f"def {name}(", 1)
        if found not in seen:
            seen.add(found)
            yield from _named(found, known, getattr(made, "__globals__", {}), seen)
            yield found


@functools.cache
def _classes() -> dict[str, str]:
    """Return the texts of the classes of a run's objects of Keras, which can't be imported without TensorFlow."""
    text = Path(__file__).parents[1].joinpath("run", "custom_objects.py").read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    texts = {node.name: str(ast.get_source_segment(text, node)) for node in found}
    return {name: text.replace(f"-> {name}:", f'-> "{name}":') for name, text in texts.items()}


COLUMNS = 120
_ROOM, _ROOM_OF_LIST = 98, 90
"""Columns of a call and of a list in one line: those that remain for the most indented one."""


_PARALLEL: dict[Any, str] = {"autotune": "tf.data.AUTOTUNE", "cores": "CORES", "cores-1": "max(1, CORES - 1)"}


def literal(value: Any) -> str:
    """Return the text of a plain value, or of one that stands for an object: see `Made`."""
    match value:
        case Made():
            text = call(literal(Named(value.path)), *map(literal, value.arguments), *keywords(value.keywords))
        case Named():
            is_printed = value.path.startswith("etlrun.") or functions_at(value.path)
            text = value.path.rpartition(".")[2] if is_printed else value.path
        case Text():
            text = value.text
        case Constant():
            text = value.name
        case Parallel():
            text = _PARALLEL.get(value.value, str(value.value))
        case UpToAll():
            text = str(value.value)
        case PassSeed():
            text = "seed"
        case Partial():
            text = call("functools.partial", value.function.__name__, *keywords(value.keywords))
        case list() | tuple() | dict() | set() | frozenset():
            text = _collection(value)
        case _:
            text = _plain(value)
    return text


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
        return laid_out("{", sorted(texts), "}", 0)
    return laid_out("[", texts, "]", _ROOM_OF_LIST)


def keywords(values: Mapping[str, Any]) -> list[str]:
    """Return values as the keyword arguments of a call."""
    return [f"{name}={literal(value)}" for name, value in values.items()]


def laid_out(begin: str, items: Collection[str], end: str, room: int = _ROOM) -> str:
    """Return items in one line, or with a line for each if that takes more columns than there is `room`."""
    line = f"{begin}{', '.join(items)}{end}"
    if len(line) <= room and "\n" not in line:
        return line
    return "\n".join([begin, *(indent(f"{item},", "    ") for item in items), end])


def call(function: str, *arguments: str) -> str:
    """Return a call in one line, or with a line for each argument if it is too long."""
    return laid_out(f"{function}(", arguments, ")")


def mapping(before: str, items: Mapping[str, str]) -> str:
    """Return a dict in one line, or with a line for each item if it is too long."""
    return laid_out(f"{before}{{", [f"{key}: {value}" for key, value in items.items()], "}")


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
    is_whole = len(line) <= COLUMNS or len(literal) > COLUMNS - 4 or "\n" in literal
    return line if is_whole else f"{name} = (\n    {literal}\n)"
