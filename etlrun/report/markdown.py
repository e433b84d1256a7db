"""Documents as Markdown, in which nothing that users or files say is markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import quote

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
    parts_for,
)
from etlrun.system.errors import printable
from etlrun.system.terminal import plain


def markdown(doc: Doc) -> str:
    """Return a document as Markdown."""
    head = [f"# {plain(doc.over or doc.title)}"]
    head += [plain(doc.title)] if doc.over and doc.title else []
    return "\n\n".join([*head, *blocks(doc.parts)]) + "\n"


def blocks(parts: Sequence[Part], level: int = 2) -> Iterator[str]:
    """Yield the blocks of parts, between which there is an empty line."""
    for part in parts_for(parts, "md"):
        inside = [*_inside(part, level)]
        if not inside:
            continue
        note = [plain(part.note)] if part.note else []
        if part.is_folded:
            whole = "\n\n".join([f"<details><summary>{escape(part.title)}</summary>", *inside, *note, "</details>"])
            yield whole
        else:
            yield from [f"{'#' * level} {plain(part.title)}"] if part.title else []
            yield from [*inside, *note]


def _inside(part: Part, level: int) -> Iterator[str]:
    if isinstance(part, Section):
        yield from blocks(part.parts, level + 1)
    elif isinstance(part, Table):
        yield from _table(part)
    elif isinstance(part, Lines):
        yield "\n".join(map(_line, part.each()))
    elif isinstance(part, Paragraph):
        yield plain(part.text)
    elif isinstance(part, Code):
        yield f"{_fence(part.text, 3)}{part.language}\n{part.text.rstrip()}\n{_fence(part.text, 3)}"
    elif isinstance(part, Images):
        shown = [picture for picture in part.pictures if picture.url and not picture.url.startswith("data:")]
        yield from (f"![{plain(picture.alt or picture.text)}]({_address(picture.url)})" for picture in shown)


def _line(line: Line) -> str:
    told = _linked(line.text) if isinstance(line.text, Link) else plain(f"{line.text} {line.beside}".rstrip())
    return f"- {plain(line.label):<9} {told}" if line.label else f"- {told}"


def _linked(link: Link) -> str:
    return f"[{plain(link.text)}]({_address(link.address)})"


def _address(url: str) -> str:
    return quote(url, safe="/:#?&=%+@")


def _table(part: Table) -> Iterator[str]:
    columns = [(column, [_cell(column, row) for row in part.rows]) for column, _ in part.filled()]
    if not columns:
        return
    rows = [[column.name for column, _ in columns], ["---"] * len(columns)]
    rows += zip(*(cells for _, cells in columns), strict=True)  # type: ignore[arg-type]
    yield "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _cell(column: Col, row: object) -> str:
    value = column.value(row)
    if isinstance(value, Link):
        return _linked(value)
    text = column.cell(row)
    return inline(text) if column.is_code and text else plain(text)


def inline(text: str) -> str:
    """Return text as code on one line, with a fence longer than any run of backticks in it."""
    line = printable(" ".join(text.split()))
    fence, padding = _fence(line, 1), " " * ("`" in line)
    return f"{fence}{padding}{line}{padding}{fence}"


def _fence(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))
