"""Tables: on the terminal, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Rows = Sequence[Sequence[str]]

TEXTS = {
    "overrides", "status", "reason", "stage", "result", "bound by", "set by", "data", "key", "dataset", "elements",
    "state",
}  # fmt: skip
"""Columns of words, which stand on the left."""


_MARKS = re.compile(r"[&`<\[@*\\~$]|(?<![^\W_])_|_(?![^\W_])")
"""What may be markup; within a word an underscore is none."""


def megabytes(size: float | None) -> str:
    """A size in bytes, or `-`."""
    return "-" if size is None else f"{size / 1e6:,.1f} MB"


def rounded(size: float) -> str:
    """A size in bytes, in the largest unit of which there is one: `35 MB`."""
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
    unit, name = next(((unit, name) for unit, name in units if size >= unit), units[-1])
    digits = 1 if unit > 1 and round(size / unit, 1) < 10 else 0  # noqa: PLR2004 - `1.5 GB`, and not `2 GB`
    return f"{size / unit:,.{digits}f} {name}"


def number(value: float | None, digits: int) -> str:
    """A figure, or `-`."""
    return "-" if value is None else f"{value:.{digits}f}"


def _filled(header: Sequence[str], rows: Rows) -> list[int]:
    """The columns in which some row has something to say."""
    return [index for index in range(len(header)) if not rows or any(row[index] for row in rows)]


def print_table(header: Sequence[str], rows: Rows) -> None:
    """Print `rows` without the columns in which no row has something to say."""
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _filled(header, rows)
    for index in columns:
        table.add_column(
            header[index],
            justify="left" if header[index] in TEXTS else "right",
            overflow="fold",
            no_wrap=header[index] not in {"overrides", "reason"},
        )
    for row in rows:
        table.add_row(*(escape(row[index]) for index in columns))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def plain(text: str) -> str:
    """`text` as Markdown in one line, in which nothing is markup, a formula or a mention: a reader sees `text`."""
    return re.sub(_MARKS, lambda mark: f"&#{ord(mark.group())};", " ".join(text.split()))


def as_markdown(header: Sequence[str], rows: Rows) -> str:
    """The same as Markdown, of cells that are Markdown: see `plain`."""
    columns = _filled(header, rows)
    lines = [[header[index] for index in columns], ["---"] * len(columns)]
    lines += [[row[index].replace("|", "\\|") for index in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
