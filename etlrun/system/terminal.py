"""Lines and tables for the terminal and for Markdown, and the formatting of numbers."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from etlrun.system.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH = 200
"""Columns of a table without a terminal."""
_ANY_WIDTH = 1_000_000
"""Columns that are enough for any table."""
STANDARD_OUTPUT = "standard output"
"""What the message of an error calls it."""
Rows = Sequence[Sequence[str]]

TEXTS = {
    "overrides", "status", "reason", "stage", "result", "bound by", "set by", "data", "key", "dataset", "elements",
    "state", "folder", "best", "created at", "feature", "kind", "name", "package", "where", "fields", "experiments",
    "machine",
}  # fmt: skip
"""Headers of text columns, which are left-aligned."""


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
    """Let `above` print what lines say on standard error inside."""
    before, _state.above = _state.above, above
    try:
        yield
    finally:
        _state.above = before


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
        if _state.above is not None:
            _state.above(text)
        else:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where Python flushes the rest at its end


def console() -> Console | None:
    """Return a console for colours; None where standard output is no terminal, since `rich` takes long to import."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # a shell may close it
    if not is_terminal and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return None
    from rich.console import Console

    return Console(highlight=False)


def print_parts(console: Console | None, *parts: tuple[str, str]) -> None:
    """Print a line of texts, escaped as by `say`, each with its style; without a console, the texts alone."""
    if console is None:
        say("".join(text for text, _ in parts))
        return
    from rich.text import Text

    with printing():
        console.print(Text.assemble(*((printable(text), style) for text, style in parts)), soft_wrap=True)


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


def _filled(header: Sequence[str], rows: Rows) -> list[int]:
    """Return the indices of the columns in which at least one row has a value."""
    return [index for index in range(len(header)) if not rows or any(row[index] for row in rows)]


def print_table(header: Sequence[str], rows: Rows) -> None:
    """Print a table without its empty columns."""
    if not rows or sys.stdout is None:
        return
    from rich.console import Console

    width = Console().width if sys.stdout.isatty() else _WIDTH  # FORCE_COLOR asks for colours alone, as a notebook does
    table = _table(header, rows)
    with printing():
        Console(width=max(width, _least(table))).print(table)  # the terminal wraps lines, and no figure is cut


def table_text(header: Sequence[str], rows: Rows) -> str:
    """Return what `print_table` prints without a terminal."""
    if not rows:
        return ""
    from rich.console import Console

    text, table = io.StringIO(), _table(header, rows)
    width = max(_WIDTH, _least(table))
    Console(file=text, width=width, force_terminal=False, force_jupyter=False).print(table)
    return text.getvalue()


def _least(table: Table) -> int:
    """Return the least width in which all cells of a table are whole, but for those that may be folded."""
    from rich.console import Console

    return Console(width=_ANY_WIDTH).measure(table).minimum


def _table(header: Sequence[str], rows: Rows) -> Table:
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Table

    header, *rows = [[printable(cell) for cell in row] for row in (header, *rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _filled(header, rows)
    for index in columns:
        is_whole = header[index] not in {"overrides", "reason"}
        cells = [header[index], *(row[index] for row in rows)]
        table.add_column(
            escape(header[index]),
            justify="left" if header[index] in TEXTS else "right",
            overflow="fold",
            no_wrap=is_whole,
            min_width=max(cell_len(part) for cell in cells for part in ([cell] if is_whole else cell.split())),
        )
    for row in rows:
        table.add_row(*(escape(row[index]) for index in columns))
    return table


def plain(text: str) -> str:
    """Escape `text` for one line of Markdown, so that nothing in it renders as markup, a formula or a mention."""
    return re.sub(_MARKS, lambda mark: f"&#{ord(mark.group())};", printable(" ".join(text.split())))


def as_markdown(header: Sequence[str], rows: Rows) -> str:
    """Return the table as Markdown without its empty columns; its cells are Markdown, too: see `plain`."""
    columns = _filled(header, rows)
    lines = [[header[index] for index in columns], ["---"] * len(columns)]
    lines += [[row[index].replace("|", "\\|") for index in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
