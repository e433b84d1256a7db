"""Steps, datasets, models, losses, metrics and callbacks of other installed packages: what their entry points name."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from etlrun.stages.base import Stage
from etlrun.stages.dataset import SOURCES, Dataset
from etlrun.stages.flow import Faults
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
from etlrun.system.errors import Fault, did_you_mean

_REFERS = ", and refers to nothing else but keras, tf, np, math and functions of its module"
_NAMED = "by name, arguments with plain defaults"
FUNCTIONS = {
    LOSSES: f"a function of targets and predictions, which takes, {_NAMED}{_REFERS}",
    METRICS: f"a function of targets and predictions, or one that returns a metric of Keras, which takes, {_NAMED}"
    f"{_REFERS}",
    CALLBACKS: f"a function that returns a callback of Keras, which takes, {_NAMED}{_REFERS}",
}
"""What the entry points of each group name."""
_COUNTS = {LOSSES: (2,), METRICS: (2, 0), CALLBACKS: (0,)}
_OUT = "leave it out"
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


def _known_loss(name: str) -> str:
    if name not in (*_LOSSES, *names(LOSSES)):
        raise ValueError(name)
    return name


def _with_losses(schema: dict[str, Any]) -> None:
    schema["enum"] = [*_LOSSES, *names(LOSSES)]


Loss = Annotated[str, AfterValidator(_known_loss), Field(json_schema_extra=_with_losses)]
Plain = bool | int | float | str | None
Arguments = dict[str, dict[str, Plain]]


def own_functions(loss: str, metrics: Iterable[str], callbacks: Iterable[str]) -> list[Plugin]:
    """Return the loss, metrics and callbacks of these names that packages add."""
    wanted = [(LOSSES, loss), *((METRICS, name) for name in metrics), *((CALLBACKS, name) for name in callbacks)]
    return [plugin for group, name in wanted if (plugin := named(group, name)) is not None]


def argument_faults(used: Iterable[Plugin], given: Mapping[str, Mapping[str, Any]]) -> Faults:
    """Yield the faults of arguments by the names of losses, metrics and callbacks: key, found, expected, remedy."""
    known = {plugin.name: plugin.arguments for plugin in used}
    for name, arguments in given.items():
        if name not in known:
            expected = f"one of the run's own losses, metrics and callbacks: {', '.join(known) or 'there are none'}"
            yield name, "arguments of what the run does not use", expected, did_you_mean(name, known, otherwise=_OUT)
            continue
        for argument, value in arguments.items():
            if argument not in known[name]:
                listed = ", ".join(known[name]) or "there are none"
                yield (
                    f"{name}.{argument}",
                    "an unknown argument",
                    f"one of {listed}",
                    did_you_mean(argument, known[name], otherwise=_OUT),
                )
            elif not _fits(value, known[name][argument]):
                default = known[name][argument]
                expected = f"a value of the type of its default, {default!r}"
                yield f"{name}.{argument}", repr(value), expected, "give another value, or leave it out"


def arguments_of(plugin: Plugin, given: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return the arguments that a config gives to what a package adds, as the types of their defaults."""
    defaults, found = plugin.arguments, (given or {}).get(plugin.name, {})
    return {name: float(value) if isinstance(defaults[name], float) else value for name, value in found.items()}


def _fits(value: Any, default: Any) -> bool:
    if default is None or isinstance(value, type(default)):
        return isinstance(value, bool) == isinstance(default, bool) or default is None
    return isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)


