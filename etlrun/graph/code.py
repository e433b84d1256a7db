"""Hashes of the code that makes the examples, as it is in memory: files may have been edited since their import.

The hash of a function includes its bytecode, constants, defaults and closure, and recursively everything it refers to:
functions, classes with their methods, helpers in other modules, tables, modules that it imports when it is called.
Folders, line numbers and comments are not included, so that another checkout of the same text has the same hashes.

Only own code is inspected: that of the packages of the given functions, and of modules that are neither in the standard
library nor installed (in `site-packages`, or beside a `*.dist-info`). Of libraries and compiled code only the names
are included. A table that changes while a process runs gives different hashes each time.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

_INSTALLED = {"site-packages", "dist-packages"}
_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis), range)


def code_of(roots: Iterable[Any]) -> dict[str, str]:
    """Return a hash of 16 hex digits for each module that `roots` reach, over all objects that they reach in it.

    It is the same in all processes that have imported the same text with the same Python (3.11, 3.12, …).
    """
    roots, known = list(roots), set(sys.modules)
    found = _Reached(roots)
    if sys.modules.keys() != known:  # a late import has made a module an attribute of its package
        found = _Reached(roots)
    return {
        module: hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
        for module, texts in sorted(found.texts.items())
    }


class _Reached:
    """Objects that some functions and classes reach.

    Attributes:
        texts: Texts of the functions and classes of each module, by name.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self.texts: dict[str, dict[str, str]] = {}
        self._own = {root.__module__.partition(".")[0]: True for root in roots if isinstance(root, FunctionType | type)}
        self._told: dict[int, tuple[str, Any]] = {}  # with the objects, so that their addresses are not reused
        for root in roots:
            self._text(root)

    def _is_own(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top not in self._own:
            self._own[top] = top not in sys.stdlib_module_names and not _is_installed(top)
        return self._own[top]

    def _text(self, value: Any) -> str:
        """Return all of a value that is hashed; for own functions and classes their key in `texts`."""
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, bytes | bytearray):
            return f"bytes {hashlib.sha256(value).hexdigest()}"
        if isinstance(value, tuple | frozenset):  # the compiler decides whether equal ones are one object
            texts = [self._text(of) for of in value]
            return f"{type(value).__name__} {texts if isinstance(value, tuple) else sorted(texts)}"
        if isinstance(value, CodeType):
            return self._code(value)
        if id(value) not in self._told:
            self._told[id(value)] = f"within {type(value).__qualname__}", value  # if it contains itself
            self._told[id(value)] = self._looked_into(value), value
        return self._told[id(value)][0]

    def _looked_into(self, value: Any) -> str:
        if isinstance(value, ModuleType):
            return f"module {value.__name__}"
        if not isinstance(value, FunctionType | type):
            return self._object(value)
        module, name = _module_of(value), value.__qualname__
        if isinstance(value, type) and (not self._is_own(module) or issubclass(value, BaseException)):
            return f"{module}.{name}"  # an exception makes no example
        if not self._is_own(module):  # a library's decorator around own code, perhaps
            within = [getattr(value, "__wrapped__", None), *(_held(value) if isinstance(value, FunctionType) else ())]
            return f"{module}.{name} {[self._text(of) for of in within if isinstance(of, FunctionType)]}"
        texts = self.texts.setdefault(module, {})
        name = next(of for number in itertools.count() if (of := f"{name}#{number}") not in texts)
        texts[name], self._told[id(value)] = "", (f"{module}.{name}", value)
        texts[name] = repr(list(self._class(value) if isinstance(value, type) else self._function(value)))
        return f"{module}.{name}"

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield self._code(function.__code__)
        yield self._text(function.__defaults__)
        yield self._text(function.__kwdefaults__)
        yield self._text(getattr(function, "__wrapped__", None))
        yield self._text(_held(function))
        names = list(dict.fromkeys(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                yield f"{name} = {self._used(function.__globals__[name], names, set())}"
        for name in _imports(function.__code__, function.__globals__.get("__package__") or ""):
            if self._is_own(name):
                yield f"import {name}: {self._used(_imported(name), names, set())}"

    def _used(self, value: Any, names: list[str], seen: set[str]) -> str:
        """Return the text of an own module, limited to its attributes in `names`; of any other value the whole text."""
        if not isinstance(value, ModuleType) or not self._is_own(value.__name__) or value.__name__ in seen:
            return self._text(value)
        seen.add(value.__name__)
        used = [f"{name} = {self._used(vars(value)[name], names, seen)}" for name in names if name in vars(value)]
        return f"module {value.__name__}: {used}"

    def _class(self, value: type) -> Iterator[str]:
        yield from map(self._text, value.__bases__)
        for name, of in vars(value).items():
            if isinstance(of, FunctionType | classmethod | staticmethod) or not name.startswith("__"):
                yield f"{name} = {self._text(of)}"

    def _code(self, code: CodeType) -> str:
        constants = [self._text(constant) for constant in code.co_consts]
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return repr((code.co_code.hex(), code.co_exceptiontable.hex(), constants, names, counts))

    def _object(self, value: Any) -> str:
        return f"{self._text(type(value))} {[self._text(part) for part in _parts(value)]}"


def _parts(value: Any) -> Iterable[Any]:
    """Return what an object contains or wraps, or its pickled parts; nothing if it can't be pickled."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, set):
        return [frozenset(value)]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    wrapped = getattr(value, "func" if isinstance(value, functools.cached_property) else "__wrapped__", None)
    try:
        found = value.__reduce_ex__(4) if wrapped is None else [wrapped]
    except Exception:  # noqa: BLE001 - the object's own code may raise anything
        return []
    return [found] if isinstance(found, str) else [list(of) if isinstance(of, Iterator) else of for of in found]


def _is_installed(top: str) -> bool:
    """Return whether the module or package belongs to a library. One that can't be found belongs to a script."""
    try:
        spec = getattr(sys.modules.get(top), "__spec__", None) or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    places = [] if spec is None else [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return any(_is_of_libraries(Path(place)) for place in places)


def _is_of_libraries(place: Path) -> bool:
    folder = place.parent.parent if place.name == "__init__.py" else place.parent
    return bool(_INSTALLED & set(place.parts)) or any(folder.glob("*.dist-info"))


def _module_of(value: Any) -> str:
    """Return the module of its source: a decorator may have given a function the module of another."""
    of = value.__globals__.get("__name__") if isinstance(value, FunctionType) else value.__module__
    return str(of)


def _held(function: FunctionType) -> tuple[Any, ...]:
    """Return the contents of a function's closure; for an empty cell the type of the cell."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(CellType)
    return tuple(found)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the globals and attributes that `code` and the functions in it refer to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _imports(code: CodeType, package: str) -> Iterator[str]:
    """Yield what `code` of a module in `package`, and the functions in it, import; not all names are modules."""
    done = [instruction for instruction in dis.get_instructions(code) if instruction.opname != "EXTENDED_ARG"]
    for level, names, found in zip(done, done[1:], done[2:], strict=False):
        if found.opname == "IMPORT_NAME":
            module = f"{'.' * level.argval}{found.argval}"
            module = importlib.util.resolve_name(module, package) if level.argval else module
            yield from (module, *(f"{module}.{name}" for name in names.argval or ()))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant, package)


def _imported(name: str) -> ModuleType | None:
    """Return the module of that name, if there is one."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
