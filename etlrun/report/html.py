"""Documents as self-contained pages, without network or other files, and as parts of notebooks."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from etlrun.report.chart import draw
from etlrun.report.doc import Choice, Code, Col, Doc, Link, Part, Picture, Section, Table, is_number, parts_for, worded

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_IN_NOTEBOOKS = 30
"""Rows of a table in a notebook."""


def html(doc: Doc) -> str:
    """Return a document as a page."""
    return "".join(pieces(doc))


def pieces(doc: Doc) -> Iterator[str]:
    """Yield a page piece by piece, so that one with many images is never in memory."""
    parts = parts_for(doc.parts, "html")
    script = _text("script.js") if any(map(_is_active, parts)) else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    yield from _page("page.html.j2", "html", doc=doc, parts=parts, script=script, digest=digest)


def fragment(doc: Doc) -> str:
    """Return a document for a notebook: in its colours, without a script, and with the first rows of tables alone."""
    return "".join(_page("fragment.html.j2", "notebook", doc=doc, parts=parts_for(doc.parts, "notebook")))


def _page(template: str, name: str, **values: Any) -> Iterator[str]:
    number = itertools.count(1)
    yield from (
        _environment()
        .get_template(template)
        .generate(
            **values,
            style=_text("style.css"),
            level=2,
            is_page=name == "html",
            shown=lambda parts: parts_for(parts, name),
            kind=lambda part: type(part).__name__,
            cells=lambda table: _cells(table, is_page=name == "html"),
            stages=_as_json,
            draw=draw,
            worded=worded,
            is_link=lambda value: isinstance(value, Link),
            numbered=lambda: next(number),
        )
    )


def _is_active(part: Part) -> bool:
    """Return whether a part needs a script."""
    if isinstance(part, Section):
        return any(map(_is_active, part.parts))
    if isinstance(part, Table):
        return bool(part.sort)
    return isinstance(part, Choice) or (isinstance(part, Code) and part.is_copied)


class _Cells(NamedTuple):
    """Cells of a table: its columns with the classes of their cells, and the rows as HTML."""

    heads: Sequence[tuple[Col, str]]
    rows: str


def _cells(table: Table, *, is_page: bool) -> _Cells:
    """Return the cells of a table; a template takes four times as long for the 150,000 of a large sweep."""
    most = None if is_page else min(table.most or _MOST_IN_NOTEBOOKS, _MOST_IN_NOTEBOOKS)
    rows, is_sorted, heads = table.rows[:most], bool(table.sort) and is_page, []
    body = []
    for row in rows:
        words = f' data-words="{escape(table.words(row))}"' if table.words is not None and is_sorted else ""
        body.append(f"<tr{_class('chosen' if table.mark is not None and table.mark(row) else '')}{words}>")
    for column, _ in table.filled():
        values = [column.value(row) for row in rows]
        numbers = [value for value in values if is_number(value)]
        kind = "figure" * bool(numbers) + " long" * column.is_long + " bar" * column.bar
        heads.append((column, kind.strip()))
        largest = max(map(abs, numbers), default=0.0) or 1.0
        for place, (row, value) in enumerate(zip(rows, values, strict=True)):
            body[place] += _cell(column, row, value, kind, largest, is_sorted=is_sorted)
    left = f'<tr><td colspan="{len(heads)}">{len(table.rows) - len(rows):,} more</td></tr>'
    return _Cells(heads, "</tr>\n".join([*body, left if len(rows) < len(table.rows) else ""]))


def _cell(column: Col, row: Any, value: Any, kind: str, largest: float, *, is_sorted: bool) -> str:
    if column.style is not None:
        kind += f" {column.style(row)}"
    exact = f' data-value="{value}"' if is_sorted and is_number(value) else ""
    share = column.share(row) if column.share is not None else None
    style = "" if share is None else f' style="--share: {100 * share:.1f}%"'
    if column.bar and is_number(value):
        style = f' style="--bar: {100 * abs(value) / largest:.1f}%"'
    kind += " share" * (share is not None)
    tag = 'th scope="row"' if column.is_head else "td"
    return f"<{tag}{_class(kind)}{exact}{style}>{_content(column, row, value)}</{tag[:2]}>"


def _content(column: Col, row: Any, value: Any) -> str:
    if isinstance(value, list) and any(isinstance(each, Picture) for each in value):
        return "".join(_content(column, row, each) for each in value)
    if isinstance(value, Picture):
        image = (
            f'<img src="{escape(value.url)}" alt="{escape(value.alt)}" width="{value.width}" height="{value.height}">'
        )
        caption = f"<figcaption>{escape(value.text)}</figcaption>" if value.text else ""
        return f"<figure>{image}{caption}</figure>" if value.url else f"<p>{escape(value.text)}</p>"
    if isinstance(value, Link):
        return f'<a href="{escape(value.address)}">{escape(value.text)}</a>'
    text = escape(column.cell(row))
    return f"<code>{text}</code>" if column.is_code else text


def _class(kind: str) -> str:
    return f' class="{kind.strip()}"' if kind.strip() else ""


def _as_json(choice: Choice) -> str:
    """Return the tables of a choice for the script of the page; `<` can't end its element."""
    tables, header = [], list[str]()
    for name, table in choice.tables.items():
        header = [column.name for column in table.columns]
        rows = [[column.cell(row) for column in table.columns] for row in table.rows]
        tables.append({"label": name, "rows": rows})
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
