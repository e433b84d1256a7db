"""Text of values, as `ruff format` has it at 120 columns, and sources of this package, in programs."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from types import FunctionType, ModuleType
from typing import Any

from etlrun.eject.printed import given, loops
from etlrun.stages.dataset import Dataset
from etlrun.stages.made import Made, Named, Text, quoted
from etlrun.stages.plugins import functions_at, names_outside, source
from etlrun.stages.rows import Rows

_PACKAGE = Path(__file__).parents[1]


def of_data(dataset: Dataset, name: str) -> FunctionType:
    """Return the printed function of that name for the kind of a dataset."""
    return next(_named(dataset, name))


def defines(dataset: Dataset, name: str) -> bool:
    """Return whether the module of the kind of a dataset has a function of that name."""
    return hasattr(importlib.import_module(dataset.printed), name)


def missing(dataset: Dataset) -> list[str]:
    """Return the functions that programs need for the kind of a dataset, and its module does not have."""
    of_records = ("parse", "by_number", "labels_of") if defines(dataset, "reader") else ()
    of_files = () if isinstance(dataset, Rows) else ("paths_of",)
    needed = ("classes", "parts_of", *of_files, "num_examples", *of_records)
    return [name for name in needed if not defines(dataset, name)]


def constants(dataset: Dataset) -> dict[str, Any]:
    """Return the constants of the printed functions for the kind of a dataset, by name."""
    found = {name: value for module in _modules(dataset) for name, value in vars(module).items() if name.isupper()}
    own = {name: value for name, value in found.items() if name not in {*vars(given), *dataset.constants}}
    return {"TARGET": dataset.keys[dataset.examples.target], **dataset.constants, **own}


def _named(dataset: Dataset, name: str) -> Iterator[FunctionType]:
    """Yield the functions of that name, of which the first is that of a dataset."""
    for module in _modules(dataset):
        function = _unwrapped(vars(module).get(name))
        if isinstance(function, FunctionType) and function.__module__ != given.__name__:
            yield function


def _modules(dataset: Dataset) -> Iterator[Any]:
    """Yield what has the functions for a dataset: classes and a module, of which the first that has one counts."""
    yield from map(pkgutil.resolve_name, (*dataset.printed_before, dataset.printed))
    yield from (loops.Skipping, loops) if dataset.on_corrupt == "skip" else (loops,)


def _unwrapped(value: Any) -> Any:
    """Return what a value wraps, as `functools.cache` does; a module is not asked, which may be imported lazily."""
    return value if isinstance(value, ModuleType) else inspect.unwrap(value)


def sources(dataset: Dataset, *functions: Callable[..., Any]) -> tuple[str, ...]:
    """Return the sources of functions, and of all that they call; some of these differ by the kind of dataset."""
    return tuple(dict.fromkeys(text for function in functions for text in _sources(dataset, function)))


def sources_of(dataset: Dataset, value: Any) -> Iterator[str]:
    """Yield the sources of the functions and classes of this package in a value: see `Made`."""
    if isinstance(value, Named) and value.path.startswith("etlrun."):
        yield from _source_of(dataset, value.path)
    elif isinstance(value, Named):
        yield from map(source, functions_at(value.path))
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in (*value.arguments, *value.keywords.values()) if isinstance(value, Made) else inner:
        yield from sources_of(dataset, each)


def _sources(dataset: Dataset, function: Callable[..., Any]) -> Iterator[str]:
    function = inspect.unwrap(function)
    for name in names_outside(function.__code__):
        called = _unwrapped(function.__globals__.get(name))
        is_other = isinstance(called, FunctionType) and called is not function
        if is_other and (called.__module__.startswith("etlrun.") or called.__module__ == dataset.printed):
            yield from _sources(dataset, next(_named(dataset, name), called))
    yield source(function).removeprefix("@staticmethod\n")


def _source_of(dataset: Dataset, path: str) -> Iterator[str]:
    """Yield the source of a function, or of a class of `etlrun.run`, which can't be imported without TensorFlow."""
    module, _, name = path.rpartition(".")
    if not module.startswith("etlrun.run."):
        yield from _sources(dataset, getattr(importlib.import_module(module), name))
        return
    text = _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    node = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for imports in tree.body:
        if isinstance(imports, ast.ImportFrom) and (imports.module or "").startswith("etlrun."):
            called = (of.name for of in imports.names if of.name in used)
            yield from (of for each in called for of in _source_of(dataset, f"{imports.module}.{each}"))
    yield str(ast.get_source_segment(text, node)).replace(f"-> {name}:", f'-> "{name}":')


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
    return line if len(line) <= COLUMNS or len(literal) > COLUMNS - 4 else f"{name} = (\n    {literal}\n)"


def parallel(value: int | str | None) -> str:
    """Return a config's number of calls or buffer size as tf.data takes it."""
    words = {"autotune": "tf.data.AUTOTUNE", "cores": "CORES", "cores-1": "max(1, CORES - 1)"}
    return words.get(str(value), str(value))
