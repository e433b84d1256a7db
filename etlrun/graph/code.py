"""The code that makes the examples, as it is in memory: files may have been edited since they were imported.

What counts of a function is its bytecode, its constants, defaults and closure, and in turn everything that it names:
functions, classes with their methods, helpers in other modules, tables, modules that it imports when it is called.
Folders, line numbers and comments don't count, so that another checkout of the same text has the same code.

Only own code is looked into: of the packages of the functions asked for, and of all that is neither in the standard
library nor beside installed libraries (in `site-packages`, or where a `*.dist-info` lies). Of libraries and of compiled
code the names count that are used. A table that changes while a process runs makes other code each time.
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
    """For each module that functions and classes `roots` reach, 16 hex digits of a SHA-256 over what they reach in it.

    The same in each process that has imported the same text on the same Python (3.11, 3.12, …).
    """
    roots, known = list(roots), set(sys.modules)
    found = _Reached(roots)
    if sys.modules.keys() != known:  # a module that is imported late has become an attribute of its package
        found = _Reached(roots)
    return {
        module: hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
        for module, texts in sorted(found.texts.items())
    }


class _Reached:
    """What some functions and classes reach.

    Attributes:
        texts: For each module, what each of its functions and classes does, by their names.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self.texts: dict[str, dict[str, str]] = {}
        self._own = {root.__module__.partition(".")[0]: True for root in roots if isinstance(root, FunctionType | type)}
        self._told: dict[int, tuple[str, Any]] = {}  # with the objects, whose addresses are not to be used again
        for root in roots:
            self._text(root)

    def _is_own(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top not in self._own:
            self._own[top] = top not in sys.stdlib_module_names and not _is_installed(top)
        return self._own[top]

    def _text(self, value: Any) -> str:
        """Of a value all that counts; of own functions and classes the name under which that stands in `texts`."""
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, bytes | bytearray):
            return f"bytes {hashlib.sha256(value).hexdigest()}"
        if isinstance(value, tuple | frozenset):  # whether equal ones are one object is the compiler's business
            texts = [self._text(of) for of in value]
            return f"{type(value).__name__} {texts if isinstance(value, tuple) else sorted(texts)}"
        if isinstance(value, CodeType):
            return self._code(value)
        if id(value) not in self._told:
            self._told[id(value)] = f"within {type(value).__qualname__}", value  # where it holds itself
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
        """Of an own module what is used of it, which can only be one of `names`; of anything else all of it."""
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
    """What an object holds or wraps, or what it would be pickled as; of one that can't be pickled nothing."""
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
    except Exception:  # noqa: BLE001 - any object's own
        return []
    return [found] if isinstance(found, str) else [list(of) if isinstance(of, Iterator) else of for of in found]


def _is_installed(top: str) -> bool:
    """Whether the module or package of that name is a library's. What can't be found is a script, or made by one."""
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
    """In which it was written: a decorator may have given a function the module of another."""
    of = value.__globals__.get("__name__") if isinstance(value, FunctionType) else value.__module__
    return str(of)


def _held(function: FunctionType) -> tuple[Any, ...]:
    """What the closure of a function holds; for what it does not hold yet the type of its cell."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(CellType)
    return tuple(found)


def _names(code: CodeType) -> Iterator[str]:
    """The globals and attributes that `code` names, and the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _imports(code: CodeType, package: str) -> Iterator[str]:
    """What `code`, of a module in `package`, imports, and the functions in it; perhaps names that are no modules."""
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
    """The module of that name, where there is one."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
