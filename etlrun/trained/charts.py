"""Charts of an evaluation's page: predictions of numbers beside their targets, and curves of two classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from etlrun.system.svg import Axis, Chart, Place, axis, columns, line, path, rows, svg
from etlrun.trained.figures import Figures

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 400, 300, 74, 390, 10, 254


def charts(of: Figures) -> list[Chart]:
    """Return the charts of a target: those of numbers, or of two classes; none of other classes."""
    if of.points:
        return [*_of_numbers(of.points, of.numbers or 0)]
    return [*_of_two(of)] if of.curve else []


def _of_numbers(points: Sequence[Place], numbers: int) -> Iterator[Chart]:
    drawn = f"{len(points):,} of {numbers:,} are drawn, at random." if len(points) < numbers else ""
    targets, predicted = ([of[place] for of in points] for place in (0, 1))
    ends = axis([*targets, *predicted], _LEFT, _RIGHT, margin=0.03)
    both = _BOTTOM, _TOP
    even = path("ideal", f"M{_LEFT} {_BOTTOM}L{_RIGHT} {_TOP}")
    labels = ("predicted", "true value")
    yield _scatter("Predicted by true value", labels, points, (ends, Axis(ends.low, ends.high, *both)), even, drawn)
    errors = [(of[1], of[0] - of[1]) for of in points]
    x, y = axis(predicted, _LEFT, _RIGHT, margin=0.03), axis([*(of[1] for of in errors), 0.0], *both, margin=0.03)
    zero = path("ideal", f"M{_LEFT} {y.at(0):.1f}H{_RIGHT}")
    labels = ("residual: true value less predicted", "predicted")
    yield _scatter("Residuals by predicted value", labels, errors, (x, y), zero, drawn)


def _scatter(
    title: str, labels: tuple[str, str], points: Sequence[Place], axes: tuple[Axis, Axis], ideal: Markup, note: str
) -> Chart:
    """Return a chart of points with the labels of y and x, and a line on which they would be if nothing were wrong."""
    x, y = axes
    dots = path("points", "".join(f"M{x.at(one):.1f} {y.at(other):.1f}h0" for one, other in points))
    return _chart(title, labels, axes, [ideal, dots], f"{len(points):,} points, ", note)


def _chart(
    title: str, labels: tuple[str, str], axes: tuple[Axis, Axis], marks: Sequence[Markup], what: str, note: str
) -> Chart:
    parts = [*rows(*axes, labels[0]), *columns(axes[0], _BOTTOM, labels[1]), *marks]
    return Chart(title, svg(_WIDTH, _HEIGHT, title, f"{what}{labels[0]} against {labels[1]}", parts), (), note)


def _of_two(of: Figures) -> Iterator[Chart]:
    x, y = Axis(0, 1, _LEFT, _RIGHT), Axis(0, 1, _BOTTOM, _TOP)
    chance = path("ideal", f"M{_LEFT} {_BOTTOM}L{_RIGHT} {_TOP}")
    roc = [(0.0, 0.0), *((place.false_positive_rate, place.recall) for place in of.curve)]
    guesses, names = "The dashed line is that of guesses.", ("true positive rate", "false positive rate")
    yield _chart("ROC curve", names, (x, y), [chance, _curve(roc, x, y)], "", guesses)
    chance = path("ideal", f"M{_LEFT} {y.at(of.curve[-1].precision):.1f}H{_RIGHT}")
    found = [(place.recall, place.precision) for place in of.curve]
    marks = [chance, _curve([(0.0, found[0][1]), *found], x, y)]
    yield _chart("Precision-recall curve", ("precision", "recall"), (x, y), marks, "", guesses)


def _curve(points: Sequence[Place], x: Axis, y: Axis) -> Markup:
    return line("first", [(x.at(one), y.at(other)) for one, other in points])
