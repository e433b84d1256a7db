"""What the terminal, Markdown and the page show alike: the table of a sweep's configs, and the remarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from etlrun.measure.compare import UNTOLD, Noise
from etlrun.results.decision import times
from etlrun.results.results import BASELINE, ConfigResult, Results
from etlrun.terminal import number

HEADER = (
    "config", "overrides", "status", "runs", "examples/s", "first epoch", "gain", "call", "MB", "cores", "au",
    "bound by", "at most", "seconds", "val accuracy", "val loss", "accuracy", "loss", "data", "reason",
)  # fmt: skip


class Cell(NamedTuple):
    """One cell of the table.

    Attributes:
        text: As it is shown.
        value: The figure behind it, exactly as it was measured (`MB` in bytes); None where it is a word, or unknown.
    """

    text: str
    value: float | None = None


def rows(results: Results) -> Iterator[list[Cell]]:
    """A row for each config, best first, with a cell for each of `HEADER`."""
    is_repeated = any(config.gain.call != UNTOLD for config in results.configs)
    return (_row(config, results.decision.config, is_repeated=is_repeated) for config in results.configs)


def _row(config: ConfigResult, chosen: int | None, *, is_repeated: bool) -> list[Cell]:
    memory, first, runs = config.peak_rss_bytes, config.first_examples_per_s, len(config.runs)
    call = "baseline" if config.number == BASELINE else config.gain.call
    return [
        Cell(str(config.number) + ("*" if config.number == chosen else ""), config.number),
        Cell(" ".join(config.own)),
        Cell(config.status),
        Cell(str(runs) if is_repeated else "", runs),
        Cell(number(config.examples_per_s, 1), config.examples_per_s),
        Cell(number(first, 1) if first else "", first),
        Cell(times(config.gain) if is_repeated else "", config.gain.ratio),
        Cell(call if is_repeated else ""),
        Cell(number(memory and memory / 1e6, 0), memory),
        Cell(number(config.cores_used, 1), config.cores_used),
        Cell(number(config.au, 2), config.au),
        Cell(config.bound_by),
        Cell(number(config.max_gain, 2), config.max_gain),
        Cell(number(config.wall_s, 1), config.wall_s),
        _quality(config, "val_accuracy")
        if config.quality
        else Cell(number(config.val_accuracy, 3), config.val_accuracy),
        *(_quality(config, name) for name in ("val_loss", "accuracy", "loss")),
        Cell(config.data),
        Cell(" ".join(config.error.split())),
    ]


def _quality(config: ConfigResult, name: str) -> Cell:
    """`0.912 (0.905 to 0.919) better`, or what there is of it."""
    of = config.quality.get(name)
    if of is None:
        return Cell("")
    interval = "" if of.low is None or of.high is None else f" ({of.low:.3f} to {of.high:.3f})"
    call = "" if of.lead is None or of.lead.call == UNTOLD else f" {of.lead.call}"
    return Cell(f"{number(of.mean, 3)}{interval}{call}", of.mean)


def remarks(results: Results) -> Iterator[str]:
    """All that a reader should know beside the table."""
    if results.noise.pairs:
        yield f"noise of the machine: {noise(results.noise)}"
    yield from notes(results)


def notes(results: Results) -> Iterator[str]:
    """What no pipeline can be faster than, and what is odd with this sweep."""
    if results.ceiling_examples_per_s is not None:
        yield f"no pipeline can be faster than about {results.ceiling_examples_per_s:,.0f} examples/s with this model"
    yield from results.remarks


def noise(of: Noise) -> str:
    """How far two runs of one config are apart."""
    if of.median is None or of.largest is None:
        return "not known: with sweep.repeats=3 or more the baseline runs twice in each round"
    return (
        f"two runs of the baseline differ by {of.median:.1%} in the median, {of.largest:.1%} at most, "
        f"over {of.pairs} pairs"
    )
