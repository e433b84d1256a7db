"""Charts as SVG, in the colours and the font of the page around them.

An axis maps values to pixels. Marks are placed in pixels, and have a look: a class of the style sheet of all pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

LETTER = 7
"""Width of a letter in pixels, about."""
_TICKS = 4
_SHAPES = {
    "diamond": "m0-5.5l5.5 5.5-5.5 5.5-5.5-5.5z",
    "star": "m0-8l1.9 5.4 5.7.1-4.5 3.5 1.6 5.5-4.7-3.3-4.7 3.3 1.6-5.5-4.5-3.5 5.7-.1z",
}
Place = tuple[float, float]


class Axis(NamedTuple):
    """Linear map from values to pixels.

    Attributes:
        low: Value at `start`.
        high: Value at `end`.
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, *, whole: bool = False) -> list[float]:
        """Return round values within the axis, about `_TICKS` of them."""
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
        step = max(1.0, step) if whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


class Chart(NamedTuple):
    """Chart for a page.

    Attributes:
        title: Title.
        svg: Figure with a description for screen readers.
        legend: Name and look of each series.
        note: What the figure leaves out; empty for nothing.
    """

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""


def axis(values: Sequence[float], start: float, end: float, margin: float = 0.0) -> Axis:
    """Return an axis that holds these values, and at both ends a margin, as a share of their range."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        around = abs(low) * 0.1 or 1.0
        low, high = low - around, high + around
    beside = margin * (high - low)
    return Axis(low - beside, high + beside, start, end)


def rows(x: Axis, y: Axis, label: str = "") -> Iterator[Markup]:
    """Yield lines across the chart at round values of `y` with their numbers, and a label that reads upwards."""
    for value in y.ticks():
        yield path("grid", f"M{x.start:g} {y.at(value):.1f}H{x.end:g}")
        yield text(x.start - 6, y.at(value), f"{value:,g}", "end")
    if label:
        yield upward((y.start + y.end) / 2, label)


def columns(x: Axis, bottom: float, label: str, *, whole: bool = False) -> Iterator[Markup]:
    """Yield round values of `x` below the chart, and a label."""
    for value in x.ticks(whole=whole):
        yield text(x.at(value), bottom + 11, f"{value:,g}", "middle")
    yield text((x.start + x.end) / 2, bottom + 28, label, "middle")


def text(x: float, y: float, words: str, anchor: str = "start", look: str = "") -> Markup:
    """Return a text whose middle is at the height `y`."""
    opened = Markup('<text x="{:.1f}" y="{:.1f}" dy="0.32em" text-anchor="{}"{}>{}</text>')
    return opened.format(x, y, anchor, Markup(' class="{}"').format(look) if look else "", words)


def upward(middle: float, words: str) -> Markup:
    """Return a text at the left edge that reads upwards."""
    turned = Markup('<g transform="translate(12 {:.1f}) rotate(-90)">{}</g>')
    return turned.format(middle, text(0, 0, words, "middle"))


def path(look: str, drawn: str) -> Markup:
    """Return a path."""
    return Markup('<path class="{}" d="{}"/>').format(look, drawn)


def line(look: str, places: Sequence[Place | None]) -> Markup:
    """Return a line, with gaps where there is no place."""
    drawn, before = "", None
    for place in places:
        if place is not None:
            drawn += f"{'M' if before is None else 'L'}{place[0]:.1f} {place[1]:.1f}"
        before = place
    return path(f"line {look}", drawn)


def box(left: float, low: float, width: float, high: float) -> str:
    """Return the part of a path that draws a box."""
    return f"M{left:.1f} {low:.1f}h{width:.1f}V{high:.1f}h{-width:.1f}z"


def dot(look: str, place: Place, radius: float = 3, shape: str = "circle") -> Markup:
    """Return a dot: a circle, a diamond or a star."""
    if shape in _SHAPES:
        return path(f"dot {look}", f"M{place[0]:.1f} {place[1]:.1f}{_SHAPES[shape]}")
    return Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="{:g}"/>').format(look, *place, radius)


def svg(width: float, height: float, title: str, description: str, parts: Sequence[Markup]) -> Markup:
    """Return a chart with a title and a description for screen readers."""
    opened = Markup('<svg role="img" viewBox="0 0 {:g} {:g}" aria-label="{}">')
    return opened.format(width, height, f"{title}. {description}") + Markup("").join(parts) + Markup("</svg>")
