"""Steps and datasets of other installed packages: classes named by their entry points in the group `etlrun.stages`."""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from types import CodeType
from typing import Any

from etlrun.stages.base import Stage
from etlrun.stages.code import source
from etlrun.stages.dataset import SOURCES, Dataset
from etlrun.stages.step import Step
from etlrun.system.errors import Fault

GROUP = "etlrun.stages"
_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
"""Instructions whose argument is outside of a function."""
_REACHING = {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars"}
"""What is built in and may reach anything."""
_PLAIN = (bool, int, float, str, type(None))

_SLOW = ("tensorflow", "tensorflow_datasets", "keras", "jax", "torch")
_WAITS = (
    ", for which each command of etlrun now waits: begin its modules with `from __future__ import annotations`, and "
    "import `tf` from etlrun.stages.lazy"
)

_A_STEP = (
    "a dataclass derived from Step with a unique path such as transform.grey, whose `op` takes a feature and, by name, "
    "each field (and `seed` if it is random), and refers to nothing else but tf and the functions in `calls`"
)
_A_DATASET = "a dataclass derived from Dataset under a new name, whose `source` is MODULE:CLASS of what reads it"

Registry = dict[str, dict[str, type[Stage]]]


def with_installed(
    own: Mapping[str, Mapping[str, type[Stage]]], entries: Iterable[EntryPoint] | None = None
) -> tuple[Registry, tuple[Fault, ...]]:
    """Return `own` with the steps of installed packages, and the faults of those that can't be used.

    Their datasets are added to `SOURCES`, by the names of their entry points.
    """
    registry = {group: dict(options) for group, options in own.items()}
    faults = []
    for entry in entry_points(group=GROUP) if entries is None else entries:
        imported = {*sys.modules}
        try:
            step = entry.load()
        except Exception as error:  # noqa: BLE001 - importing another package may raise anything
            faults.append(_fault(entry, f"{type(error).__name__}: {error}"))
            continue
        slow = next((name for name in _SLOW if name in sys.modules and name not in imported), None)
        if slow is not None:
            warnings.warn(f"{_package(entry)} imports {slow}{_WAITS}", stacklevel=2)
        is_dataset = isinstance(step, type) and issubclass(step, Dataset)
        wrong = _unfit(entry.name, step) if is_dataset else breach(step) or _misplaced(step, registry)
        if wrong is not None:
            faults.append(_fault(entry, wrong, _A_DATASET if is_dataset else _A_STEP))
        elif is_dataset:
            SOURCES[entry.name] = step
        else:
            registry["transform"][step.path.partition(".")[2]] = step
    return registry, tuple(faults)


def _unfit(name: str, dataset: type[Dataset]) -> str | None:
    """Return why a class can't be the dataset of that name; None if it can."""
    if not is_dataclass(dataset) or ":" not in getattr(dataset, "source", ""):
        return f"{dataset.__name__}, which is not a dataclass with a `source`"
    return f"the name {name}, which etlrun already has" if name in {*SOURCES, "tfds"} else None


def breach(step: object) -> str | None:
    """Return why a class can't be a step of graphs, programs and cache keys; None if it can."""
    if not isinstance(step, type) or not issubclass(step, Step) or not is_dataclass(step):
        return f"{step!r}, which is not a dataclass derived from Step"
    if not inspect.isfunction(getattr(step, "op", None)):
        return f"{step.__name__} without a static function `op`"
    names = [field.name for field in fields(step) if field.name not in step.not_of_op] + (
        ["seed"] if step.random is not Stage.random else []
    )
    _feature, *others = inspect.signature(step.op).parameters.values()
    if [other.name for other in others] != names or any(other.kind is not other.KEYWORD_ONLY for other in others):
        return f"{step.__name__}.op{inspect.signature(step.op)}, whose keyword-only parameters are not {names}"
    if step.values is not Step.values:
        return f"{step.__name__}.values, which is to be that of Step"
    return _beyond(step)


def _beyond(step: type[Step]) -> str | None:
    """Return which function of a step depends on more than its source and its arguments; None if none does."""
    for called in step.calls:
        if not inspect.isfunction(called):
            return f"{step.__name__}.calls, which contains {called!r}"
    for function in (step.op, *step.calls):
        if foreign := sorted(set(_foreign(function, step))):
            return f"{function.__qualname__}, which refers to {', '.join(foreign)}"
        if (unfit := _without_source(function)) is not None:
            return f"{function.__qualname__}, {unfit}"
    return None


def _without_source(function: Any) -> str | None:
    """Return why the source of a function does not say what it does; None if it does."""
    try:
        source(function)
    except OSError:
        return "whose source can't be read"
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    odd = next((value for value in defaults if not isinstance(value, _PLAIN)), None)
    return None if odd is None else f"whose default {odd!r} is no number, text or null"


def _foreign(function: Any, step: type[Step]) -> Iterator[str]:
    """Yield the names outside of `function` that are neither built in, nor `tf`, nor functions in `calls`.

    What is built in must not reach anything else, such as a file.
    """
    yield from function.__code__.co_freevars
    known, found = {called.__name__: called for called in step.calls}, function.__globals__
    for name in _globals(function.__code__):
        if name == "tf":
            is_known = getattr(found.get(name), "__name__", None) == "tensorflow"
        elif name in known:
            is_known = known[name] is found.get(name)
        else:
            is_known = name not in found and hasattr(builtins, name) and name not in _REACHING
        if not is_known:
            yield name


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the global names that `code` and the functions in it use, and the modules that they import."""
    yield from (of.argval for of in dis.get_instructions(code) if of.opname in _OUTSIDE)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _misplaced(step: type[Step], registry: Registry) -> str | None:
    group, _, name = step.path.partition(".")
    if group != "transform" or not name.isidentifier():
        return f"the path {step.path!r}"
    others = registry[group]
    called_by = {called.__name__: called for other in others.values() for called in getattr(other, "calls", ())}
    if name in others or name in called_by:
        return f"{step.path}, which {(others.get(name) or called_by[name]).__module__} already defines"
    for called in step.calls:
        other = others.get(called.__name__) or called_by.get(called.__name__, called)
        if other is not called:
            return f"{step.__name__}.calls, whose {called.__name__} {other.__module__} already defines"
    return None


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def _fault(entry: EntryPoint, found: str, expected: str = _A_STEP) -> Fault:
    package = _package(entry)
    return Fault(
        where=f"the package {package}, its entry point {entry.name} in {GROUP}",
        found=found,
        expected=expected,
        remedy=f"fix it, or uninstall {package}",
    )
