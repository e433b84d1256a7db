"""Steps, datasets, models, losses, metrics and callbacks of other installed packages: what their entry points name."""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from etlrun.stages.base import Stage
from etlrun.stages.dataset import SOURCES, Dataset
from etlrun.stages.lazy import keras, tf
from etlrun.stages.network import Network
from etlrun.stages.objectives import KINDS, metric_of
from etlrun.stages.plugins import (
    CALLBACKS,
    KERAS,
    LOSSES,
    METRICS,
    MODELS,
    PLUGINS,
    ROWS,
    STEPS,
    TENSORFLOW,
    Plugin,
    beyond,
    named,
    names,
    odd_default,
    parameters_of,
    remember,
    with_called,
)
from etlrun.stages.step import Step
from etlrun.system.errors import Fault

_REFERS = "refers to nothing else but keras, tf, np, math and functions of its module"
_TAKES = f", which takes, by name, arguments with plain defaults, and {_REFERS}"
FUNCTIONS = {
    LOSSES: f"a function of targets and predictions{_TAKES}",
    METRICS: f"a function of targets and predictions, or one that returns a metric of Keras{_TAKES}",
    CALLBACKS: f"a function that returns a callback of Keras{_TAKES}",
}
"""What the entry points of each group name."""
_COUNTS = {LOSSES: (2,), METRICS: (2, 0), CALLBACKS: (0,)}
_LOSSES = tuple(dict.fromkeys(loss for kind in KINDS.values() for loss in kind.losses))
"""Losses of etlrun."""


def _wrong(group: str, name: str, made: Any) -> Iterator[str]:
    """Yield what is wrong with a loss, a metric or a callback, or with its name."""
    if not isinstance(made, FunctionType):
        yield f"{made!r}, which is not a function"
        return
    if getattr(sys.modules.get(made.__module__), made.__name__, None) is not made:
        yield f"{made.__qualname__}, which its module does not have under its own name"
    given = parameters_of(made)
    if given is None or len(given[0]) not in _COUNTS[group] or {*given[1]} - {*(made.__kwdefaults__ or {})}:
        yield f"{made.__name__}{inspect.signature(made)}"
    if odd := odd_default(made):
        yield f"{made.__name__}, whose default {odd[0]!r} is no number, text or null"
    other = named(group, name)
    if other is not None and other.path != f"{made.__module__}.{made.__name__}":
        yield f"the name {name}, which {other.package} already has"
    if (metric_of(name) or name == "loss") if group == METRICS else (group == LOSSES and name in _LOSSES):
        yield f"the name {name}, which etlrun already has"
    if not name.isidentifier() or name.startswith("val_"):
        yield f"the name {name!r}, which is no name of Python's, or begins with val_"


def _named_in(group: str, own: Sequence[str] = ()) -> tuple[AfterValidator, Any]:
    """Return what makes a text one of the names of etlrun's `own`, or of those that packages add, and its schema."""

    def known(name: str) -> str:
        if name not in (*own, *names(group)):
            raise ValueError(name)
        return name

    return AfterValidator(known), Field(json_schema_extra=lambda schema: schema.update(enum=[*own, *names(group)]))


Loss = Annotated[str, *_named_in(LOSSES, _LOSSES)]
Callback = Annotated[str, *_named_in(CALLBACKS)]


