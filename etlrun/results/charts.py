"""Charts of a sweep's report: throughput against memory, effects of values, two keys together, epochs over time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from etlrun.report.doc import Chart, Col, Series, Table
from etlrun.results.results import BASELINE, ConfigResult, Effect, Results
from etlrun.system.terminal import significant

_MOST_LABELS, _MOST_BARS, _MOST_VALUES = 40, 12, 12
_NEAR = 3
"""A ceiling of so many times the largest throughput is not drawn, since the configs would be at the bottom."""
_PAGE = ("html",)
Cells = Mapping[tuple[str, str], float]


def throughput(results: Results) -> Chart:
    """Return throughput against memory, with intervals, the frontier and the ceiling."""
    known = [config for config in results.configs if config.examples_per_s and config.peak_rss_bytes]
    special = {BASELINE, results.decision.recommended, *results.frontier}
    labelled = {of.number for of in known if len(known) <= _MOST_LABELS or of.number in special}
    known.sort(key=lambda config: config.number not in special)
    ceiling, note = results.ceiling_examples_per_s, "A vertical bar is the 95 % interval of the gain. No config beats "
    note += "those on the line in throughput with as little memory."
    if len(labelled) < len(known):
        note += " Only the frontier, the baseline and the recommended config are labelled, with their intervals."
    series = [
        Series("", [*_intervals([of for of in known if of.number in labelled])], "other", "range"),
        Series("frontier", [*_frontier([of for of in known if of.number in results.frontier])]),
        *_roles([(_memory(of), of.examples_per_s, of.number) for of in known], results, labelled),
    ]
    if ceiling is not None and known:
        words = f"ideal input pipeline: {ceiling:,.0f}"
        if ceiling < _NEAR * max(config.examples_per_s or 0.0 for config in known):
            series.append(Series(words, [(0, ceiling)], "ideal", "level"))
        else:
            note += f" Above the chart: {words} examples/s."
    return Chart(series, title="Throughput against memory", x="memory, MB", y="examples/s", note=note, only=_PAGE)


def _roles(
    points: Sequence[tuple[float, float | None, int]], results: Results, labelled: set[int] | None = None
) -> Iterator[Series]:
    """Yield the dots of configs by what they are, the last ones on top; all shapes differ."""
    chosen = results.decision.recommended
    roles = {of: "baseline" if of == BASELINE else "recommended" if of == chosen else "" for _, _, of in points}
    for role, look, mark in (("", "other", "dot"), ("baseline", "second", "diamond"), ("recommended", "first", "star")):
        own = [(x, y, of) for x, y, of in points if roles[of] == role]
        labels = [str(of) if labelled is not None and of in labelled else "" for _, _, of in own]
        yield Series(role or "other configs", [(x, y) for x, y, _ in own], look, mark, labels if labelled else ())


def _memory(config: ConfigResult) -> float:
    return (config.peak_rss_bytes or 0.0) / 1e6


def _intervals(configs: Sequence[ConfigResult]) -> Iterator[tuple[float, float]]:
    """Yield both ends of the interval of each gain, scaled to the throughput."""
    for config in configs:
        gain, rate = config.gain, config.examples_per_s or 0.0
        if gain.ratio and gain.low is not None and gain.high is not None and config.number != BASELINE:
            yield from ((_memory(config), rate * end / gain.ratio) for end in (gain.low, gain.high))


def _frontier(configs: Sequence[ConfigResult]) -> Iterator[tuple[float, float]]:
    """Yield the steps of what the configs on the frontier reach with as much memory."""
    reached: float | None = None
    for config in sorted(configs, key=_memory):
        if reached is not None:
            yield _memory(config), reached
        reached = config.examples_per_s or 0.0
        yield _memory(config), reached


def effects(results: Results) -> Iterator[Table]:
    """Yield for each swept key the median throughput of the configs with each of its values, the fastest first."""
    by_key: dict[str, list[Effect]] = {}
    for effect in results.effects:
        by_key.setdefault(effect.key, []).append(effect)
    for key, every in by_key.items():
        if len(every) > 1:
            left_out = f"The {_MOST_BARS} fastest of {len(every):,} values. " if len(every) > _MOST_BARS else ""
            yield Table(
                every[:_MOST_BARS],
                [
                    Col(key, lambda of: short(of.value), is_head=True),
                    Col("examples/s", "examples_per_s", ",.0f", bar=True),
                    Col("configs", "configs"),
                ],
                title=f"Effect of {key}",
                note=f"{left_out}Medians over all configs with a value, whatever their other values.",
                only=_PAGE,
            )


def together(results: Results) -> Iterator[Table]:
    """Yield what the configs with each pair of values of two keys reach; nothing with fewer than two keys.

    Of several keys it is the two whose pairs of values differ most. A cell is the median over all other values.
    """
    measured, unit = _measured(results)
    keys = [*results.configs[0].swept] if results.configs else []
    found = {of: _medians(measured, of) for of in combinations(keys, 2)}
    found = {of: cells for of, cells in found.items() if _is_grid(cells)}
    if not found:
        return
    chosen = max(found, key=lambda of: _spread(list(found[of].values())))
    cells, left_out = found[chosen], f"The two of {len(keys)} keys whose values together differ most. "
    rows, columns = (sorted({values[side] for values in cells}, key=_by_value) for side in (0, 1))
    yield Table(
        rows,
        [
            Col(f"{chosen[0]} \\ {chosen[1]}", short, is_head=True),
            *(_column(cells, column) for column in columns),
        ],
        title="Two parameters together",
        note=f"{left_out if len(found) > 1 else ''}A cell is the median {unit} of its configs.",
        only=_PAGE,
    )


def _column(cells: Cells, name: str) -> Col:
    """Return the column of a value of the second key; the larger a figure, the darker its cell."""
    low, high = min(cells.values()), max(cells.values())

    def read(row: str) -> float | None:
        return cells.get((row, name))

    def share(row: str) -> float | None:
        value = read(row)
        return None if value is None or high == low else (value - low) / (high - low)

    return Col(short(name), read, text=lambda row: _text(read(row)), share=share)


def _measured(results: Results) -> tuple[list[tuple[ConfigResult, float]], str]:
    """Return the figure that the decision rests on, of each config that has it, and its name."""
    name = results.decision.by.replace(" ", "_")
    if name.startswith("val_"):
        means = ((config, of.mean) for config in results.configs if (of := config.quality.get(name)))
        return [(config, mean) for config, mean in means if mean is not None], results.decision.by
    unit = "examples/s with the fill" if any(config.fill_s for config in results.configs) else "examples/s"
    rates = ((config, config.overall_examples_per_s) for config in results.configs)
    return [(config, rate) for config, rate in rates if rate is not None], unit


def _medians(measured: Sequence[tuple[ConfigResult, float]], keys: tuple[str, str]) -> Cells:
    found: dict[tuple[str, str], list[float]] = {}
    for config, value in measured:
        found.setdefault((config.swept[keys[0]], config.swept[keys[1]]), []).append(value)
    return {values: statistics.median(of) for values, of in found.items()}


def _is_grid(cells: Cells) -> bool:
    """Return whether both keys have several values, few enough to be drawn, and most pairs a config."""
    rows, columns = ({values[side] for values in cells} for side in (0, 1))
    return all(1 < len(of) <= _MOST_VALUES for of in (rows, columns)) and 2 * len(cells) > len(rows) * len(columns)


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) > 0 else 0.0


def _by_value(text: str) -> tuple[bool, float, str]:
    """Return a sort key that puts numbers first, in their order."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def _text(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and value >= 10 else significant(value)  # noqa: PLR2004 - a rate


