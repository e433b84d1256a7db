"""Charts of a run's page as SVG.

A run draws them after each epoch, so that they are made without matplotlib, which takes half a second for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

MOST_POINTS, MOST_BARS = 300, 100
"""Points of a line and bars of a chart, at most."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 200, 60, 10, 8, 36
_LARGEST = 1e300
"""Magnitude above which a value is drawn like infinity: not at all."""
_TICKS = 4

Point = tuple[float, float | None]


class Line(NamedTuple):
    """Line of a chart.

    Attributes:
        name: Name in the legend.
        look: Class of the style sheet that gives it its colour.
        points: x and y of each point, in the order of x; y is None, NaN or infinite where there is no value.
    """

    name: str
    look: str
    points: Sequence[Point]


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
    legend: Sequence[tuple[str, str]]
    note: str = ""


class _Axis(NamedTuple):
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
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def curves(title: str, x_label: str, lines: Sequence[Line], *, from_zero: bool = False) -> Chart | None:
    """Return a chart of lines, with gaps where there is no value; None without any value."""
    drawn = [Line(line.name, line.look, _thinned(line.points)) for line in lines]
    known = [(x, y) for line in drawn for x, y in line.points if _is_known(y)]
    if not known:
        return None
    x_axis = _axis([x for line in drawn for x, _ in line.points], _LEFT, _WIDTH - _RIGHT)
    values = [y for _, y in known if y is not None]
    y_axis = _axis([*values, 0.0] if from_zero else values, _HEIGHT - _BOTTOM, _TOP)
    parts = [*_frame(x_axis, y_axis, x_label)]
    for line in drawn:
        parts += _line(line, x_axis, y_axis)
    most, all_points = (max(len(line.points) for line in of) for of in (drawn, lines))
    note = f"{most} of {all_points:,} points are drawn." if most < all_points else ""
    legend = [(line.name, line.look) for line in lines if any(_is_known(y) for _, y in line.points)]
    return Chart(title, _svg(title, "; ".join(map(_described, lines)), parts), legend, note)


def bars(title: str, x_label: str, names: Sequence[tuple[str, str]], rows: Sequence[Sequence[float]]) -> Chart | None:
    """Return a chart of stacked bars, one for each row from 1 on; None without a row.

    Args:
        title: Title of the chart.
        x_label: Name of a row.
        names: Name and look of each part of a bar, from the bottom.
        rows: Size of each part; not negative.
    """
    if not rows:
        return None
    step = -(-len(rows) // MOST_BARS)
    groups = [rows[first : first + step] for first in range(0, len(rows), step)]
    means = [[sum(part) / len(group) for part in zip(*group, strict=True)] for group in groups]
    x_axis = _axis([0.5, step * len(groups) + 0.5], _LEFT, _WIDTH - _RIGHT)
    y_axis = _axis([0.0, *map(sum, means)], _HEIGHT - _BOTTOM, _TOP)
    parts = [*_frame(x_axis, y_axis, x_label)]
    width = (x_axis.end - x_axis.start) / len(groups)
    for place, (_, look) in enumerate(names):
        boxes = []
        for number, mean in enumerate(means):
            low, high = (y_axis.at(sum(mean[:end])) for end in (place, place + 1))
            if low - high > 0:
                left = x_axis.start + width * (number + 0.1)
                boxes.append(f"M{left:.1f} {low:.1f}h{0.8 * width:.1f}V{high:.1f}h{-0.8 * width:.1f}z")
        parts.append(Markup('<path class="bar {}" d="{}"/>').format(look, "".join(boxes)))
    totals = [sum(row[place] for row in rows) for place in range(len(names))]
    told = ", ".join(f"{name} {total:,.1f}" for (name, _), total in zip(names, totals, strict=True))
    legend = [of for of, total in zip(names, totals, strict=True) if total > 0]
    note = f"A bar is the mean of {step} of {len(rows):,}." if step > 1 else ""
    return Chart(title, _svg(title, f"{len(rows):,} in all: {told}", parts), legend, note)


def _is_known(value: float | None) -> bool:
    return value is not None and abs(value) < _LARGEST


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most `MOST_POINTS` points, evenly, with the last one."""
    step = -(-len(points) // MOST_POINTS)
    return points if step <= 1 else points[(len(points) - 1) % step :: step]


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        around = abs(low) * 0.1 or 1.0
        low, high = low - around, high + around
    return _Axis(low, high, start, end)


def _ticks(axis: _Axis, *, whole: bool = False) -> list[float]:
    """Return round values within the axis, about `_TICKS` of them."""
    rough = (axis.high - axis.low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    step = max(1.0, step) if whole else step
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _frame(x_axis: _Axis, y_axis: _Axis, x_label: str) -> Iterator[Markup]:
    for value in _ticks(y_axis):
        y = f"{y_axis.at(value):.1f}"
        yield Markup('<path class="grid" d="M{} {}H{}"/>').format(_LEFT, y, _WIDTH - _RIGHT)
        yield Markup('<text x="{}" y="{}" dy="0.32em" text-anchor="end">{}</text>').format(_LEFT - 6, y, f"{value:,g}")
    for value in _ticks(x_axis, whole=True):
        x, below = f"{x_axis.at(value):.1f}", _HEIGHT - _BOTTOM + 15
        yield Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(x, below, f"{value:,g}")
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, _HEIGHT - 4, x_label)


def _line(line: Line, x_axis: _Axis, y_axis: _Axis) -> Iterator[Markup]:
    """Yield a path, and a dot for each point that has no neighbour with a value."""
    known = [_is_known(y) for _, y in line.points]
    places = [(f"{x_axis.at(x):.1f}", f"{y_axis.at(y):.1f}") if _is_known(y) and y is not None else None
              for x, y in line.points]  # fmt: skip
    drawn = ""
    for before, place in pairwise([None, *places]):
        if place is not None:
            drawn += f"{'M' if before is None else 'L'}{place[0]} {place[1]}"
    yield Markup('<path class="line {}" d="{}"/>').format(line.look, drawn)
    for number, place in enumerate(places):
        if place is not None and not any(known[max(0, number - 1) : number] + known[number + 1 : number + 2]):
            yield Markup('<circle class="dot {}" cx="{}" cy="{}" r="3"/>').format(line.look, *place)


def _described(line: Line) -> str:
    values = [y for _, y in line.points if y is not None and _is_known(y)]
    if not values:
        return f"{line.name}: no value"
    return f"{line.name}: {values[0]:.4g} to {values[-1]:.4g}, minimum {min(values):.4g}, maximum {max(values):.4g}"


def _svg(title: str, description: str, parts: Sequence[Markup]) -> Markup:
    opened = Markup('<svg role="img" viewBox="0 0 {} {}" aria-label="{}">').format(
        _WIDTH, _HEIGHT, f"{title}. {description}"
    )
    return opened + Markup("").join(parts) + Markup("</svg>")
