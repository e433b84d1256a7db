"""What runs of two plans have measured: medians of their runs, and the ratio of the medians with an interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.outcome import outcome
from etlrun.record.summary import Summary
from etlrun.review.difference import Comparison, compare
from etlrun.stages import STAGES
from etlrun.system.errors import EtlrunError

if TYPE_CHECKING:
    from etlrun.measure.gains import Lead

MEASURES: Mapping[str, Callable[[Summary], float | None]] = {
    "examples/s": lambda run: outcome(run).examples_per_s,
    "au": lambda run: run.au,
    "input wait share": lambda run: run.input_wait_share,
}
"""What is compared of runs, by names in messages; examples/s are those of a sweep's table, of warm epochs."""


Values = Callable[[], Mapping[str, Any]]
"""Function that reads a composed config; `OSError` if it no longer exists."""


def compare_configs(old: Values, new: Values) -> Comparison | None:
    """Compare the plans of the configs of two runs; None if they can't be planned."""
    try:
        one, other = (plan(parse(values() or {}, STAGES)) for values in (old, new))
    except (EtlrunError, OSError, ValueError, yaml.YAMLError):  # of another version, or without its file
        return None
    return compare(one, other)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measure of the runs of both plans.

    Attributes:
        measure: Name in messages.
        old: Values of the runs of the old plan.
        new: Values of the runs of the new plan.
        ratio: Ratio of the medians, new to old; None if the old one is missing or zero.
        interval: The 95 % interval of the ratio; None if one side has a single run, or a value is zero.
        lead: For a loss or a metric, the difference of runs of equal seeds, new less old, in the place of a ratio.
    """

    measure: str
    old: tuple[float, ...]
    new: tuple[float, ...]
    ratio: float | None
    interval: tuple[float, float] | None
    lead: Lead | None = None

    def __str__(self) -> str:
        sides = " -> ".join(
            f"{in_four_digits(statistics.median(runs))} ({_count(runs)})" for runs in (self.old, self.new)
        )
        if self.lead is not None:
            return f"{self.measure}: {sides}, {_difference(self.lead)}"
        if self.ratio is None:
            return f"{self.measure}: {sides}"
        if self.interval is None:
            is_single = min(len(self.old), len(self.new)) == 1
            why = "a single run has no spread" if is_single else "a value is zero"
            return f"{self.measure}: {sides}, {self.ratio:.2f}x; {why}"
        low, high = self.interval
        return f"{self.measure}: {sides}, {self.ratio:.2f}x (95% interval {low:.2f} to {high:.2f})"


def _difference(lead: Lead) -> str:
    if lead.middle is None:
        return "no run of one seed on both sides"
    if lead.low is None:
        return f"{lead.middle:+.4g}; fewer than 3 seeds on both sides have no interval"
    return f"{lead.middle:+.4g} (95% interval {lead.low:+.4g} to {lead.high:+.4g}, {lead.rounds} seeds)"


def in_four_digits(value: float) -> str:
    """Format a number of any size with four significant digits."""
    return f"{float(f'{value:.4g}'):,.12g}"


def _count(runs: Sequence[float]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) != 1)}"


def qualities(*sides: Sequence[tuple[int, Mapping[str, float]]]) -> Iterator[Measured]:
    """Yield the losses and metrics of the validation, by their seeds, that the runs of both sides have."""
    names = dict.fromkeys(name for side in sides for _, of in side for name in of if name.startswith("val_"))
    for name in names:
        old, new = ([(seed, of[name]) for seed, of in side if math.isfinite(of.get(name, math.nan))] for side in sides)
        if old and new:
            import numpy as np

            from etlrun.measure.gains import leads

            means = [
                {seed: statistics.fmean(of for each, of in side if each == seed) for seed, _ in side}
                for side in (old, new)
            ]
            differences = np.array([means[1][seed] - of for seed, of in means[0].items() if seed in means[1]])
            lead = leads({0: differences}, 0.0)[0]
            values = [tuple(of for _, of in side) for side in (old, new)]
            yield Measured(measure=name, old=values[0], new=values[1], ratio=None, interval=None, lead=lead)


def measured(measure: str, old: tuple[float, ...], new: tuple[float, ...]) -> Measured:
    """Return a measure of runs of both sides."""
    base = statistics.median(old)
    ratio = statistics.median(new) / base if base else None
    if ratio is None or min(len(old), len(new)) == 1 or min(*old, *new) <= 0:
        return Measured(measure=measure, old=old, new=new, ratio=ratio, interval=None)
    from etlrun.measure.gains import interval_of_ratio  # imports NumPy, which most diffs do without

    interval = interval_of_ratio(old, new)
    return Measured(measure=measure, old=old, new=new, ratio=ratio, interval=interval)
