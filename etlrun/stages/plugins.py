"""What installed packages add by their entry points, and the code that tells it from any other."""

from __future__ import annotations

import builtins
import dis
import inspect
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint
from importlib.util import cache_from_source
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType
from typing import Any

from etlrun.system.errors import DOCS
from etlrun.system.values import frozen, sha256_of

_lines: dict[Callable[..., Any], list[str]] = {}
_files: dict[tuple[str, int, int], list[str]] = {}


def remember(functions: Iterable[Callable[..., Any]]) -> None:
    """Read the files of these functions, which have just been imported; those without a file have no source."""
    for function in functions:
        if function not in _lines:
            _lines[function] = _lines_of(Path(function.__code__.co_filename))


def source(function: Callable[..., Any]) -> str:
    """Return the source of a function without its indentation; raise `OSError` if there is none."""
    remember([function])
    below = _lines[function][function.__code__.co_firstlineno - 1 :]
    if not below:
        raise OSError(f"no source of {function.__qualname__}")
    return dedent("".join(inspect.getblock(below))).rstrip()


def _lines_of(path: Path) -> list[str]:
    try:
        of = path.stat()
        key = str(path), of.st_mtime_ns, of.st_size
        if key not in _files:
            with tokenize.open(path) as file:
                _files[key] = file.readlines()
    except (OSError, SyntaxError):
        return []
    return _files[key]


_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
"""Instructions whose argument is outside of a function."""
_REACHING = {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars"}
"""What is built in and may reach anything."""
_PLAIN = (bool, int, float, str, type(None))

TENSORFLOW: Mapping[str, str] = {"tf": "tensorflow"}
KERAS: Mapping[str, str] = {"keras": "keras", "tf": "tensorflow", "np": "numpy", "math": "math"}
"""Modules that functions may refer to, by the names under which programs import them."""


def beyond(functions: Sequence[Any], modules: Mapping[str, str]) -> str | None:
    """Return which function depends on more than its source, its arguments, `modules` and the others; None if none."""
    known = {function.__name__: function for function in functions}
    for function in functions:
        if foreign := sorted(set(_foreign(function, known, modules))):
            return f"{function.__qualname__}, which refers to {', '.join(foreign)}"
        try:
            source(function)
        except OSError:
            return f"{function.__qualname__}, whose source can't be read"
        if odd := odd_default(function):
            return f"{function.__qualname__}, whose default {odd[0]!r} is no number, text or null"
    return stale(functions)


def stale(functions: Iterable[Any]) -> str | None:
    """Return which function is not what its source compiles to, and what to do; None if none is.

    Python takes the bytecode that it has written for any text of the same size and second.
    """
    for function in functions:
        remember([function])
        file, loader = Path(function.__code__.co_filename), type(function.__globals__.get("__loader__"))
        is_plain = loader is SourceFileLoader  # others may change what they import
        if is_plain and _told(function.__code__) not in _compiled("".join(_lines[function])):
            remedy = f"remove {cache_from_source(str(file))}, and start Python again"
            return f"{function.__qualname__}, which does not run the text of {file} ({remedy})"
    return None


@cache
def _compiled(text: str) -> list[Any]:
    try:
        return [_told(code) for code in _codes(compile(text, "", "exec", dont_inherit=True))]
    except SyntaxError:
        return []


def _told(code: CodeType) -> Any:
    """Return what tells code from any other, but for its file."""
    consts = [
        _told(of) if isinstance(of, CodeType) else of if isinstance(of, frozenset) else repr(of)
        for of in code.co_consts
    ]
    return code.co_name, code.co_firstlineno, code.co_code, code.co_names, code.co_varnames, consts


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code, and that of the functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


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
    return (of.argval for inner in _codes(code) for of in dis.get_instructions(inner) if of.opname in _OUTSIDE)


def odd_default(function: Any) -> Any:
    """Return a default of a function that is no number, text or null, in a tuple; empty if there is none."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return tuple(value for value in defaults if not isinstance(value, _PLAIN))[:1]


def _foreign(function: Any, known: Mapping[str, Any], modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the names outside of `function` that are neither `modules`, nor `known`, nor built in and of no reach."""
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


Functions = tuple[Callable[..., Any], ...]

STEPS, MODELS, LOSSES, METRICS, CALLBACKS, ROWS = (
    f"etlrun.{name}" for name in ("stages", "models", "losses", "metrics", "callbacks", "datasets")
)
"""Groups of entry points."""
OF_YOUR_OWN = "{} of your own is a {} in a package of yours, installed with pip: " + f"{DOCS}/extending.md"
"""The remedy for what no installed package adds."""


@frozen
class Plugin:
    """What an installed package adds under a name.

    Attributes:
        group: Group of its entry point.
        name: Name in configs.
        where: `MODULE:NAME` of the entry point.
        package: Name of the package, and `version` its version.
        made: Its class or its function; None if that can't be used.
        functions: Its functions, each behind those that it calls: their source is all that they do.
    """

    group: str
    name: str
    where: str
    package: str
    version: str
    made: Any = None
    functions: Functions = ()

    @classmethod
    def of(cls, entry: EntryPoint, name: str, made: Any = None, functions: Iterable[Any] = ()) -> Plugin:
        """Return what an entry point adds under that name."""
        package, version = (entry.dist.name, entry.dist.version) if entry.dist is not None else (entry.module, "")
        where = {"group": entry.group, "name": name, "where": entry.value}
        return cls(**where, package=package, version=version, made=made, functions=(*functions,))

    @property
    def path(self) -> str:
        """Module and name of its function, which is the last one."""
        return f"{self.made.__module__}.{self.made.__name__}"

    @property
    def falls(self) -> bool:
        """Whether smaller values of a metric are better, as `direction = "down"` of its function says."""
        return getattr(self.made, "direction", "up") == "down"

    @property
    def code(self) -> str:
        """Package and version, and what tells its code from any other."""
        return f"{self.package} {self.version}, code {digest_of(self.functions)}"


PLUGINS: dict[tuple[str, str], Plugin] = {}
"""All that can be used, by group and name."""


def named(group: str, name: str) -> Plugin | None:
    """Return what a package adds to a group under that name; None if none does."""
    return PLUGINS.get((group, name))


def names(group: str) -> list[str]:
    """Return the names that packages add to a group."""
    return [name for of, name in PLUGINS if of == group]


def functions_at(path: str) -> Functions:
    """Return the functions of what is at a path, `MODULE.NAME`, each behind those that it calls; empty for others."""
    return next((of.functions for of in PLUGINS.values() if of.functions and of.path == path), ())


def digest_of(functions: Iterable[Callable[..., Any]]) -> str:
    """Return the first 16 hex digits of a SHA-256 over functions, which refer to nothing but each other."""
    texts = [[source(made), repr(made.__defaults__), repr(made.__kwdefaults__)] for made in functions]
    return sha256_of(repr(texts))