def short(text: str) -> str:
    """Return at most 22 characters: both ends of a long text."""
    text = " ".join(text.split()) or "(default)"
    return text if len(text) <= 22 else f"{text[:10]}…{text[-11:]}"  # noqa: PLR2004 - see above


def epochs(results: Results) -> Iterator[Chart]:
    """Yield throughput and input wait of each epoch over time, which show drift of the machine."""
    outcomes = [(run.outcome, run.config) for run in results.runs if run.outcome is not None and run.outcome.epochs]
    ended = sorted(
        (epoch.ended_s, epoch.examples_per_s, 100 * epoch.wait_share, config)
        for outcome, config in outcomes
        for epoch in outcome.epochs
        if epoch.ended_s
    )
    if not ended:
        return
    started_s = min(outcome.created_s for outcome, _ in outcomes)
    unit, unit_s = ("minutes", 60.0) if ended[-1][0] - started_s < 4 * 3600 else ("hours", 3600.0)
    at = [(ended_s - started_s) / unit_s for ended_s, _, _, _ in ended]
    note = "A dot is an epoch, at its end. If the dots of the baseline rise or fall together, the machine has drifted."
    for title, place in (("examples/s", 1), ("input wait, %", 2)):
        points = [(x, float(epoch[place]), epoch[3]) for x, epoch in zip(at, ended, strict=True)]
        yield Chart(
            [*_roles(points, results)],
            title=f"Epochs over time: {title}",
            x=f"{unit} since the sweep began",
            from_zero=True,
            note=note if place == 1 else "",
            only=_PAGE,
        )
