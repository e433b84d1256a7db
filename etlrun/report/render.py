"""Documents in each format, and on the terminal.

Terminals have lines with labels, and tables whose columns stand below each other; in Markdown nothing that users or
files say is markup; pages are self-contained, without network or other files.
"""

import base64
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from etlrun.report.chart import draw
from etlrun.report.doc import (
    Code,
    Col,
    Doc,
    Images,
    Line,
    Lines,
    Link,
    Paragraph,
    Part,
    Section,
    Table,
    has_picture,
    is_number,
    parts_for,
    worded,
)
from etlrun.system.errors import printable
from etlrun.system.terminal import plain, say_whole

if TYPE_CHECKING:
    from jinja2 import Environment

WIDTH = 200
"""Columns without a terminal."""
_LABEL = 9
"""Letters of a label, at least."""
_COLOURS = {"good": "32", "bad": "1;31", "mark": "33", "accent": "35", "soft": "2", "strong": "1"}
Paint = Callable[[str, str], str]
_MOST_IN_NOTEBOOKS = 30
"""Rows of a table in a notebook."""


def text(doc: Doc, width: int = WIDTH, *, is_coloured: bool = False) -> str:
    """Return a document as text; long texts of tables are wrapped at `width`, and nothing else is."""

    def paint(words: str, style: str) -> str:
        is_painted = is_coloured and style in _COLOURS and words
        return f"\x1b[{_COLOURS[style]}m{words}\x1b[0m" if is_painted else words

    told = "\n".join(_of_parts(doc.parts, width, paint)).rstrip("\n")  # a section ends with an empty line
    return told and f"{told}\n"


def _of_parts(parts: Sequence[Part], width: int, paint: Paint) -> Iterator[str]:
    for part in parts_for(parts, "text"):
        match part:
            case Section():
                if inside := [f"  {line}".rstrip() for line in _of_parts(part.parts, width - 2, paint)]:
                    yield from (paint(printable(part.title), part.style or "strong"), *inside, "")
            case Table():
                yield from _text_table(part, width, paint)
            case Lines():
                lines = part.each()
                longest = max(_LABEL, *(len(line.label) for line in lines))
                for line in lines:
                    first, *others = f"{worded(line.text)} {line.beside}".rstrip().splitlines() or [""]
                    label = f"{printable(line.label):<{longest}} " if line.label else ""
                    yield label + paint(printable(first), line.style)
                    yield from (" " * len(label) + printable(other) for other in others)
            case Paragraph():
                yield paint(printable(part.text), part.style)
            case Code():
                yield from (f"    {printable(line)}".rstrip() for line in part.text.splitlines())


def _text_table(part: Table, width: int, paint: Paint) -> Iterator[str]:
    filled, rows = part.filled(is_terminal=True), part.rows[: part.most]
    if not filled:
        return
    columns = [column for column, _ in filled]
    cells = [
        [column.name, *(" ".join(printable(cell).split()) for cell in each[: len(rows)])] for column, each in filled
    ]
    wide: Callable[[str], int] = len
    if not all(map(str.isascii, itertools.chain(*cells))):
        from rich.cells import cell_len as wide  # which takes 10 ms to import
    widths = [max(map(wide, each)) for each in cells]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    for place, column in enumerate(columns):
        if over > 0 and column.is_long:
            least = max(wide(word) for cell in cells[place] for word in cell.split() or [""])
            before, widths[place] = widths[place], max(least, widths[place] - over)
            over -= before - widths[place]
    is_right = [any(is_number(column.value(row)) for row in rows) for column in columns]
    for row, line in zip([None, *rows], zip(*cells, strict=True), strict=True):
        if row is not None or any(line):
            looks = ["strong" if row is None else column.style(row) if column.style else "" for column in columns]
            folded = [
                textwrap.wrap(cell, room, break_long_words=False, break_on_hyphens=False)
                if wide(cell) > room
                else [cell]
                for cell, room in zip(line, widths, strict=True)
            ]
            for cells_of_line in itertools.zip_longest(*folded, fillvalue=""):
                padded = []  # numbers end, and texts begin, at the same place
                for cell, look, room, right in zip(cells_of_line, looks, widths, is_right, strict=True):
                    pad, painted = " " * (room - wide(cell)), paint(cell, look)
                    padded.append(pad + painted if right else painted + pad)
                yield "  ".join(padded).rstrip()
    if len(rows) < len(part.rows):
        yield f"{'more':<{_LABEL}} {len(part.rows) - len(rows):,} rows"


def markdown(doc: Doc) -> str:
    """Return a document as Markdown."""
    heading, result = plain(doc.over or doc.title), plain(doc.title) if doc.over else ""
    return "\n\n".join(filter(None, (f"# {heading}", result, *blocks(doc.parts)))) + "\n"


def blocks(parts: Sequence[Part], level: int = 2) -> Iterator[str]:
    """Yield the blocks of parts, between which there is an empty line."""
    for part in parts_for(parts, "md"):
        inside = [*_inside(part, level)]
        if not inside:
            continue
        note = [plain(part.note)] if part.note else []
        if part.is_folded:
            yield "\n\n".join([f"<details><summary>{escape(part.title)}</summary>", *inside, *note, "</details>"])
        else:
            yield from [f"{'#' * level} {plain(part.title)}"] if part.title else []
            yield from [*inside, *note]


