"""Plots on a sweep's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from etlrun.results.results import BASELINE, ConfigResult, Effect, Results
from etlrun.system.svg import COLOURS, STYLE, svg

MOST_LABELS, MOST_DOTS, MOST_BARS = 40, 2000, 12
_LOOKS = {
    "other configs": ("o", COLOURS["dot"], 7),
    "baseline": ("D", COLOURS["mark"], 7),
    "recommended": ("*", COLOURS["accent"], 14),
}
"""Marker, colour and size of each role, the last on top; all shapes differ."""


class Plot(NamedTuple):
    """Plot for the page.

    Attributes:
        svg: Figure with a title and a description for screen readers.
        left_out: Note below the figure; empty if everything is drawn.
    """

    svg: Markup
    left_out: str = ""


class _Dot(NamedTuple):
    x: float
    y: float
    config: int


def throughput(results: Results) -> Plot | None:
    """Plot throughput against memory, with the frontier and the ceiling; None without a measured config."""
    known = [config for config in results.configs if config.examples_per_s and config.peak_rss_bytes]
    if not known:
        return None
    special = {BASELINE, results.decision.recommended, *results.frontier}
    drawn = _thinned(known, special)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_inches(480, 360), dpi=72, layout="constrained")
        axes = figure.add_subplot(xlabel="memory, MB", ylabel="examples/s")
        labelled = drawn if len(known) <= MOST_LABELS else [config for config in known if config.number in special]
        _intervals(axes, labelled)
        dots = [_dot(config) for config in drawn]
        _dots(axes, dots, results.decision.recommended, size=1.0 if len(dots) <= 5 * MOST_LABELS else 0.6)
        axes.margins(0.09, 0.12)
        _frontier(axes, [_dot(config) for config in known if config.number in results.frontier])
        _ceiling(axes, results.ceiling_examples_per_s, max(dot.y for dot in dots))
        _thousands(axes)
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.4, handlelength=1.4, columnspacing=1.2)
        figure.draw_without_rendering()
        _labels(axes, [_dot(config) for config in labelled[:MOST_LABELS]], dots, special)
        image = svg(figure, "throughput", "Throughput against memory", _description(results, known))
    left_out = f"{len(drawn):,} of {len(known):,} configs are drawn. " if len(drawn) < len(known) else ""
    if len(labelled) < len(known):
        left_out += "Only the frontier, the baseline and the recommended config are labelled, with their intervals."
    return Plot(image, left_out)


def effects(results: Results) -> Iterator[tuple[str, Plot]]:
    """Plot for each swept key the median throughput of the configs with each of its values, the fastest on top."""
    by_key: dict[str, list[Effect]] = {}
    for effect in results.effects:
        by_key.setdefault(effect.key, []).append(effect)
    for number, (key, every) in enumerate(by_key.items()):
        if len(every) > 1:
            most = every[:MOST_BARS]
            left_out = f"The {len(most)} fastest of {len(every):,} values." if len(most) < len(every) else ""
            yield key, Plot(_bars(most, f"effect{number}", key), left_out)


def epochs(results: Results) -> Plot | None:
    """Plot throughput and input wait of each epoch over time, which shows drift of the machine."""
    ended = [
        (epoch, run.config)
        for run in results.runs
        if run.outcome is not None
        for epoch in run.outcome.epochs
        if epoch.ended_s
    ]
    if not ended:
        return None
    ended.sort(key=lambda item: item[0].ended_s)
    started_s = min(run.outcome.created_s for run in results.runs if run.outcome is not None and run.outcome.epochs)
    unit, unit_s = _unit(ended[-1][0].ended_s - started_s)
    drawn = ended[:: -(-len(ended) // MOST_DOTS)]
    at = [(epoch.ended_s - started_s) / unit_s for epoch, _ in drawn]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_inches(480, 360), dpi=72, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        rates = [epoch.examples_per_s for epoch, _ in drawn]
        waits = [100 * epoch.wait_share for epoch, _ in drawn]
        for axes, values in ((upper, rates), (lower, waits)):
            dots = [_Dot(x, y, config) for x, y, (_, config) in zip(at, values, drawn, strict=True)]
            _dots(axes, dots, results.decision.recommended, size=0.75)
        upper.set(ylabel="examples/s", ylim=(0, None))
        lower.set(ylabel="input wait, %", ylim=(0, max(5.0, 1.15 * max(waits))), xlabel=f"{unit} since the sweep began")
        upper.set_ylim(top=1.1 * max(rates))
        _thousands(upper)
        figure.legend(
            *upper.get_legend_handles_labels(), loc="outside upper left", ncols=3, handletextpad=0.4, handlelength=1.4
        )
        description = (
            f"{len(ended):,} epochs over {at[-1]:.1f} {unit}; {min(rates):,.0f} to {max(rates):,.0f} examples/s; "
            f"{min(waits):.0f} to {max(waits):.0f} % of an epoch spent waiting for data."
        )
        image = svg(figure, "epochs", "Epochs over time", description)
    return Plot(image, f"{len(drawn):,} of {len(ended):,} epochs are drawn." if len(drawn) < len(ended) else "")


def _thinned(configs: Sequence[ConfigResult], kept: set[int | None]) -> list[ConfigResult]:
    """Return about as many configs as a page can hold, evenly over their ranks."""
    every = -(-len(configs) // MOST_DOTS)
    return [config for rank, config in enumerate(configs) if rank % every == 0 or config.number in kept]


def _dot(config: ConfigResult) -> _Dot:
    return _Dot((config.peak_rss_bytes or 0.0) / 1e6, config.examples_per_s or 0.0, config.number)


def _dots(axes: Axes, dots: Sequence[_Dot], chosen: int | None, size: float = 1.0) -> None:
    for role, (marker, colour, points) in _LOOKS.items():
        own = [dot for dot in dots if _role(dot.config, chosen) == role]
        if own:
            xs, ys = [dot.x for dot in own], [dot.y for dot in own]
            (drawn,) = axes.plot(xs, ys, marker, color=colour, markersize=points * size, label=role, zorder=3)
            drawn.set_markeredgecolor(COLOURS["paper"])


def _role(config: int, chosen: int | None) -> str:
    return "baseline" if config == BASELINE else "recommended" if config == chosen else "other configs"


def _intervals(axes: Axes, configs: Sequence[ConfigResult]) -> None:
    """Draw the interval of each gain, scaled to the throughput of the config."""
    for config in configs:
        gain = config.gain
        if gain.ratio and gain.low is not None and gain.high is not None and config.number != BASELINE:
            dot = _dot(config)
            ends = [dot.y * gain.low / gain.ratio, dot.y * gain.high / gain.ratio]
            axes.plot([dot.x, dot.x], ends, color=COLOURS["dot"], linewidth=1.4, zorder=2)


def _frontier(axes: Axes, dots: Sequence[_Dot]) -> None:
    dots = sorted(dots)
    if dots:
        right = axes.get_xlim()[1]
        xs, ys = [*(dot.x for dot in dots), right], [*(dot.y for dot in dots), dots[-1].y]
        axes.plot(xs, ys, drawstyle="steps-post", color=COLOURS["accent"], linewidth=1.4, label="frontier", zorder=1)
        axes.set_xlim(right=right)


def _ceiling(axes: Axes, ceiling: float | None, fastest: float) -> None:
    """Draw the ceiling as a line, or as text if it is so far above that the configs would be at the bottom."""
    if ceiling is None:
        return
    text, is_near = f"ideal input pipeline: {ceiling:,.0f}", ceiling < 3 * fastest
    if is_near:
        axes.axhline(ceiling, color=COLOURS["ink"], linewidth=1, linestyle=(0, (5, 4)))
        axes.set_ylim(top=max(axes.get_ylim()[1], ceiling + 0.08 * (ceiling - axes.get_ylim()[0])))
    at = axes.get_yaxis_transform()
    y = ceiling if is_near else axes.get_ylim()[1]
    label = text if is_near else f"\u2191 {text}"
    axes.annotate(
        label, (0, y), xytext=(4, 4 if is_near else -12), xycoords=at, textcoords="offset points", fontsize=11
    )


def _labels(axes: Axes, wanted: Sequence[_Dot], dots: Sequence[_Dot], special: set[int | None]) -> None:
    """Label each dot with the number of its config where there is room; the special ones first."""
    centres = axes.transData.transform([(dot.x, dot.y) for dot in dots]).tolist()
    taken = [[x - 4, y - 4, x + 4, y + 4] for x, y in centres]
    taken += [list(text.get_window_extent().extents) for text in axes.texts]
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 11, "zorder": 4, "textcoords": "offset points"}
    for dot in sorted(wanted, key=lambda dot: dot.config not in special):
        text, half = str(dot.config), 3.6 * len(str(dot.config))
        ((x, y),) = axes.transData.transform([(dot.x, dot.y)]).tolist()
        for dx, dy in _around(half, 3 if dot.config in special else 1):
            box = [x + dx - half, y + dy - 5, x + dx + half, y + dy + 5]
            if not any(_overlap(box, other) for other in taken):
                taken.append(box)
                axes.annotate(text, (dot.x, dot.y), xytext=(dx, dy), **look)
                break


def _around(half: float, rings: int) -> Iterator[tuple[float, float]]:
    """Yield positions around a dot for a label of this half width, the nearest first."""
    for ring in range(rings):
        far = 1 + 0.7 * ring
        for across, up in ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            yield far * across * (half + (6 if up else 9)), far * up * (9 if across else 12)


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _bars(values: Sequence[Effect], name: str, key: str) -> Markup:
    with mpl.rc_context({**STYLE, "axes.grid": False, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = Figure(figsize=_inches(340, 22 + 30 * len(values)), dpi=72, layout="constrained")
        axes = figure.add_subplot()
        places = range(len(values))
        axes.barh(places, [of.examples_per_s for of in values], height=0.5, color=COLOURS["dot"])
        axes.set_yticks(places, [short(of.value) for of in values])
        axes.tick_params(length=0, labelcolor=COLOURS["ink"])
        for place, of in zip(places, values, strict=True):
            at, text = (of.examples_per_s, place), f"{of.examples_per_s:,.0f}"
            axes.annotate(text, at, (5, 0), textcoords="offset points", va="center", color=COLOURS["soft"])
        axes.set(xlim=(0, 1.3 * max(of.examples_per_s for of in values)), xticks=[])
        axes.invert_yaxis()
        description = "; ".join(f"{of.value}: {of.examples_per_s:,.0f} ({of.configs} configs)" for of in values)
        return svg(figure, name, f"Median examples/s by {key}", description)


def short(text: str) -> str:
    """Return at most 22 characters: both ends of a long text."""
    text = " ".join(text.split()) or "(default)"
    return text if len(text) <= 22 else f"{text[:10]}…{text[-11:]}"  # noqa: PLR2004 - see above


def _unit(span_s: float) -> tuple[str, float]:
    return ("minutes", 60.0) if span_s < 4 * 3600 else ("hours", 3600.0)


def _thousands(axes: Axes) -> None:
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _inches(width: float, height: float) -> tuple[float, float]:
    return width / 72, height / 72


def _description(results: Results, known: Sequence[ConfigResult]) -> str:
    best, ceiling = known[0], results.ceiling_examples_per_s
    frontier = ", ".join(str(number) for number in results.frontier[:MOST_LABELS])
    limit = f" An ideal input pipeline reaches at most about {ceiling:,.0f}." if ceiling is not None else ""
    return (
        f"{len(known):,} configs. The fastest, {best.number}, has {best.examples_per_s:,.0f} examples/s with "
        f"{(best.peak_rss_bytes or 0) / 1e6:,.0f} MB. On the frontier, the fastest first: {frontier}.{limit}"
    )
