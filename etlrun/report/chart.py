"""Charts as SVG, in the colours and the font of the page around them, with a description for screen readers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    notes, shown, series = [chart.note], list[Series](), list[Series]()
    for of in chart.series:
        points = [(at, None if value is None or not abs(value) < _LARGEST else value) for at, value in of.points]
        each = of._replace(points=points)
        series.append(each)
        step = -(-len(points) // _MOST.get(each.mark, MOST_DOTS)) or 1
        points = points[(len(points) - 1) % step :: step]
        shown += [each._replace(points=points)] if _known(points) else []
        if step > 1:
            notes.append(f"{len(points):,} of {len(each.points):,} points of {each.name} are drawn.")
        lost = [at for at, value in each.points if value is None]
        if lost and each.mark == "line":
            many = f"{len(lost):,} of {len(each.points):,} {chart.x}s"
            notes.append(f"{each.name} {chart.title}: not a finite number in {many}, first in {lost[0]:g}.")
    legend = [each for each in shown if each.name and each.mark != "level"]
    return Drawn(_svg(replace(chart, series=series), shown) if shown else "", legend, " ".join(filter(None, notes)))


def _svg(chart: Chart, shown: Sequence[Series]) -> str:
    width, height = (_WIDE, _ROW * len(chart.rows) + _UNDER) if chart.rows else (_WIDTH, _HEIGHT)
    right, bottom = width - _TOP, height - _UNDER
    stacked = [point for each in shown if each.mark == "bar" for point in each.points]
    bars = sorted({place for place, _ in stacked})
    step = min((after - before for before, after in pairwise(bars)), default=1.0)
    at = [place for each in shown if each.mark != "level" for place, _ in each.points] or [0.0]
    if chart.unit:
        x, y = _Axis(0, 1, _LEFT, right), _Axis(0, 1, bottom, _TOP)
    elif chart.rows:
        x, y = _axis([0.0, *at], _LEFT, right, 0.02), _Axis(-0.5, len(chart.rows) - 0.5, 0, bottom)
    else:
        at += [min(at) - step / 2, max(at) + step / 2] if bars else []
        values = [value for each in shown for value in _known(each.points)]
        values += [sum(value or 0.0 for place, value in stacked if place == bar) for bar in bars]
        values += [0.0] * (chart.from_zero or bool(bars))
        margin = 0.0 if all(each.mark in _FLAT for each in shown) else _MARGIN
        x, y = _axis(at, _LEFT, right, margin), _axis(values, bottom, _TOP, margin)
    parts, below, wide = [*_grid(chart, x, y)], dict[float, float](), 0.8 * (x.at(step) - x.at(0))
    for each in shown:
        if each.mark != "bar":
            parts += _marks(each, x, y)
            continue
        boxes = ""  # on top of those of the series before
        for place, value in each.points:
            low = below.get(place, 0.0)
            below[place] = low + (value or 0.0)
            if value:
                left, start, end = x.at(place) - wide / 2, y.at(low), y.at(below[place])
                boxes += f"M{left:.1f} {start:.1f}h{wide:.1f}V{end:.1f}h{-wide:.1f}z"
        parts.append(_path(f"bar {each.look}", boxes))
    told = "; ".join(map(_described, chart.series))
    label = escape(f"{chart.title}. {told}" if chart.title else told)
    drawn = "".join([*parts, *_labels(shown, x, y)])
    return f'<svg role="img" viewBox="0 0 {width} {height}" aria-label="{label}">{drawn}</svg>'


def _axis(values: Sequence[float], start: float, end: float, margin: float) -> _Axis:
    """Return an axis that holds these values, and at both ends a margin, as a share of their range."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        around = abs(low) * 0.1 or 1.0
        low, high = low - around, high + around
    beside = margin * (high - low)
    return _Axis(low - beside, high + beside, start, end)


def _grid(chart: Chart, x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield lines across the chart, with their numbers or names, round values below it, and what both are."""
    for value, words in enumerate(chart.rows) if chart.rows else [(value, f"{value:,g}") for value in y.ticks()]:
        height = y.at(value)
        yield _path("grid", f"M{x.start:g} {height:.1f}H{x.end:g}")
        if chart.rows:
            yield _text(x.start + 4, height - 14, words, "start", "ink")
        else:
            yield _text(x.start - 6, height, words, "end")
    if chart.y:
        middle = (y.start + y.end) / 2
        yield f'<g transform="translate(12 {middle:.1f}) rotate(-90)">{_text(0, 0, chart.y, "middle")}</g>'
    bottom, whole = max(y.start, y.end), all(at == int(at) for each in chart.series for at, _ in each.points)
    for at in x.ticks(whole=whole and not chart.unit):
        yield _text(x.at(at), bottom + 11, f"{at:,g}", "middle")
    yield _text((x.start + x.end) / 2, bottom + 28, chart.x, "middle")


def _marks(each: Series, x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield the marks of a series; a line has gaps where there is no value, and dots where it is as short."""
    places = [None if value is None else f"{x.at(at):.1f} {y.at(value):.1f}" for at, value in each.points]
    there, line, radius = [place for place in places if place], f"line {each.look}", 3.0
    match each.mark:
        case "level":
            level = y.at(_known(each.points)[0])
            yield _path(line, f"M{x.start:g} {level:.1f}H{x.end:g}")
            yield _text(x.start + 4, level - 8, each.name, "start", "ink")
            return
        case "range":
            yield _path(line, "".join(f"M{one}L{other}" for one, other in zip(there[::2], there[1::2], strict=True)))
            return
        case "cloud":
            yield _path("points", "".join(f"M{place}h0" for place in there))
            return
        case "line":
            beside = [*zip([None, *places], places, [*places[1:], None], strict=False)]
            yield _path(line, "".join(f"{'L' if before else 'M'}{place}" for before, place, _ in beside if place))
            there = [place for before, place, after in beside if place and not before and not after]
        case _:
            radius = 3.5 if len(there) <= MOST_BARS else 2
    for place in there:
        left, top = place.split()
        circle = f'<circle class="dot {each.look}" cx="{left}" cy="{top}" r="{radius:g}"/>'
        yield _path(f"dot {each.look}", f"M{place}{_SHAPES[each.mark]}") if each.mark in _SHAPES else circle


def _labels(shown: Sequence[Series], x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield the label of each point that has one where there is room for it."""
    dots = [
        (x.at(at), y.at(value), label)
        for each in reversed(shown)  # what stands on top is labelled first
        for (at, value), label in zip(each.points, each.labels, strict=False)
        if value is not None
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


def _known(points: Points) -> list[float]:
    return [value for _, value in points if value is not None]


def _described(each: Series) -> str:
    values = _known(each.points)
    if not values:
        return f"{each.name}: no value"
    ends = f"minimum {min(values):.4g}, maximum {max(values):.4g}"
    if each.mark == "bar":
        return f"{each.name}: {sum(values):,.1f} in all, {ends}"
    first = f"{values[0]:.4g} to {values[-1]:.4g}" if each.mark == "line" else f"{len(values):,} points"
    return f"{each.name}: {first}, {ends}"
