"""Table of a sweep's configs and notes, shared by the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from etlrun.measure.gains import UNTOLD, Noise
from etlrun.results.results import BASELINE, ConfigResult, Results, shown_as
from etlrun.system.terminal import number

_CONFIG = "config"
_FIGURES = (
    "status", "runs", "examples/s", "first epoch", "fill s", "with fill", "gain", "result", "MB",
    "cores", "au", "bound by", "max gain", "seconds", "val accuracy", "val loss", "accuracy", "loss", "data", "reason",
)  # fmt: skip
"""Columns after those of the swept keys."""
UNMEASURED = ("status", "runs", "data")
"""Columns, with that of the validation's metric, that the terminal leaves out where all rows are equal; in others they
are so by chance."""


class Cell(NamedTuple):
    """One cell of the table.

    Attributes:
        text: Text of the cell.
        value: Exact number behind the text (`MB` in bytes); None for text, and if unknown.
    """

    text: str
    value: float | None = None


def header(results: Results) -> list[str]:
    """Return the names of the columns of the table: a narrow one for each swept key, by the end of its name."""
    figures = [name.replace("accuracy", results.metric.replace("_", " ")) for name in _FIGURES]
    return [_CONFIG, *_short(swept_keys(results), (_CONFIG, *figures)), *figures]


def swept_keys(results: Results) -> list[str]:
    """Return the swept keys, in the order of the command line."""
    return [*results.configs[0].swept] if results.configs else []


def _short(keys: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the shortest end of each key that no other one has, nor is one of `others`."""
    ends = {key: [key.lstrip("+~").split(".")[-parts:] for parts in range(1, key.count(".") + 2)] for key in keys}
    every = [*(".".join(end) for of in ends.values() for end in of), *others]
    return [next((name for end in ends[key] if every.count(name := ".".join(end)) == 1), key) for key in keys]


def rows(results: Results) -> Iterator[list[Cell]]:
    """Return a row for each config, the best first, with a cell for each column of `header`."""
    is_repeated = any(config.gain.call != UNTOLD for config in results.configs)
    has_fill = any(config.fill_s is not None for config in results.configs)
    chosen = results.decision.recommended
    metric = results.metric
    return (_row(config, chosen, metric, is_repeated=is_repeated, has_fill=has_fill) for config in results.configs)


def _row(config: ConfigResult, chosen: int | None, metric: str, *, is_repeated: bool, has_fill: bool) -> list[Cell]:
    memory, first, runs = config.peak_rss_bytes, config.first_examples_per_s, len(config.runs)
    overall = config.overall_examples_per_s
    result = "unknown" if config.gain.call == UNTOLD else config.gain.call
    return [
        Cell(str(config.number) + ("*" if config.number == chosen else ""), config.number),
        *(Cell(value) for value in config.swept.values()),
        Cell(config.status),
        Cell(str(runs) if is_repeated else "", runs),
        Cell(number(config.examples_per_s, 1), config.examples_per_s),
        Cell(number(first, 1) if first else "", first),
        Cell("" if config.fill_s is None else number(config.fill_s, 2), config.fill_s),
        Cell(number(overall, 1) if has_fill else "", overall),
        Cell(config.gain.words if is_repeated else "", config.gain.ratio),
        Cell(("baseline" if config.number == BASELINE else result) if is_repeated else ""),
        Cell(number(memory and memory / 1e6, 0), memory),
        Cell(number(config.cores_used, 1), config.cores_used),
        Cell(number(config.au, 2), config.au),
        Cell(config.bound_by),
        Cell(number(config.max_gain, 2), config.max_gain),
        Cell(number(config.wall_s, 1), config.wall_s),
        _quality(config, f"val_{metric}") if f"val_{metric}" in config.quality else _metric(config, f"val_{metric}"),
        *(_quality(config, name) for name in ("val_loss", metric, "loss")),
        Cell(config.data),
        Cell(" ".join(config.error.split())),
    ]


def _metric(config: ConfigResult, name: str) -> Cell:
    value = config.val_accuracy if name == "val_accuracy" else config.measures.get(name)
    return Cell(shown_as(name, value), value)


def _quality(config: ConfigResult, name: str) -> Cell:
    """Format a quality with its interval and result, if there are any: `0.912 (0.905 to 0.919) better`."""
    of = config.quality.get(name)
    if of is None:
        return Cell("")
    result = "" if of.lead is None or of.lead.call == UNTOLD else f" {of.lead.call}"
    return Cell(f"{of.words_of(name)}{result}", of.mean)


def all_notes(results: Results) -> Iterator[str]:
    """Yield the notes below the table, the noise of the machine included."""
    if results.noise.pairs:
        yield f"noise of the machine: {noise(results.noise)}"
    yield from notes(results)


def notes(results: Results) -> Iterator[str]:
    """Yield the upper bound of the throughput and the notes on the sweep."""
    if results.ceiling_examples_per_s is not None:
        ceiling = f"{results.ceiling_examples_per_s:,.0f} examples/s"
        yield f"with an ideal input pipeline this model reaches at most about {ceiling}"
    yield from results.remarks


def noise(of: Noise) -> str:
    """Describe how far two runs of one config are apart."""
    if of.median is None or of.largest is None:
        return "unknown: with sweep.repeats=3 or more the baseline runs twice per round"
    return f"two runs of the baseline differ by {of.median:.1%} median, {of.largest:.1%} maximum, over {of.pairs} pairs"
