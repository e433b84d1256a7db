"""Plots on a sweep's page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from etlrun.results.results import BASELINE, ConfigResult, Effect, Results
from etlrun.system import svg
from etlrun.system.svg import LETTER, Axis, Chart, axis

MOST_LABELS, MOST_DOTS, MOST_BARS = 40, 2000, 12
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 360, 70, 470, 32, 324
_ROLES = {"other configs": ("other", "circle"), "baseline": ("second", "diamond"), "recommended": ("first", "star")}
"""Look and shape of each role, the last on top; all shapes differ."""
_FRONTIER = "frontier"


class _Dot(NamedTuple):
    x: float
    y: float
    config: int


def throughput(results: Results) -> Chart | None:
    """Plot throughput against memory, with the frontier and the ceiling; None without a measured config."""
    known = [config for config in results.configs if config.examples_per_s and config.peak_rss_bytes]
    if not known:
        return None
    special = {BASELINE, results.decision.recommended, *results.frontier}
    drawn = _thinned(known, special)
    labelled = drawn if len(known) <= MOST_LABELS else [config for config in known if config.number in special]
    values, intervals = [config.examples_per_s or 0.0 for config in drawn], list(_intervals(labelled))
    ceiling, largest = results.ceiling_examples_per_s, max(values)
    is_near = ceiling is not None and ceiling < 3 * largest
    values += [end for _, ends in intervals for end in ends] + ([ceiling] if ceiling is not None and is_near else [])
    x = axis([(config.peak_rss_bytes or 0.0) / 1e6 for config in drawn], _LEFT, _RIGHT, 0.09)
    y = axis(values, _BOTTOM, _TOP, 0.1)
    parts = [*svg.rows(x, y, "examples/s"), *svg.columns(x, _BOTTOM, "memory, MB")]
    parts += [svg.line("other", [(x.at(at), y.at(end)) for end in ends]) for at, ends in intervals]
    dots = [_dot(config, x, y) for config in drawn]
    parts.append(_frontier([dot for dot in dots if dot.config in results.frontier]))
    parts += _dots(dots, results.decision.recommended, 3.5 if len(dots) <= 5 * MOST_LABELS else 2)
    marked, taken = _ceiling(y, ceiling, is_near=is_near)
    parts += marked
    parts += _labels([_dot(config, x, y) for config in labelled[:MOST_LABELS]], dots, special, taken)
    parts += _legend([*_roles(dots, results.decision.recommended), _FRONTIER])
    left_out = f"{len(drawn):,} of {len(known):,} configs are drawn. " if len(drawn) < len(known) else ""
    if len(labelled) < len(known):
        left_out += "Only the frontier, the baseline and the recommended config are labelled, with their intervals."
    title = "Throughput against memory"
    return Chart(title, svg.svg(_WIDTH, _HEIGHT, title, _description(results, known), parts), note=left_out)


def effects(results: Results) -> Iterator[Chart]:
    """Plot for each swept key the median throughput of the configs with each of its values, the fastest on top."""
    by_key: dict[str, list[Effect]] = {}
    for effect in results.effects:
        by_key.setdefault(effect.key, []).append(effect)
    for key, every in by_key.items():
        if len(every) > 1:
            most = every[:MOST_BARS]
            left_out = f"The {len(most)} fastest of {len(every):,} values." if len(most) < len(every) else ""
            yield Chart(key, _bars(most, key), note=left_out)


def epochs(results: Results) -> Chart | None:
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
    unit, unit_s = ("minutes", 60.0) if ended[-1][0].ended_s - started_s < 4 * 3600 else ("hours", 3600.0)
    drawn = ended[:: -(-len(ended) // MOST_DOTS)]
    at = [(epoch.ended_s - started_s) / unit_s for epoch, _ in drawn]
    rates = [epoch.examples_per_s for epoch, _ in drawn]
    waits = [100 * epoch.wait_share for epoch, _ in drawn]
    x, chosen = axis(at, _LEFT, _RIGHT, 0.03), results.decision.recommended
    upper, lower = Axis(0.0, 1.1 * max(*rates, 1e-9), 200, _TOP), Axis(0.0, max(5.0, 1.15 * max(waits)), _BOTTOM, 216)
    parts = [*svg.rows(x, upper, "examples/s"), *svg.rows(x, lower, "input wait, %")]
    parts += svg.columns(x, _BOTTOM, f"{unit} since the sweep began")
    for y, values in ((upper, rates), (lower, waits)):
        dots = [_Dot(x.at(of), y.at(value), config) for of, value, (_, config) in zip(at, values, drawn, strict=True)]
        parts += _dots(dots, chosen, 2.6)
    parts += _legend(_roles(dots, chosen))
    description = (
        f"{len(ended):,} epochs over {at[-1]:.1f} {unit}; {min(rates):,.0f} to {max(rates):,.0f} examples/s; "
        f"{min(waits):.0f} to {max(waits):.0f} % of an epoch spent waiting for data."
    )
    left_out = f"{len(drawn):,} of {len(ended):,} epochs are drawn." if len(drawn) < len(ended) else ""
    title = "Epochs over time"
    return Chart(title, svg.svg(_WIDTH, _HEIGHT, title, description, parts), note=left_out)


def _thinned(configs: Sequence[ConfigResult], kept: set[int | None]) -> list[ConfigResult]:
    """Return about as many configs as a page can hold, evenly over their ranks."""
    every = -(-len(configs) // MOST_DOTS)
    return [config for rank, config in enumerate(configs) if rank % every == 0 or config.number in kept]


def _dot(config: ConfigResult, x: Axis, y: Axis) -> _Dot:
    return _Dot(x.at((config.peak_rss_bytes or 0.0) / 1e6), y.at(config.examples_per_s or 0.0), config.number)


def _roles(dots: Sequence[_Dot], chosen: int | None) -> list[str]:
    """Return the roles of these configs, in the order of the legend."""
    present = {_role(dot.config, chosen) for dot in dots}
    return [role for role in _ROLES if role in present]


def _role(config: int, chosen: int | None) -> str:
    return "baseline" if config == BASELINE else "recommended" if config == chosen else "other configs"


def _dots(dots: Sequence[_Dot], chosen: int | None, radius: float) -> Iterator[Markup]:
    for role, (look, shape) in _ROLES.items():
        own = (dot for dot in dots if _role(dot.config, chosen) == role)
        yield from (svg.dot(look, (dot.x, dot.y), radius, shape) for dot in own)


def _intervals(configs: Sequence[ConfigResult]) -> Iterator[tuple[float, tuple[float, float]]]:
    """Yield the memory of a config and the interval of its gain, scaled to its throughput."""
    for config in configs:
        gain, rate = config.gain, config.examples_per_s or 0.0
        if gain.ratio and gain.low is not None and gain.high is not None and config.number != BASELINE:
            yield (config.peak_rss_bytes or 0.0) / 1e6, (rate * gain.low / gain.ratio, rate * gain.high / gain.ratio)


def _frontier(dots: Sequence[_Dot]) -> Markup:
    """Return the line of what the configs on the frontier reach with as much memory."""
    places = list[svg.Place]()
    for dot in sorted(dots):
        places += [*((dot.x, y) for _, y in places[-1:]), (dot.x, dot.y)]
    return svg.line("first", [*places, *((_RIGHT, y) for _, y in places[-1:])])


def _ceiling(y: Axis, ceiling: float | None, *, is_near: bool) -> tuple[list[Markup], list[Sequence[float]]]:
    """Return the ceiling as a line, or as text if the configs would be at the bottom; and the boxes that it takes."""
    if ceiling is None:
        return [], []
    words = f"ideal input pipeline: {ceiling:,.0f}"
    at = y.at(ceiling) if is_near else _TOP + 16
    marked = [svg.line("ceiling", [(_LEFT, at), (_RIGHT, at)])] if is_near else []
    marked.append(svg.text(_LEFT + 4, at - 8, words if is_near else f"↑ {words}", look="ink"))
    return marked, [(_LEFT, at - 14, _LEFT + LETTER * len(words), at)]


def _legend(names: Iterable[str]) -> Iterator[Markup]:
    """Yield the legend, above the chart."""
    left = float(_LEFT)
    for name in names:
        if name == _FRONTIER:
            yield svg.line("first", [(left - 4, 12), (left + 8, 12)])
        else:
            look, shape = _ROLES[name]
            yield svg.dot(look, (left + 2, 12), 3.5, shape)
        yield svg.text(left + 14, 12, name)
        left += 32 + LETTER * len(name)


def _labels(
    wanted: Sequence[_Dot], dots: Sequence[_Dot], special: set[int | None], taken: Sequence[Sequence[float]]
) -> Iterator[Markup]:
    """Yield the number of the config of each dot where there is room; those of the special ones first."""
    boxes = [*taken, *([dot.x - 4, dot.y - 4, dot.x + 4, dot.y + 4] for dot in dots)]
    for dot in sorted(wanted, key=lambda dot: dot.config not in special):
        words, half = str(dot.config), 3.6 * len(str(dot.config))
        for dx, dy in _around(half, 3 if dot.config in special else 1):
            x, y = dot.x + dx, dot.y + dy
            own = [x - half, y - 5, x + half, y + 5]
            if not any(_overlap(own, other) for other in boxes):
                boxes.append(own)
                yield svg.text(x, y, words, "middle", "ink")
                break


def _around(half: float, rings: int) -> Iterator[tuple[float, float]]:
    """Yield positions around a dot for a label of this half width, the nearest first."""
    for ring in range(rings):
        far = 1 + 0.7 * ring
        for across, down in ((0, -1), (1, 0), (-1, 0), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            yield far * across * (half + (6 if down else 9)), far * down * (9 if across else 12)


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _bars(values: Sequence[Effect], key: str) -> Markup:
    width, left = 340, 10 + LETTER * max(len(short(of.value)) for of in values)
    x, parts = Axis(0.0, 1.3 * max(of.examples_per_s for of in values) or 1.0, left, width), list[Markup]()
    for number, of in enumerate(values):
        middle, end = 15 + 30 * number, x.at(of.examples_per_s)
        parts.append(svg.path("bar other", svg.box(left, middle + 8, end - left, middle - 8)))
        parts.append(svg.text(left - 6, middle, short(of.value), "end", "ink"))
        parts.append(svg.text(end + 5, middle, f"{of.examples_per_s:,.0f}"))
    description = "; ".join(f"{of.value}: {of.examples_per_s:,.0f} ({of.configs} configs)" for of in values)
    return svg.svg(width, 30 * len(values), f"Median examples/s by {key}", description, parts)


def short(text: str) -> str:
    """Return at most 22 characters: both ends of a long text."""
    text = " ".join(text.split()) or "(default)"
    return text if len(text) <= 22 else f"{text[:10]}…{text[-11:]}"  # noqa: PLR2004 - see above


def _description(results: Results, known: Sequence[ConfigResult]) -> str:
    best, ceiling = known[0], results.ceiling_examples_per_s
    frontier = ", ".join(str(number) for number in results.frontier[:MOST_LABELS])
    limit = f" An ideal input pipeline reaches at most about {ceiling:,.0f}." if ceiling is not None else ""
    return (
        f"{len(known):,} configs. The fastest, {best.number}, has {best.examples_per_s:,.0f} examples/s with "
        f"{(best.peak_rss_bytes or 0) / 1e6:,.0f} MB. On the frontier, the fastest first: {frontier}.{limit}"
    )
