"""Charts of a run's page: lines of its measures, and bars of its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from etlrun.system.svg import Chart, axis, box, columns, dot, line, path, rows, svg

MOST_POINTS, MOST_BARS = 300, 100
"""Points of a line and bars of a chart, at most."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 200, 60, 470, 8, 164
_LARGEST = 1e300
"""Magnitude above which a value is drawn like infinity: not at all."""

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


def curves(title: str, x_label: str, lines: Sequence[Line], *, from_zero: bool = False) -> Chart | None:
    """Return a chart of lines, with gaps where there is no value; None without any value."""
    drawn = [Line(of.name, of.look, _thinned(of.points)) for of in lines]
    values = [y for of in drawn for y in _known(of)]
    if not values:
        return None
    x = axis([x for of in drawn for x, _ in of.points], _LEFT, _RIGHT)
    y = axis([*values, 0.0] if from_zero else values, _BOTTOM, _TOP)
    parts = [*rows(x, y), *columns(x, _BOTTOM, x_label, whole=True)]
    for of in drawn:
        places = [None if value is None or not _is_known(value) else (x.at(at), y.at(value)) for at, value in of.points]
        parts.append(line(of.look, places))
        beside = zip([None, *places], places, [*places[1:], None], strict=False)
        parts += [dot(of.look, place) for before, place, after in beside if place and not before and not after]
    most, all_points = (max(len(of.points) for of in some) for some in (drawn, lines))
    note = f"{most} of {all_points:,} points are drawn." if most < all_points else ""
    legend = [(of.name, of.look) for of in lines if _known(of)]
    return Chart(title, svg(_WIDTH, _HEIGHT, title, "; ".join(map(_described, lines)), parts), legend, note)


def bars(title: str, x_label: str, names: Sequence[tuple[str, str]], sizes: Sequence[Sequence[float]]) -> Chart | None:
    """Return a chart of stacked bars, numbered from 1 on; None without one.

    Args:
        title: Title of the chart.
        x_label: Name of a bar.
        names: Name and look of each part of a bar, from the bottom.
        sizes: Size of each part of each bar; not negative.
    """
    if not sizes:
        return None
    step = -(-len(sizes) // MOST_BARS)
    groups = [sizes[first : first + step] for first in range(0, len(sizes), step)]
    means = [[sum(part) / len(group) for part in zip(*group, strict=True)] for group in groups]
    x = axis([0.5, step * len(groups) + 0.5], _LEFT, _RIGHT)
    y = axis([0.0, *map(sum, means)], _BOTTOM, _TOP)
    parts = [*rows(x, y), *columns(x, _BOTTOM, x_label, whole=True)]
    width = (x.end - x.start) / len(groups)
    for part, (_, look) in enumerate(names):
        boxes = ""
        for number, mean in enumerate(means):
            low, high = (y.at(sum(mean[:end])) for end in (part, part + 1))
            boxes += box(x.start + width * (number + 0.1), low, 0.8 * width, high) if low > high else ""
        parts.append(path(f"bar {look}", boxes))
    totals = [sum(bar[part] for bar in sizes) for part in range(len(names))]
    told = ", ".join(f"{name} {total:,.1f}" for (name, _), total in zip(names, totals, strict=True))
    legend = [of for of, total in zip(names, totals, strict=True) if total > 0]
    note = f"A bar is the mean of {step} of {len(sizes):,}." if step > 1 else ""
    return Chart(title, svg(_WIDTH, _HEIGHT, title, f"{len(sizes):,} in all: {told}", parts), legend, note)


def _is_known(value: float | None) -> bool:
    return value is not None and abs(value) < _LARGEST


def _known(of: Line) -> list[float]:
    """Return the values of a line that can be drawn."""
    return [y for _, y in of.points if y is not None and _is_known(y)]


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most `MOST_POINTS` points, evenly, with the last one."""
    step = -(-len(points) // MOST_POINTS)
    return points if step <= 1 else points[(len(points) - 1) % step :: step]


def _described(of: Line) -> str:
    values = _known(of)
    if not values:
        return f"{of.name}: no value"
    return f"{of.name}: {values[0]:.4g} to {values[-1]:.4g}, minimum {min(values):.4g}, maximum {max(values):.4g}"
