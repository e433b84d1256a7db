"""Sources of functions and classes of this package that a program contains, each after those that it refers to."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from etlrun.eject.printed import given, numbered, skipping
from etlrun.eject.text import call, parallel
from etlrun.planning.plan import Plan, PlannedStage, at_cache
from etlrun.stages.dataset import Dataset
from etlrun.stages.flow import Flow
from etlrun.stages.made import Made, Named
from etlrun.stages.plugins import functions_at, source
from etlrun.system.values import frozen

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
    needed = ("classes", "parts_of", "paths_of", "num_examples", *of_records)
    return [name for name in needed if not defines(dataset, name)]


def constants(dataset: Dataset) -> dict[str, Any]:
    """Return the constants of the printed functions for the kind of a dataset, by name."""
    modules = (*_modules(dataset), numbered)
    found = {name: value for module in modules for name, value in vars(module).items() if name.isupper()}
    own = {name: value for name, value in found.items() if name not in {*vars(given), *dataset.constants}}
    return {"TARGET": dataset.keys[dataset.examples.target], **dataset.constants, **own}


def _named(dataset: Dataset, name: str) -> Iterator[FunctionType]:
    """Yield the functions of that name, of which the first is that of a dataset."""
    for module in (*_modules(dataset), *([skipping] if dataset.on_corrupt == "skip" else []), numbered):
        function = _unwrapped(vars(module).get(name))
        if isinstance(function, FunctionType) and function.__module__ != given.__name__:
            yield function


def _modules(dataset: Dataset) -> Iterator[Any]:
    """Yield what has the functions for a dataset: classes and a module, of which the first that has one counts."""
    for module, _, name in (path.partition(":") for path in (*dataset.printed_before, dataset.printed)):
        found = importlib.import_module(module)
        yield getattr(found, name) if name else found


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
    for name in _names(function.__code__):
        called = _unwrapped(function.__globals__.get(name))
        if not isinstance(called, FunctionType) or called is function or not _is_own(dataset, called):
            continue
        found = next(_named(dataset, name), called)
        if found.__module__ != given.__name__:  # a step otherwise
            yield from _sources(dataset, found)
    yield source(function).removeprefix("@staticmethod\n")


def _is_own(dataset: Dataset, function: FunctionType) -> bool:
    return function.__module__.startswith("etlrun.") or function.__module__ == dataset.printed


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function refers to, with those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


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
            for called in imports.names:
                if called.name in used:
                    yield from _source_of(dataset, f"{imports.module}.{called.name}")
    yield "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]).replace(f"-> {name}:", f'-> "{name}":')


@frozen
class Place:
    """A stage of a program.

    Attributes:
        plan: Plan of the run.
        pipeline: `train` or `validation`.
        planned: The stage with its steps.
        incoming: Input of the stage.
        dataset: Expression of the input.
        last_random: Last stage of the pipeline with random steps, which takes the index of each example; None if there
            is none.
        carries: Whether examples carry their index up to here.
        beside: Plan of the phases before, whose pipelines are in the program, too.
        functions: Functions that the text of the stage needs.
    """

    plan: Plan
    pipeline: str
    planned: PlannedStage
    incoming: Flow
    dataset: str
    last_random: PlannedStage | None = None
    carries: bool = False
    beside: Plan | None = None
    functions: list[str] = field(default_factory=list)

    @property
    def split(self) -> str:
        """Name of the constant that is the split of the pipeline."""
        return f"{self.pipeline.upper()}_SPLIT"

    @property
    def gives_index(self) -> bool:
        """Whether examples carry their index behind this stage."""
        return self.carries and self.planned is not self.last_random

    @property
    def data(self) -> Dataset:
        """Dataset of the plan."""
        return self.plan.spec.dataset

    def calls(self, function: Callable[..., Any], *arguments: str) -> str:
        """Return a call of a function of this package, which the program contains then."""
        self.functions.extend(sources(self.data, function))
        return call(function.__name__, *arguments)


def differs_by_pass(stages: Sequence[PlannedStage]) -> bool:
    """Return whether the passes over a pipeline differ; what is before a cache is fixed by the first one."""
    return any(planned.is_random for planned in at_cache(stages)[2])


def last_random(stages: Sequence[PlannedStage]) -> PlannedStage | None:
    """Return the last stage with random steps; None if there is none."""
    found = [planned for planned in stages if any(step.is_random for step in planned.steps)]
    return found[-1] if found else None


def calls_of(num_parallel_calls: int | str | None, *, deterministic: bool, most: str = "") -> tuple[str, ...]:
    """Return the arguments for parallel calls; `most` is tf.data's limit, if the config's number may exceed it."""
    if num_parallel_calls is None:
        return ()
    calls = parallel(num_parallel_calls)
    if most and num_parallel_calls != "autotune" and not (calls.isdigit() and most.isdigit()):
        calls = f"min({calls}, {most})"
    return f"num_parallel_calls={calls}", f"deterministic={deterministic}"
