"""Heat map of two swept keys together, on a sweep's page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import combinations

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from etlrun.results.plots import Plot, short
from etlrun.results.results import ConfigResult, Results
from etlrun.system.svg import COLOURS, STYLE, svg

_MOST_VALUES = 12
_WIDTH = 720
"""Width in pixels, and on the page at most."""
_LIGHTEST, _DARKEST = 0.04, 0.45
"""Opacity of the cells with the smallest and the largest figure, which stays readable."""
Figures = dict[tuple[str, str], float]


def pair(results: Results) -> Plot | None:
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
    return Plot(_drawn(found[chosen], chosen, unit), f"{left_out}A cell is the median {unit} of its configs.")


def _measure(results: Results) -> tuple[Callable[[ConfigResult], float | None], str]:
    """Return the figure that the decision rests on, of a config, and its name."""
    name = results.decision.by.replace(" ", "_")
    if name in {"val_accuracy", "val_loss"}:
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
    size = (_WIDTH / 72, (70 + 30 * len(rows)) / 72)
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=size, dpi=72, layout="constrained")
        axes = figure.add_subplot(xlabel=keys[1], ylabel=keys[0])
        axes.set_xticks(range(len(columns)), [short(value) for value in columns])
        axes.set_yticks(range(len(rows)), [short(value) for value in rows])
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axes.tick_params(length=0)
        for (row, column), value in cells.items():
            x, y = columns.index(column), rows.index(row)
            alpha = _LIGHTEST + (_DARKEST - _LIGHTEST) * ((value - low) / (high - low) if high > low else 0.0)
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=COLOURS["accent"], alpha=alpha, linewidth=0))
            axes.annotate(_text(value), (x, y), ha="center", va="center")
        description = "; ".join(f"{row}, {column}: {_text(value)}" for (row, column), value in sorted(cells.items()))
        return svg(figure, "pair", f"Median {unit} by {keys[0]} and {keys[1]}", description)


def _by_value(text: str) -> tuple[bool, float, str]:
    """Return a sort key that puts numbers first, in their order."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3f}"  # noqa: PLR2004 - a share or a rate
