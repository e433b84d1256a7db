"""Documents for terminals: lines with labels, and tables whose columns stand below each other."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from etlrun.report.doc import Code, Doc, Lines, Paragraph, Part, Section, Table, is_number, parts_for, worded
from etlrun.system.errors import printable

WIDTH = 200
"""Columns without a terminal."""
_LABEL = 9
"""Letters of a label, at least."""
_COLOURS = {"good": "32", "bad": "1;31", "mark": "33", "accent": "35", "soft": "2", "strong": "1"}
Paint = Callable[[str, str], str]


def text(doc: Doc, width: int = WIDTH, *, is_coloured: bool = False) -> str:
    """Return a document as text; long texts of tables are wrapped at `width`, and nothing else is."""
    paint: Paint = _coloured if is_coloured else lambda words, _: words
    return "".join(f"{line}\n" for line in _of_parts(doc.parts, width, paint))


def _coloured(words: str, style: str) -> str:
    return f"\x1b[{_COLOURS[style]}m{words}\x1b[0m" if style in _COLOURS and words else words


def _of_parts(parts: Sequence[Part], width: int, paint: Paint) -> Iterator[str]:
    for part in parts_for(parts, "text"):
        if isinstance(part, Section):
            if lines := [f"  {line}".rstrip() for line in _of_parts(part.parts, width - 2, paint)]:
                yield from (paint(printable(part.title), part.style or "strong"), *lines, "")
        elif isinstance(part, Table):
            yield from _table(part, width, paint)
        elif isinstance(part, Lines):
            yield from _lines(part, paint)
        elif isinstance(part, Paragraph):
            yield paint(printable(part.text), part.style)
        elif isinstance(part, Code):
            yield from (f"    {printable(line)}".rstrip() for line in part.text.splitlines())


def _lines(part: Lines, paint: Paint) -> Iterator[str]:
    lines = part.each()
    longest = max((len(line.label) for line in lines), default=0)
    for line in lines:
        first, *others = f"{worded(line.text)} {line.beside}".rstrip().splitlines() or [""]
        label = f"{printable(line.label):<{max(longest, _LABEL)}} " if line.label else ""
        yield label + paint(printable(first), line.style)
        yield from (" " * len(label) + printable(other) for other in others)


def _table(part: Table, width: int, paint: Paint) -> Iterator[str]:
    filled, rows = part.filled(is_terminal=True), part.rows[: part.most]
    if not filled:
        return
    columns = [column for column, _ in filled]
    cells = [
        [column.name, *(" ".join(printable(cell).split()) for cell in each[: len(rows)])] for column, each in filled
    ]
    widths = [max(map(_wide, each)) for each in cells]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    for place, column in enumerate(columns):
        if over > 0 and column.is_long:
            least = max(_wide(word) for cell in cells[place] for word in cell.split() or [""])
            before, widths[place] = widths[place], max(least, widths[place] - over)
            over -= before - widths[place]
    is_right = [any(is_number(column.value(row)) for row in rows) for column in columns]
    for number, line in enumerate(zip(*cells, strict=True)):
        if number or any(line):
            looks = [column.style(rows[number - 1]) if column.style and number else "" for column in columns]
            looks = looks if number else ["strong"] * len(columns)
            yield from _folded(line, widths, is_right, [(paint, look) for look in looks])
    if len(rows) < len(part.rows):
        yield f"{'more':<{_LABEL}} {len(part.rows) - len(rows):,} rows"


def _folded(
    cells: Sequence[str], widths: Sequence[int], is_right: Sequence[bool], paints: Sequence[tuple[Paint, str]]
) -> Iterator[str]:
    """Yield the lines of a row, whose numbers end, and whose texts begin, at the same place."""
    folded = [
        textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) if _wide(cell) > width else [cell]
        for cell, width in zip(cells, widths, strict=True)
    ]
    for line in zip_longest(*folded, fillvalue=""):
        padded = []
        for cell, width, right, (paint, look) in zip(line, widths, is_right, paints, strict=True):
            pad, painted = " " * (width - _wide(cell)), paint(cell, look)
            padded.append(pad + painted if right else painted + pad)
        yield "  ".join(padded).rstrip()


def _wide(words: str) -> int:
    """Return the columns of a terminal that a text takes."""
    marks = (unicodedata.east_asian_width(mark) in "WF" for mark in words if not unicodedata.combining(mark))
    return sum(1 + is_wide for is_wide in marks)