def aligned(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Return targets as functions take them: classes as int32 (batch,), others in shape and dtype of predictions."""
    if len(y_true.shape) < len(y_pred.shape) and y_pred.shape[-1] != 1:
        return keras.ops.cast(y_true, "int32")
    return keras.ops.reshape(keras.ops.cast(y_true, y_pred.dtype), keras.ops.shape(y_pred))


_A_STEP = (
    "a dataclass derived from Step with a unique path such as transform.grey, whose `op` takes a feature and, by name, "
    "each field (and `seed` if it is random), and refers to nothing else but tf and the functions in `calls`"
)
_A_DATASET = "a dataclass derived from Dataset under a new name, whose `source` is MODULE:CLASS of what reads it"
_A_MODEL = (
    "a dataclass derived from Network with a unique path such as model.tower, whose `network` takes inputs and, by "
    f"name, each field, and {_REFERS}"
)

Registry = dict[str, dict[str, type[Stage]]]


def with_installed(
    own: Mapping[str, Mapping[str, type[Stage]]], entries: Iterable[EntryPoint] | None = None
) -> tuple[Registry, tuple[Fault, ...]]:
    """Return `own` with the steps and models of installed packages, and the faults of what can't be used.

    Their datasets are added to `SOURCES`, and all to `PLUGINS`, by the names that configs have for them.
    """
    registry = {group: dict(options) for group, options in own.items()}
    faults = []
    for entry in [of for of in installed() if of.group in _EXPECTED] if entries is None else entries:
        try:
            module = sys.modules.get(entry.module)
            if getattr(getattr(module, "__spec__", None), "_initializing", False):
                # It imports etlrun while it is imported: whoever imports it gets the new one, as of any module that
                # replaces itself.
                del sys.modules[entry.module]
            made = entry.load()
        except Exception as error:  # noqa: BLE001 - importing another package may raise anything
            faults.append(fault_of(entry, f"{type(error).__name__}: {error}", _EXPECTED[entry.group]))
            continue
        found = _added(entry, made, registry)
        if isinstance(found, Fault):
            faults.append(found)
        else:
            PLUGINS[entry.group, found.name] = found
    return registry, tuple(faults)


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the entry points by which installed packages add something, whether it can be used or not."""
    found = entry_points()  # which reads the metadata of all packages
    return tuple(entry for group in (*_EXPECTED, ROWS) for entry in found.select(group=group))


def lacking() -> frozenset[str]:
    """Return the names that the project of the current folder adds by its pyproject.toml, and that aren't installed."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        points = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
        names = {name for group in (*_EXPECTED, ROWS) for name in points.get(group, {})}
        return frozenset(names - {entry.name for entry in installed()})
    return frozenset()


def _added(entry: EntryPoint, made: Any, registry: Registry) -> Plugin | Fault:
    """Add what an entry point names to the registry, and return it; a fault if it can't be used."""
    group, name, functions = entry.group, entry.name, tuple[Any, ...]()
    is_dataset = group == STEPS and isinstance(made, type) and issubclass(made, Dataset)
    if group in FUNCTIONS:
        wrong = next(_wrong(group, name, made), None)
    elif group == MODELS:
        wrong = _unfit(made, Network, "network", "model") or _defined(made, registry["model"])
    elif not is_dataset:
        wrong = breach(made) or _defined(made, registry["transform"])
    elif not is_dataclass(made) or ":" not in getattr(made, "source", ""):
        wrong = f"{made.__name__}, which is not a dataclass with a `source`"
    else:
        wrong = f"the name {name}, which etlrun already has" if name in {*SOURCES, "tfds"} else None
    if not wrong and not is_dataset and group == STEPS:
        functions = (*made.calls, made.op)
    elif not wrong and not is_dataset:
        functions = with_called(made.network if group == MODELS else made)
        remember(functions)
        wrong = beyond(functions, KERAS)
    if wrong:
        return fault_of(entry, wrong, _A_DATASET if is_dataset else _EXPECTED[group])
    if is_dataset:
        SOURCES[name] = made
    elif group not in FUNCTIONS:
        of, _, name = made.path.partition(".")
        registry[of][name] = made
    return Plugin.of(entry, name, made, functions)


def _unfit(made: Any, base: type[Stage], function: str, group: str) -> str | None:
    """Return why a class can't be a step or a model, by its fields, its function and its path; None if it can."""
    if not isinstance(made, type) or not issubclass(made, base) or not is_dataclass(made):
        return f"{made!r}, which is not a dataclass derived from {base.__name__}"
    if not isinstance(called := getattr(made, function, None), FunctionType):
        return f"{made.__name__} without a static function `{function}`"
    names = [field.name for field in fields(made)] + ["seed"] * (made.random is not Stage.random)
    given = parameters_of(called)
    if given is None or len(given[0]) != 1 or given[1] != names:
        found = f"{made.__name__}.{function}{inspect.signature(called)}"
        return f"{found}, whose parameters are not one and, keyword-only, {names}"
    of, _, name = getattr(made, "path", "").partition(".")
    return None if of == group and name.isidentifier() else f"the path {getattr(made, 'path', '')!r}"


def breach(step: Any) -> str | None:
    """Return why a class can't be a step of graphs, programs and cache keys; None if it can."""
    if unfit := _unfit(step, Step, "op", "transform"):
        return unfit
    if step.arguments is not Step.arguments:
        return f"{step.__name__}.arguments, which are to be those of Step"
    odd = [called for called in step.calls if not isinstance(called, FunctionType)]
    return f"{step.__name__}.calls, which contains {odd[0]!r}" if odd else beyond((step.op, *step.calls), TENSORFLOW)


def _defined(made: type[Any], others: dict[str, Any]) -> str | None:
    """Return which name of a step or a model, or of a function that it calls, others have; None if none does."""
    name, calls = made.path.partition(".")[2], getattr(made, "calls", ())
    known = {called.__name__: called for other in others.values() for called in getattr(other, "calls", ())} | others
    if name in known:
        return f"{made.path}, which {known[name].__module__} already defines"
    for called in calls:
        if known.get(called.__name__, called) is not called:
            return f"{made.__name__}.calls, whose {called.__name__} {known[called.__name__].__module__} already defines"
    return None


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def place_of(entry: EntryPoint) -> str:
    """Return the place of an entry point in messages."""
    return f"the package {_package(entry)}, its entry point {entry.name} in {entry.group}"


def fault_of(entry: EntryPoint, found: str, expected: str) -> Fault:
    """Return the fault of what an entry point names."""
    remedy = f"fix it, or uninstall {_package(entry)}"
    return Fault(where=place_of(entry), found=found, expected=expected, remedy=remedy)


_EXPECTED = {STEPS: _A_STEP, MODELS: _A_MODEL, **FUNCTIONS}
"""What an entry point of each group names."""
