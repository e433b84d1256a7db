"""Heat map of two swept keys together, on a sweep's page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import combinations

from markupsafe import Markup

from etlrun.results.plots import short
from etlrun.results.results import ConfigResult, Results
from etlrun.system import svg
from etlrun.system.svg import LETTER, Chart
from etlrun.system.terminal import significant

_MOST_VALUES = 12
_WIDTH = 720
"""Width in pixels, and on the page at most."""
_LIGHTEST, _DARKEST = 0.04, 0.45
"""Opacity of the cells with the smallest and the largest figure, which stays readable."""
Figures = dict[tuple[str, str], float]


def pair(results: Results) -> Chart | None:
    """Plot what the configs with each pair of values of two keys reach; None with fewer than two keys.

    Of several keys it is the two whose pairs of values differ most. A cell is the median over all other values.
    """
    figure_of, unit = _measure(results)
    measured = [(config, value) for config in results.configs if (value := figure_of(config)) is not None]
    keys = [*results.configs[0].swept] if results.configs else []
    found = {of: _medians(measured, of) for of in combinations(keys, 2)}
    found = {of: cells for of, cells in found.items() if _is_grid(cells)}
    if not found:
        return None
    chosen = max(found, key=lambda of: _spread(list(found[of].values())))
    left_out = f"The two of {len(keys)} keys whose values together differ most. " if len(found) > 1 else ""
    note = f"{left_out}A cell is the median {unit} of its configs."
    return Chart("Two parameters together", _drawn(found[chosen], chosen, unit), note=note)


def _measure(results: Results) -> tuple[Callable[[ConfigResult], float | None], str]:
    """Return the figure that the decision rests on, of a config, and its name."""
    name = results.decision.by.replace(" ", "_")
    if name.startswith("val_"):
        return lambda config: of.mean if (of := config.quality.get(name)) else None, results.decision.by
    has_fill = any(config.fill_s for config in results.configs)
    return lambda config: config.overall_examples_per_s, "examples/s with the fill" if has_fill else "examples/s"


def _medians(measured: Sequence[tuple[ConfigResult, float]], keys: tuple[str, str]) -> Figures:
    found: dict[tuple[str, str], list[float]] = {}
    for config, value in measured:
        found.setdefault((config.swept[keys[0]], config.swept[keys[1]]), []).append(value)
    return {values: statistics.median(of) for values, of in found.items()}


def _is_grid(cells: Figures) -> bool:
    """Return whether both keys have several values, few enough to be drawn, and most pairs a config."""
    rows, columns = ({values[side] for values in cells} for side in (0, 1))
    return all(1 < len(of) <= _MOST_VALUES for of in (rows, columns)) and 2 * len(cells) > len(rows) * len(columns)


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) > 0 else 0.0


def _drawn(cells: Figures, keys: tuple[str, str], unit: str) -> Markup:
    rows, columns = (sorted({values[side] for values in cells}, key=_by_value) for side in (0, 1))
    low, high = min(cells.values()), max(cells.values())
    left, bottom = 40 + LETTER * max(len(short(row)) for row in rows), 30 * len(rows)
    width = (_WIDTH - left) / len(columns)
    parts = [svg.text(left - 8, 30 * place + 15, short(row), "end") for place, row in enumerate(rows)]
    parts += [svg.text(left + width * (n + 0.5), bottom + 12, short(of), "middle") for n, of in enumerate(columns)]
    parts += [svg.text((left + _WIDTH) / 2, bottom + 32, keys[1], "middle"), svg.upward(bottom / 2, keys[0])]
    for (row, column), value in cells.items():
        x, y = left + width * columns.index(column), 30 * rows.index(row)
        opacity = _LIGHTEST + (_DARKEST - _LIGHTEST) * ((value - low) / (high - low) if high > low else 0.0)
        cell = Markup('<g opacity="{:.3f}">{}</g>')
        parts.append(cell.format(opacity, svg.path("bar first", svg.box(x, y + 30, width, y))))
        parts.append(svg.text(x + width / 2, y + 15, _text(value), "middle", "ink"))
    description = "; ".join(f"{row}, {column}: {_text(value)}" for (row, column), value in sorted(cells.items()))
    return svg.svg(_WIDTH, bottom + 42, f"Median {unit} by {keys[0]} and {keys[1]}", description, parts)


def _by_value(text: str) -> tuple[bool, float, str]:
    """Return a sort key that puts numbers first, in their order."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def _text(value: float) -> str:
    if 0 < abs(value) < 0.01:  # noqa: PLR2004 - an error in small units
        return significant(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:.3f}"  # noqa: PLR2004 - a share or a rate
