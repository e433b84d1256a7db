"""Charts as SVG, in the colours and the font of the page around them, with a description for screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from etlrun.report.doc import Chart, Series

MOST_POINTS, MOST_BARS, MOST_DOTS = 300, 100, 2000
"""Points of a line, bars, and dots of a series, at most."""
_MOST = {"line": MOST_POINTS, "bar": MOST_BARS}
_WIDTH, _HEIGHT, _LEFT, _TOP, _UNDER = 480, 300, 66, 10, 38
_ROW, _WIDE = 43, 936
"""Height of a row of a chart with names of rows, and its width."""
_TICKS, _LETTER = 4, 7
_LARGEST = 1e300
"""Magnitude above which a value is drawn like infinity: not at all."""
_MARGIN = 0.04
_SHAPES = {
    "diamond": "m0-5.5l5.5 5.5-5.5 5.5-5.5-5.5z",
    "star": "m0-8l1.9 5.4 5.7.1-4.5 3.5 1.6 5.5-4.7-3.3-4.7 3.3 1.6-5.5-4.5-3.5 5.7-.1z",
}
_FLAT = ("line", "range", "bar", "level")
"""Marks that need no room beside them."""
Place = tuple[float, float]
Points = Sequence[tuple[float, float | None]]


class Drawn(NamedTuple):
    """A chart as a page has it: its SVG, which is empty without a value, its legend, and notes on what it lacks."""

    svg: str
    legend: Sequence[Series]
    note: str


class _Axis(NamedTuple):
    """Linear map from values, `low` to `high`, to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, *, whole: bool = False) -> list[float]:
        """Return round values within the axis, about `_TICKS` of them."""
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
        step = max(1.0, step) if whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def draw(chart: Chart) -> Drawn:
    """Return a chart as SVG."""
    most = [min(len(each.points), _MOST.get(each.mark, MOST_DOTS)) for each in chart.series]
    notes, shown = [chart.note], list[Series]()
    for each, fewest in zip(chart.series, most, strict=True):
        step = -(-len(each.points) // (fewest or 1))
        points = each.points[(len(each.points) - 1) % step :: step] if step > 1 else each.points
        shown += [each._replace(points=points)] if _known(points) else []
        if step > 1:
            notes.append(f"{len(points):,} of {len(each.points):,} points of {each.name} are drawn.")
        lost = [at for at, value in each.points if value is None or not abs(value) < math.inf]
        if lost and each.mark == "line":
            many = f"{len(lost):,} of {len(each.points):,} {chart.x}s"
            notes.append(f"{each.name} {chart.title}: not a finite number in {many}, first in {lost[0]:g}.")
    legend = [each for each in shown if each.name and each.mark != "level"]
    return Drawn(_svg(chart, shown) if shown else "", legend, " ".join(filter(None, notes)))


def _svg(chart: Chart, shown: Sequence[Series]) -> str:
    width, height = (_WIDE, _ROW * len(chart.rows) + _UNDER) if chart.rows else (_WIDTH, _HEIGHT)
    bars = sorted({x for each in shown if each.mark == "bar" for x, _ in each.points})
    step = min((after - before for before, after in pairwise(bars)), default=1.0)
    x, y = _axes(chart, shown, (width - _TOP, height - _UNDER), step / 2 if bars else 0.0)
    parts = [*_rows(chart, x, y), *_columns(chart, x, height - _UNDER)]
    below: dict[float, float] = {}
    for each in shown:
        parts += _bars(each, x, y, step, below) if each.mark == "bar" else _marks(each, x, y)
    parts += _labels(shown, x, y)
    told = "; ".join(map(_described, chart.series))
    label = escape(f"{chart.title}. {told}" if chart.title else told)
    return f'<svg role="img" viewBox="0 0 {width} {height}" aria-label="{label}">{"".join(parts)}</svg>'


def _axes(chart: Chart, shown: Sequence[Series], ends: tuple[int, int], half: float) -> tuple[_Axis, _Axis]:
    """Return both axes, which end at these pixels; of bars with `half` their distance at both ends."""
    right, bottom = ends
    if chart.unit:
        return _Axis(0, 1, _LEFT, right), _Axis(0, 1, bottom, _TOP)
    at = [x for each in shown if each.mark != "level" for x, _ in each.points] or [0.0]
    if chart.rows:
        return _axis([0.0, *at], _LEFT, right, 0.02), _Axis(-0.5, len(chart.rows) - 0.5, 0, bottom)
    values, totals = [value for each in shown for value in _known(each.points)], dict[float, float]()
    for place, value in (point for each in shown if each.mark == "bar" for point in each.points):
        totals[place] = totals.get(place, 0.0) + (value or 0.0)
    values += [*totals.values(), *[0.0] * (chart.from_zero or bool(totals))]
    margin = 0.0 if all(each.mark in _FLAT for each in shown) else _MARGIN
    return _axis([min(at) - half, max(at) + half], _LEFT, right, margin), _axis(values, bottom, _TOP, margin)


def _axis(values: Sequence[float], start: float, end: float, margin: float) -> _Axis:
    """Return an axis that holds these values, and at both ends a margin, as a share of their range."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        around = abs(low) * 0.1 or 1.0
        low, high = low - around, high + around
    beside = margin * (high - low)
    return _Axis(low - beside, high + beside, start, end)


def _rows(chart: Chart, x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield lines across the chart, with their numbers or names, and what they are."""
    for place, name in enumerate(chart.rows):
        yield _path("grid", f"M{x.start:g} {y.at(place):.1f}H{x.end:g}")
        yield _text(x.start + 4, y.at(place) - 14, name, "start", "ink")
    for value in () if chart.rows else y.ticks():
        yield _path("grid", f"M{x.start:g} {y.at(value):.1f}H{x.end:g}")
        yield _text(x.start - 6, y.at(value), f"{value:,g}", "end")
    if chart.y:
        middle = (y.start + y.end) / 2
        yield f'<g transform="translate(12 {middle:.1f}) rotate(-90)">{_text(0, 0, chart.y, "middle")}</g>'


def _columns(chart: Chart, x: _Axis, bottom: float) -> Iterator[str]:
    """Yield round values below the chart, whole ones where all are, and what they are."""
    whole = all(at == int(at) for each in chart.series for at, _ in each.points)
    for value in x.ticks(whole=whole and not chart.unit):
        yield _text(x.at(value), bottom + 11, f"{value:,g}", "middle")
    yield _text((x.start + x.end) / 2, bottom + 28, chart.x, "middle")


def _bars(each: Series, x: _Axis, y: _Axis, step: float, below: dict[float, float]) -> Iterator[str]:
    """Yield the bars of a series, on top of what is `below` them."""
    boxes, width = "", 0.8 * (x.at(step) - x.at(0))
    for at, value in each.points:
        low = below.get(at, 0.0)
        below[at] = low + (value or 0.0)
        if value:
            left, start, end = x.at(at) - width / 2, y.at(low), y.at(below[at])
            boxes += f"M{left:.1f} {start:.1f}h{width:.1f}V{end:.1f}h{-width:.1f}z"
    yield _path(f"bar {each.look}", boxes)


def _marks(each: Series, x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield the marks of a series; a line has gaps where there is no value, and dots where it is as short."""
    if each.mark == "level":
        level = y.at(_known(each.points)[0])
        yield _path(f"line {each.look}", f"M{x.start:g} {level:.1f}H{x.end:g}")
        yield _text(x.start + 4, level - 8, each.name, "start", "ink")
        return
    places = [(x.at(at), y.at(value)) if _is_known(value) else None for at, value in each.points]  # type: ignore[arg-type]
    there = [place for place in places if place is not None]
    if each.mark == "range":
        ends = zip(there[::2], there[1::2], strict=True)
        yield _path(f"line {each.look}", "".join(f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}" for a, b in ends))
    elif each.mark == "cloud":
        yield _path("points", "".join(f"M{place[0]:.1f} {place[1]:.1f}h0" for place in there))
    elif each.mark != "line":
        yield from (_dot(each, place, 3.5 if len(there) <= MOST_BARS else 2) for place in there)
    else:
        drawn, before = "", None
        for place in places:
            if place is not None:
                drawn += f"{'M' if before is None else 'L'}{place[0]:.1f} {place[1]:.1f}"
            before = place
        yield _path(f"line {each.look}", drawn)
        beside = zip([None, *places], places, [*places[1:], None], strict=False)
        yield from (_dot(each, place, 3) for before, place, after in beside if place and not before and not after)


def _dot(each: Series, place: Place, radius: float) -> str:
    if each.mark in _SHAPES:
        return _path(f"dot {each.look}", f"M{place[0]:.1f} {place[1]:.1f}{_SHAPES[each.mark]}")
    return f'<circle class="dot {each.look}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius:g}"/>'


def _labels(shown: Sequence[Series], x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield the label of each point that has one where there is room for it."""
    dots = [
        (x.at(at), y.at(value), label)
        for each in reversed(shown)  # what stands on top is labelled first
        for (at, value), label in zip(each.points, each.labels, strict=False)
        if _is_known(value) and value is not None
    ]
    boxes = [(left - 4, top - 4, left + 4, top + 4) for left, top, _ in dots]
    for left, top, words in dots:
        half = _LETTER / 2 * len(words)
        for across, down in ((0, -1), (1, 0), (-1, 0), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            middle, level = left + across * (half + (6 if down else 9)), top + down * (9 if across else 12)
            own = (middle - half, level - 5, middle + half, level + 5)
            if not any(own[0] < b[2] and b[0] < own[2] and own[1] < b[3] and b[1] < own[3] for b in boxes):
                boxes.append(own)
                yield _text(middle, level, words, "middle", "ink")
                break


def _text(x: float, y: float, words: str, anchor: str, look: str = "") -> str:
    """Return a text whose middle is at the height `y`."""
    kind = f' class="{look}"' if look else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" dy="0.32em" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


def _path(look: str, drawn: str) -> str:
    return f'<path class="{look}" d="{drawn}"/>'


def _is_known(value: float | None) -> bool:
    return value is not None and abs(value) < _LARGEST


def _known(points: Points) -> list[float]:
    """Return the values that can be drawn."""
    return [value for _, value in points if value is not None and _is_known(value)]


def _described(each: Series) -> str:
    values = _known(each.points)
    if not values:
        return f"{each.name}: no value"
    ends = f"minimum {min(values):.4g}, maximum {max(values):.4g}"
    if each.mark == "bar":
        return f"{each.name}: {sum(values):,.1f} in all, {ends}"
    first = f"{values[0]:.4g} to {values[-1]:.4g}" if each.mark == "line" else f"{len(values):,} points"
    return f"{each.name}: {first}, {ends}"
