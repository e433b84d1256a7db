"""Charts as the template draws them, in SVG: axes, marks, labels, and a description for screen readers."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from etlrun.report.doc import Chart, Series

MOST_POINTS, MOST_BARS, MOST_DOTS = 300, 100, 2000
"""Points of a line, bars, and dots of a series, at most."""
_MOST = {"line": MOST_POINTS, "bar": MOST_BARS}
_WIDTH, _HEIGHT, _LEFT, _TOP, _UNDER = 480, 300, 66, 10, 38
_TICKS = 4
_LARGEST = 1e300
"""Magnitude above which a value is drawn like infinity: not at all."""
_MARGIN = 0.04
_Mark = tuple[str, str | Sequence[object]]
"""Class of a mark, and its path; or place and radius of a circle."""
_FLAT = ("line", "bar")
"""Marks that need no room beside them."""
Points = Sequence[tuple[float, float | None]]


class Drawn(NamedTuple):
    """A chart as a page has it.

    Attributes:
        figure: Size, axes and marks by their names in the template; empty without a value.
        legend: Series with a value.
        note: What it lacks.
        told: Description.
    """

    figure: dict[str, Any]
    legend: Sequence[Series]
    note: str
    told: str


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
    told = ". ".join(filter(None, (chart.title, "; ".join(map(_described, series)))))
    return Drawn(_figure(chart, shown) if shown else {}, shown, " ".join(filter(None, notes)), told)


def _figure(chart: Chart, shown: Sequence[Series]) -> dict[str, Any]:
    right, bottom = _WIDTH - _TOP, _HEIGHT - _UNDER
    stacked = [point for each in shown if each.mark == "bar" for point in each.points]
    bars = sorted({place for place, _ in stacked})
    step = min((after - before for before, after in pairwise(bars)), default=1.0)
    at = [place for each in shown for place, _ in each.points]
    if chart.unit:
        x, y = _Axis(0, 1, _LEFT, right), _Axis(0, 1, bottom, _TOP)
    else:
        at += [min(at) - step / 2, max(at) + step / 2] if bars else []
        values = [value for each in shown for value in _known(each.points)]
        values += [sum(value or 0.0 for place, value in stacked if place == bar) for bar in bars]
        values += [0.0] * bool(bars)
        margin = 0.0 if all(each.mark in _FLAT for each in shown) else _MARGIN
        x, y = _axis(at, _LEFT, right, margin), _axis(values, bottom, _TOP, margin)
    marks, below, wide = list[_Mark](), dict[float, float](), 0.8 * (x.at(step) - x.at(0))
    for each in shown:
        if each.mark != "bar":
            marks += _marks(each, x, y)
            continue
        boxes = ""  # on top of those of the series before
        for place, value in each.points:
            low = below.get(place, 0.0)
            below[place] = low + (value or 0.0)
            if value:
                start = f"M{x.at(place) - wide / 2:.1f} {y.at(low):.1f}"
                boxes += f"{start}h{wide:.1f}V{y.at(below[place]):.1f}h{-wide:.1f}z"
        marks.append((f"bar {each.look}", boxes))
    is_whole = not chart.unit and all(at == int(at) for each in chart.series for at, _ in each.points)
    known = {"width": _WIDTH, "height": _HEIGHT, "x": x, "y": y, "ticks": x.ticks(whole=is_whole)}
    return known | {"marks": marks}


def _axis(values: Sequence[float], start: float, end: float, margin: float) -> _Axis:
    """Return an axis that holds these values, and at both ends a margin, as a share of their range."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        around = abs(low) * 0.1 or 1.0
        low, high = low - around, high + around
    beside = margin * (high - low)
    return _Axis(low - beside, high + beside, start, end)


def _marks(each: Series, x: _Axis, y: _Axis) -> Iterator[_Mark]:
    """Yield the marks of a series; a line has gaps where there is no value, and dots where it is as short."""
    places = [None if value is None else f"{x.at(at):.1f} {y.at(value):.1f}" for at, value in each.points]
    there, line, radius = [place for place in places if place], f"line {each.look}", 3.0
    match each.mark:
        case "cloud":
            yield "points", "".join(f"M{place}h0" for place in there)
            return
        case "line":
            beside = [*zip([None, *places], places, [*places[1:], None], strict=False)]
            yield line, "".join(f"{'L' if before else 'M'}{place}" for before, place, _ in beside if place)
            there = [place for before, place, after in beside if place and not before and not after]
        case _:
            radius = 3.5 if len(there) <= MOST_BARS else 2
    yield from ((f"dot {each.look}", (*place.split(), radius)) for place in there)


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
