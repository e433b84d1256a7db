"""Documents as self-contained pages, without network or other files, and as parts of notebooks."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterator
from functools import cache, partial
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from etlrun.report.chart import draw
from etlrun.report.doc import Choice, Code, Col, Doc, Link, Part, Picture, Section, Table, is_number, parts_for

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_IN_NOTEBOOKS = 30
"""Rows of a table in a notebook."""


def html(doc: Doc) -> str:
    """Return a document as a page."""
    return "".join(pieces(doc))


def pieces(doc: Doc) -> Iterator[str]:
    """Yield a page piece by piece, so that one with many images is never in memory."""
    script = _text("script.js") if any(map(_is_active, parts_for(doc.parts, "html"))) else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    yield from _page("page.html.j2", "html", doc, script=script, digest=digest.decode())


def fragment(doc: Doc) -> str:
    """Return a document for a notebook: in its colours, without a script, and with the first rows of tables alone."""
    return "".join(_page("fragment.html.j2", "notebook", doc))


def _page(template: str, name: str, doc: Doc, **values: Any) -> Iterator[str]:
    known = {
        "doc": doc,
        "parts": parts_for(doc.parts, name),
        "style": _text("style.css"),
        "level": 2,
        "is_page": name == "html",
        "shown": lambda parts: parts_for(parts, name),
        "kind": lambda part: type(part).__name__,
        "cells": partial(_cells, is_page=name == "html"),
        "stages": _as_json,
        "draw": draw,
        "is_link": lambda value: isinstance(value, Link),
        "numbered": partial(next, itertools.count(1)),
    }
    yield from _environment().get_template(template).generate(values | known)


def _is_active(part: Part) -> bool:
    """Return whether a part needs a script."""
    if isinstance(part, Section):
        return any(map(_is_active, part.parts))
    return part.is_copied if isinstance(part, Code) else isinstance(part, Choice) or bool(getattr(part, "sort", ""))


def _cells(table: Table, *, is_page: bool) -> tuple[list[tuple[Col, str]], str]:
    """Return columns with the classes of their cells, and rows as HTML: a template takes four times as long."""
    most = None if is_page else min(table.most or _MOST_IN_NOTEBOOKS, _MOST_IN_NOTEBOOKS)
    rows, is_sorted, heads, body = table.rows[:most], bool(table.sort) and is_page, [], []
    for row in rows:
        words = f' data-words="{escape(table.words(row))}"' if table.words and is_sorted else ""
        body.append(f"<tr{_class('chosen' if table.mark and table.mark(row) else '')}{words}>")
    for column, _ in table.filled():
        values = [column.value(row) for row in rows]
        numbers = [value for value in values if is_number(value)]
        kind = "figure" * bool(numbers) + " long" * column.is_long + " bar" * column.bar
        heads.append((column, kind.strip()))
        largest = max(map(abs, numbers), default=0.0) or 1.0
        tag = 'th scope="row"' if column.is_head else "td"
        for place, (row, value) in enumerate(zip(rows, values, strict=True)):
            share = column.share(row) if column.share else None
            style = "" if share is None else f' style="--share: {100 * share:.1f}%"'
            if column.bar and is_number(value):
                style = f' style="--bar: {100 * abs(value) / largest:.1f}%"'
            look = f"{kind} {column.style(row) if column.style else ''}{' share' * (share is not None)}"
            exact = f' data-value="{value}"' if is_sorted and is_number(value) else ""
            body[place] += f"<{tag}{_class(look)}{exact}{style}>{_content(column, row, value)}</{tag[:2]}>"
    left = f'<tr><td colspan="{len(heads)}">{len(table.rows) - len(rows):,} more</td></tr>'
    return heads, "</tr>\n".join([*body, left * (len(rows) < len(table.rows))])


def _content(column: Col, row: Any, value: Any) -> str:
    match value:
        case [*each] if any(isinstance(one, Picture) for one in each):
            return "".join(_content(column, row, one) for one in each)
        case Picture(url, text, alt, width, height):
            image = f'<img src="{escape(url)}" alt="{escape(alt)}" width="{width}" height="{height}">'
            caption = f"<figcaption>{escape(text)}</figcaption>" if text else ""
            return f"<figure>{image}{caption}</figure>" if url else f"<p>{escape(text)}</p>"
        case Link(text, address):
            return f'<a href="{escape(address)}">{escape(text)}</a>'
    text = escape(column.cell(row))
    return f"<code>{text}</code>" if column.is_code else text


def _class(kind: str) -> str:
    words = " ".join(kind.split())
    return f' class="{words}"' if words else ""


def _as_json(choice: Choice) -> str:
    """Return the tables of a choice for the script of the page; `<` can't end its element."""
    tables = [
        {"label": name, "rows": [[column.cell(row) for column in table.columns] for row in table.rows]}
        for name, table in choice.tables.items()
    ]
    header = [column.name for column in next(iter(choice.tables.values())).columns]
    whole = {"header": header, "tables": tables, "chosen": [*choice.chosen]}
    return json.dumps(whole, ensure_ascii=False).replace("<", "\\u003c")


@cache
def _text(name: str) -> str:
    return resources.files("etlrun.report").joinpath("web", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return the templates, each of which is compiled once: a run writes its page after each epoch."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
