"""Documents in each format, and on the terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping

from etlrun.report.doc import Doc, Section, Table
from etlrun.report.html import html
from etlrun.report.markdown import markdown
from etlrun.report.text import WIDTH, text
from etlrun.system.terminal import say_whole


def as_csv(doc: Doc) -> str:
    """Return the rows of a document as CSV: the values of all columns, with a line of their names."""
    table, written = _rows(doc), io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerows([column.value(row) for column in table.columns] for row in table.rows)
    return written.getvalue()


def as_json(doc: Doc) -> str:
    """Return what a document has as JSON: plain values of its own, or its rows."""
    from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

    if doc.json is not None:
        values = doc.json()
    else:
        table = _rows(doc)
        values = [{column.name: column.value(row) for column in table.columns} for row in table.rows]
    try:
        return to_json(values, indent=2).decode() + "\n"
    except PydanticSerializationError:  # of names of files that are no Unicode
        return json.dumps(to_jsonable_python(values), indent=2) + "\n"


def _rows(doc: Doc) -> Table:
    """Return the table of a document; an empty one if it has none."""
    parts = [each for part in doc.parts for each in (part.parts if isinstance(part, Section) else [part])]
    return doc.rows or next((part for part in parts if isinstance(part, Table)), Table([], []))


RENDER: Mapping[str, Callable[[Doc], str]] = {
    "text": text, "md": markdown, "html": html, "csv": as_csv, "json": as_json,
}  # fmt: skip
"""Functions from a document to its text, by the names of formats."""


def show(doc: Doc) -> None:
    """Print a document on standard output, as wide as the terminal, and in colours if it has any."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # a shell may close it
    width = shutil.get_terminal_size().columns if is_terminal else WIDTH
    told = {name for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR") if os.environ.get(name)}
    is_coloured = (is_terminal and os.environ.get("TERM") != "dumb") or bool(told - {"NO_COLOR"})
    say_whole(text(doc, width, is_coloured=is_coloured and "NO_COLOR" not in told))
