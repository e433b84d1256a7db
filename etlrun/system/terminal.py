"""Lines for the terminal, and the formatting of numbers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etlrun.system.errors import printable

STANDARD_OUTPUT = "standard output"
"""What the message of an error calls it."""

_MARKS = re.compile(r"[&`<\[@*\\~$]|(?<![^\W_])_|_(?![^\W_])")
"""Characters that Markdown may read as markup; an underscore within a word is none."""


class _State:
    """How lines are printed.

    Attributes:
        is_quiet: Whether notes and errors alone are printed.
        above: Function that prints a line above what is repainted on the terminal; None if nothing is.
    """

    is_quiet = False
    above: Callable[[str], None] | None = None


_state = _State()


@contextmanager
def quietly(*, is_quiet: bool) -> Iterator[None]:
    """Print nothing but notes and errors inside, if `is_quiet`."""
    before, _state.is_quiet = _state.is_quiet, is_quiet
    try:
        yield
    finally:
        _state.is_quiet = before


@contextmanager
def printing_above(above: Callable[[str], None]) -> Iterator[None]:
    """Let `above` print what lines say on standard error inside, where nothing else does."""
    _state.above = above
    try:
        yield
    finally:
        _state.above = None


def is_quiet() -> bool:
    """Return whether notes and errors alone are printed."""
    return _state.is_quiet


def say(text: str) -> None:
    """Print a line on standard output; what would end it or move the cursor is escaped, as of values of a config."""
    say_whole(f"{printable(text)}\n")


def tell(text: str) -> None:
    """Print a line about what goes on on standard error, unless notes and errors alone are printed."""
    if not _state.is_quiet:
        _on_stderr(text)


def say_note(text: str) -> None:
    """Print a note on standard error."""
    _on_stderr(f"note  {text}")


def _on_stderr(text: str) -> None:
    """Print a line on standard error, escaped as by `say`; a terminal that has been closed ends no run."""
    text = printable(text)
    try:
        if _state.above:
            _state.above(text)
        else:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where Python flushes the rest at its end


@contextmanager
def printing() -> Iterator[None]:
    """Let an `OSError` inside name standard output: a long text is written before its end."""
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def say_whole(text: str) -> None:
    """Write a text as it is to standard output, unless a shell has closed it."""
    with printing():
        if sys.stdout is not None:
            sys.stdout.write(text)


def megabytes(size: float | None) -> str:
    """Format a number of bytes in megabytes; `-` for None."""
    return "-" if size is None else f"{size / 1e6:,.1f} MB"


def number(value: float | None, digits: int) -> str:
    """Format a number with `digits` decimal places; `-` for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def significant(value: float | None) -> str:
    """Format a number of any size with five significant digits; `-` for None."""
    return "-" if value is None else f"{float(f'{value:.5g}'):,.12g}"


def plain(text: str) -> str:
    """Escape `text` for one line of Markdown, so that nothing in it renders as markup, a formula or a mention."""
    return re.sub(_MARKS, lambda mark: f"&#{ord(mark.group())};", printable(" ".join(text.split())))
