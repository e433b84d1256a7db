"""Page of a sheet: one self-contained HTML file, without network, scripts or other files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup

from etlrun.datasets.examine.images import pixels_of
from etlrun.datasets.examine.sheet import Column, Row, Sheet, View, as_text, is_image
from etlrun.system import pages
from etlrun.system.thumbnails import tag, thumbnail


class Item(NamedTuple):
    """A feature in a cell.

    Attributes:
        text: Description below an image, or the feature itself.
        image: Thumbnail; empty for text.
    """

    text: str
    image: Markup = Markup("")


def html(sheet: Sheet, made_by: str) -> str:
    """Return the page of a sheet, which was `made_by` a command or a change."""
    return pages.rendered(
        "etlrun.datasets.examine",
        "show.html.j2",
        sheet=sheet,
        made_by=made_by,
        has_views=any(column.views[0].name for column in sheet.columns),
        rows=[(row, [[*_items(row, place, *of)] for of in sheet.views]) for place, row in enumerate(sheet.rows)],
    )


def _items(row: Row, place: int, column: Column, view: View) -> Iterator[Item]:
    for name, feature in view.features.items():
        value = view.cells[place][name]
        if not is_image(feature):
            yield Item(f"{name} {as_text(value, feature)}")
            continue
        pixels = pixels_of(view, name, place)
        size = "x".join(map(str, pixels.shape[:2]))
        encoded = f", {len(value):,} bytes" if feature.format == "image" else ""
        alt = ", ".join(filter(None, [f"{name} after {column.path}", view.name, row.target, row.place]))
        yield Item(f"{size}{encoded}", tag(thumbnail(pixels), alt))
