"""Pixels of images of any dtype and range, and one image of a whole sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from etlrun.datasets.examine.sheet import Column, Sheet, View, as_text, is_image
from etlrun.stages.image import Decode
from etlrun.system.thumbnails import SIDE, thumbnail

_GAP, _LINE, _FONT_SIZE, _CHARACTERS = 12, 15, 12, 25
"""Sizes of the one image in pixels, and characters in a line above a thumbnail."""
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
_PAPER, _INK, _SOFT = "#ffffff", "#1b1f24", "#57606a"


def pixels_of(view: View, name: str, place: int) -> npt.NDArray[np.uint8]:
    """Return the image of one cell as uint8 (height, width, 1 or 3), mapped from the range of its feature.

    If the range is unknown, it is that of all cells of the view. Values out of range are clipped; NaN is black.
    """
    feature, value = view.features[name], view.cells[place][name]
    if feature.format == "image":
        return np.asarray(Decode.op(value), np.uint8)
    ends = view.ends(name) if feature.low is None or feature.high is None else (feature.low, feature.high)
    low, high = ends or (0.0, 255.0)
    scaled = (np.asarray(value, np.float64) - low) * (255 / (high - low) if high > low else 0.0)
    return np.rint(np.clip(np.nan_to_num(scaled), 0, 255)).astype(np.uint8)


def picture(sheet: Sheet) -> Image.Image:
    """Return the whole sheet as one image: a row for each example, a head above each column of images."""
    font = ImageFont.load_default(_FONT_SIZE)
    heads = [_wrapped(_head(column, view)) for column, view in sheet.views]
    widths = [max(1, sum(map(is_image, view.features.values()))) * (SIDE + _GAP) for _, view in sheet.views]
    lefts = [*accumulate(widths, initial=SIDE + 2 * _GAP)]
    top = 3 * _GAP + _LINE * (1 + max(map(len, heads)))
    image = Image.new("RGB", (lefts[-1], top + len(sheet.rows) * (SIDE + _GAP)), _PAPER)
    draw = ImageDraw.Draw(image)
    draw.text((_GAP, _GAP), f"{sheet.title}: {sheet.source}", _INK, font)
    for left, lines in zip(lefts, heads, strict=False):
        _write(draw, (left, 2 * _GAP + _LINE), lines, font)
    for number, row in enumerate(sheet.rows):
        y = top + number * (SIDE + _GAP)
        _write(draw, (_GAP, y), _wrapped([row.target, row.place]), font)
        for left, (_, view) in zip(lefts, sheet.views, strict=False):
            _cell(image, (left, y), view, number, font)
    return image


def _head(column: Column, view: View) -> list[str]:
    lines = [*column.path.split(".", 1), *([view.name] if view.name else [])]
    for name, feature in view.features.items():
        lines += [f"{name}: {feature}" if len(view.features) > 1 else str(feature), f"shown: {view.shown(name)}"]
    return lines


def _cell(image: Image.Image, at: tuple[int, int], view: View, place: int, font: Font) -> None:
    lines, (x, y) = list[str](), at
    for name, feature in view.features.items():
        if is_image(feature):
            image.paste(thumbnail(pixels_of(view, name, place)), (x, y))
            x += SIDE + _GAP
        else:
            lines.append(f"{name} {as_text(view.cells[place][name], feature)}")
    _write(ImageDraw.Draw(image), at, _wrapped(lines)[: SIDE // _LINE], font)


def _write(draw: ImageDraw.ImageDraw, at: tuple[int, int], lines: Sequence[str], font: Font) -> None:
    for number, line in enumerate(lines):
        draw.text((at[0], at[1] + number * _LINE), line, _SOFT if number else _INK, font)


def _wrapped(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, _CHARACTERS)]
