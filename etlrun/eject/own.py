"""Sources of functions and classes of this package that a program contains, each after those that it refers to."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from etlrun.eject.printed import given, numbered, skipping
from etlrun.stages.dataset import Dataset
from etlrun.stages.made import Made, Named
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
    yield from (skipping, numbered) if dataset.on_corrupt == "skip" else (numbered,)


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
        if is_other and called.__module__.startswith(("etlrun.", dataset.printed)):
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