def _inside(part: Part, level: int) -> Iterator[str]:
    match part:
        case Section():
            yield from blocks(part.parts, level + 1)
        case Table():
            if columns := [column for column, _ in part.filled()]:
                rows = [[column.name for column in columns], ["---"] * len(columns)]
                rows += ([_md_cell(column, row) for column in columns] for row in part.rows)
                yield "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
        case Lines():
            yield "\n".join(map(_line, part.each()))
        case Paragraph():
            yield plain(part.text)
        case Code():
            yield f"{_fence(part.text, 3)}{part.language}\n{part.text.rstrip()}\n{_fence(part.text, 3)}"
        case Images():
            yield from (
                f"!{_linked(of.alt or of.text, of.url)}"
                for of in part.pictures
                if of.url and not of.url.startswith("data:")
            )


def _line(line: Line) -> str:
    told = _linked(*line.text) if isinstance(line.text, Link) else plain(f"{line.text} {line.beside}".rstrip())
    return f"- {plain(line.label):<9} {told}" if line.label else f"- {told}"


def _linked(text: str, address: str) -> str:
    return f"[{plain(text)}]({quote(address, safe='/:#?&=%+@')})"


def _md_cell(column: Col, row: object) -> str:
    value, text = column.value(row), column.cell(row)
    if isinstance(value, Link):
        return _linked(*value)
    if not column.is_code or not text:
        return plain(text)
    line = printable(" ".join(text.split()))
    fence, padding = _fence(line, 1), " " * ("`" in line)
    return f"{fence}{padding}{line}{padding}{fence}"


def _fence(text: str, least: int) -> str:
    """Return a fence of code, longer than any run of backticks in it."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def html(doc: Doc) -> str:
    """Return a document as a page."""
    return "".join(pieces(doc))


def fragment(doc: Doc) -> str:
    """Return a document for a notebook: in its colours, without a script, and with the first rows of tables alone."""
    return "".join(pieces(doc, "notebook"))


def pieces(doc: Doc, name: str = "html") -> Iterator[str]:
    """Yield a page piece by piece, so that one with many images is never in memory."""
    script = _text("script.js") if any(map(_is_active, parts_for(doc.parts, name))) else ""
    known = {
        "doc": doc,
        "parts": parts_for(doc.parts, name),
        "style": _text("style.css"),
        "script": script,
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "level": 2,
        "is_page": name == "html",
        "shown": partial(parts_for, name=name),
        "kind": lambda part: type(part).__name__,
        "cells": partial(_cells, is_page=name == "html"),
        "draw": draw,
        "has_picture": has_picture,
        "numbered": partial(next, itertools.count(1)),
    }
    yield from _environment().get_template(f"{name}.j2").generate(known)


def _is_active(part: Part) -> bool:
    """Return whether a part needs a script."""
    if isinstance(part, Section):
        return any(map(_is_active, part.parts))
    return part.is_copied if isinstance(part, Code) else bool(getattr(part, "sort", ""))


def _cells(table: Table, *, is_page: bool) -> tuple[Sequence[Any], list[tuple[Any, ...]]]:
    """Return the rows to draw; and columns with class, values, texts, largest magnitude, and if not all are text."""
    most = None if is_page else min(table.most or _MOST_IN_NOTEBOOKS, _MOST_IN_NOTEBOOKS)
    rows, columns = table.rows[:most], []
    for column, texts in table.filled():
        values = [*map(column.value, rows)]
        sizes = [abs(value) for value in values if is_number(value)]
        look = "figure" * bool(sizes) + " long" * column.is_long + " bar" * column.bar
        is_rich = not all(isinstance(value, str | int | float | None) for value in values)
        columns.append((column, look.strip(), values, texts, max(sizes, default=0.0), is_rich))
    return rows, columns


@cache
def _text(name: str) -> str:
    return resources.files("etlrun.report").joinpath("web", name).read_text(encoding="utf-8")


@cache
def _environment() -> "Environment":
    """Return the templates, each of which is compiled once: a run writes its page after each epoch."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def as_json(doc: Doc) -> str:
    """Return what a document has as JSON: plain values of its own, or the rows of its first table."""
    from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

    if doc.json:
        values = doc.json()
    else:
        inside = [each for part in doc.parts for each in (part.parts if isinstance(part, Section) else [part])]
        values = next((part for part in inside if isinstance(part, Table)), Table([], [])).values
    try:
        return to_json(values, indent=2).decode() + "\n"
    except PydanticSerializationError:  # of names of files that are no Unicode
        return json.dumps(to_jsonable_python(values), indent=2) + "\n"


RENDER: Mapping[str, Callable[[Doc], str]] = {"text": text, "md": markdown, "html": html, "json": as_json}
"""Functions from a document to its text, by the names of formats."""


def show(doc: Doc) -> None:
    """Print a document on standard output, as wide as the terminal, and in colours if it has any."""
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else WIDTH
    told = {name for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR") if os.environ.get(name)}
    is_coloured = (is_terminal and os.environ.get("TERM") != "dumb") or bool(told - {"NO_COLOR"})
    say_whole(text(doc, width, is_coloured=is_coloured and "NO_COLOR" not in told))