def aligned(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Return targets as functions take them: classes as int32 (batch,), others in shape and dtype of predictions."""
    if len(y_true.shape) < len(y_pred.shape) and y_pred.shape[-1] != 1:
        return keras.ops.cast(y_true, "int32")
    return keras.ops.reshape(keras.ops.cast(y_true, y_pred.dtype), keras.ops.shape(y_pred))


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
_A_MODEL = (
    "a dataclass derived from Network with a unique path such as model.tower, whose `network` takes inputs and, by "
    "name, each field, and refers to nothing else but keras, tf, np, math and functions of its module"
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
        imported = {*sys.modules}
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
        slow = next((name for name in _SLOW if name in sys.modules and name not in imported), None)
        if slow is not None:
            warnings.warn(f"{_package(entry)} imports {slow}{_WAITS}", stacklevel=2)
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


def _added(entry: EntryPoint, made: Any, registry: Registry) -> Plugin | Fault:
    """Add what an entry point names to the registry, and return it; a fault if it can't be used."""
    group, name, functions = entry.group, entry.name, tuple[Any, ...]()
    is_dataset, expected = isinstance(made, type) and issubclass(made, Dataset), _EXPECTED[group]
    if group in FUNCTIONS:
        wrong = next(_wrong(group, name, made), None)
        functions = () if wrong else with_called(made)
        remember(functions)
        wrong = wrong or beyond(functions, KERAS)
    elif group == MODELS:
        wrong = _unfit_model(made, registry)
        functions = () if wrong else with_called(made.network)
        remember(functions)
    elif is_dataset:
        expected, wrong = _A_DATASET, None
        if not is_dataclass(made) or ":" not in getattr(made, "source", ""):
            wrong = f"{made.__name__}, which is not a dataclass with a `source`"
        elif name in {*SOURCES, "tfds"}:
            wrong = f"the name {name}, which etlrun already has"
    else:
        wrong = breach(made) or _misplaced(made, registry)
        functions = () if wrong else (*made.calls, made.op)
    if wrong:
        return fault_of(entry, wrong, expected)
    if is_dataset:
        SOURCES[name] = made
    elif group not in FUNCTIONS:
        of, _, name = made.path.partition(".")
        registry[of][name] = made
    return Plugin.of(entry, name, made, functions)


def breach(step: object) -> str | None:
    """Return why a class can't be a step of graphs, programs and cache keys; None if it can."""
    if not isinstance(step, type) or not issubclass(step, Step) or not is_dataclass(step):
        return f"{step!r}, which is not a dataclass derived from Step"
    if not inspect.isfunction(getattr(step, "op", None)):
        return f"{step.__name__} without a static function `op`"
    names = [field.name for field in fields(step)] + (["seed"] if step.random is not Stage.random else [])
    _feature, *others = inspect.signature(step.op).parameters.values()
    if [other.name for other in others] != names or any(other.kind is not other.KEYWORD_ONLY for other in others):
        return f"{step.__name__}.op{inspect.signature(step.op)}, whose keyword-only parameters are not {names}"
    if step.arguments is not Step.arguments:
        return f"{step.__name__}.arguments, which are to be those of Step"
    for called in step.calls:
        if not inspect.isfunction(called):
            return f"{step.__name__}.calls, which contains {called!r}"
    return beyond((step.op, *step.calls), TENSORFLOW)


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


def _unfit_model(model: Any, registry: Registry) -> str | None:
    """Return why a class can't be a model; None if it can."""
    if not isinstance(model, type) or not issubclass(model, Network) or not is_dataclass(model):
        return f"{model!r}, which is not a dataclass derived from Network"
    if not isinstance(network := getattr(model, "network", None), FunctionType):
        return f"{model.__name__} without a static function `network`"
    names, given = [field.name for field in fields(model)], parameters_of(network)
    if given is None or len(given[0]) != 1 or given[1] != names:
        found = f"{model.__name__}.network{inspect.signature(network)}"
        return f"{found}, whose parameters are not the inputs and, keyword-only, {names}"
    group, _, name = getattr(model, "path", "").partition(".")
    if group != "model" or not name.isidentifier():
        return f"the path {getattr(model, 'path', '')!r}"
    if name in registry["model"]:
        return f"{model.path}, which {registry['model'][name].__module__} already defines"
    return beyond(with_called(network), KERAS)


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
