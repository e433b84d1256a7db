"""Source code of functions as it was when their modules were imported: files may be edited while a process runs."""

from __future__ import annotations

import inspect
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import dedent
from typing import Any

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
