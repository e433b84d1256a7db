"""Functions of installed packages as losses, metrics and callbacks: what they have to be, and their arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from types import FunctionType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from etlrun.stages.code import remember
from etlrun.stages.flow import Faults
from etlrun.stages.lazy import keras, tf
from etlrun.stages.objectives import KINDS, metric_of
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, Plugin, named, names
from etlrun.stages.reach import KERAS, beyond, odd_default, parameters_of, with_called
from etlrun.system.errors import did_you_mean

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


def of_function(entry: EntryPoint, made: Any) -> Plugin | str:
    """Return the loss, metric or callback that an entry point names; a text that says why it can't be used."""
    group, name = entry.group, entry.name
    if not isinstance(made, FunctionType):
        return f"{made!r}, which is not a function"
    if wrong := next(_wrong(group, name, made), None):
        return wrong
    functions = with_called(made)
    remember(functions)
    return beyond(functions, KERAS) or Plugin.of(entry, name, made, functions)


def _wrong(group: str, name: str, made: FunctionType) -> Iterator[str]:
    """Yield what is wrong with a function, or with its name."""
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
