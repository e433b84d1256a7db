"""What functions refer to: those of steps, models and losses of packages may depend on nothing but arguments."""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from etlrun.stages.code import source

_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
"""Instructions whose argument is outside of a function."""
_REACHING = {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars"}
"""What is built in and may reach anything."""
_PLAIN = (bool, int, float, str, type(None))

TENSORFLOW: Mapping[str, str] = {"tf": "tensorflow"}
KERAS: Mapping[str, str] = {"keras": "keras", "tf": "tensorflow", "np": "numpy", "math": "math"}
"""Modules that functions may refer to, by the names under which programs import them."""


def beyond(functions: Sequence[Any], modules: Mapping[str, str]) -> str | None:
    """Return which function depends on more than its source, its arguments and `modules`; None if none does.

    Each may call the others.
    """
    known = {function.__name__: function for function in functions}
    for function in functions:
        if foreign := sorted(set(_foreign(function, known, modules))):
            return f"{function.__qualname__}, which refers to {', '.join(foreign)}"
        if (unfit := _without_source(function)) is not None:
            return f"{function.__qualname__}, {unfit}"
    return None


def with_called(function: Any) -> tuple[Callable[..., Any], ...]:
    """Return a function behind those of its own module that it calls, each behind those that it calls itself."""
    found: dict[Any, None] = {}

    def add(called: Any, callers: tuple[Any, ...]) -> None:
        for name in names_outside(called.__code__):
            inner = called.__globals__.get(name)
            is_own = isinstance(inner, FunctionType) and inner.__module__ == function.__module__
            if is_own and inner not in (*callers, called):
                add(inner, (*callers, called))
        found[called] = None

    add(function, ())
    return (*found,)


def names_outside(code: CodeType) -> Iterator[str]:
    """Yield the global names that `code` and the functions in it use, and the modules that they import."""
    yield from (of.argval for of in dis.get_instructions(code) if of.opname in _OUTSIDE)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_outside(constant)


def odd_default(function: Any) -> Any:
    """Return a default of a function that is no number, text or null, in a tuple; empty if there is none."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return tuple(value for value in defaults if not isinstance(value, _PLAIN))[:1]


def _without_source(function: Any) -> str | None:
    """Return why the source of a function does not say what it does; None if it does."""
    try:
        source(function)
    except OSError:
        return "whose source can't be read"
    odd = odd_default(function)
    return f"whose default {odd[0]!r} is no number, text or null" if odd else None


def _foreign(function: Any, known: Mapping[str, Any], modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the names outside of `function` that are neither built in, nor `modules`, nor `known` functions.

    What is built in must not reach anything else, such as a file.
    """
    yield from function.__code__.co_freevars
    found = function.__globals__
    for name in names_outside(function.__code__):
        if name in modules:
            is_known = getattr(found.get(name), "__name__", None) == modules[name]
        elif name in known:
            is_known = known[name] is found.get(name)
        else:
            is_known = name not in found and hasattr(builtins, name) and name not in _REACHING
        if not is_known:
            yield name


def parameters_of(function: Any) -> tuple[list[str], list[str]] | None:
    """Return the names of the positional and of the keyword-only parameters; None if there are others."""
    given = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(one.kind not in kinds for one in given):
        return None
    return [one.name for one in given if one.kind is kinds[0]], [one.name for one in given if one.kind is kinds[1]]
