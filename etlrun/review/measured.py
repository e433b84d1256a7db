"""Measured comparison of two plans: medians of their runs, and the ratio of the medians with an interval."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from etlrun.planning.learned import recalled
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import RunSpec, parse
from etlrun.record.config import read_config
from etlrun.record.outcome import outcome, records_read
from etlrun.record.summary import COMPLETED, SUMMARY, Summary, read_summary
from etlrun.review.difference import Comparison, compare
from etlrun.stages import STAGES
from etlrun.system.errors import EtlrunError, WorldError

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
        same_records: False if runs are known to have read different records.
        lead: For a loss or a metric, the difference of runs of equal seeds, new less old, in the place of a ratio.
    """

    measure: str
    old: tuple[float, ...]
    new: tuple[float, ...]
    ratio: float | None
    interval: tuple[float, float] | None
    same_records: bool = True
    lead: Lead | None = None

    def __str__(self) -> str:
        return self._figures() + ("" if self.same_records else "; these runs have not all read the same records")

    def _figures(self) -> str:
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


class Runs:
    """The completed runs below a folder."""

    def __init__(self, folder: Path) -> None:
        self._runs: list[tuple[Summary, Plan]] = []
        for path in sorted(folder.rglob(SUMMARY)):
            summary = read_summary(path.parent)
            if summary is None or summary.status != COMPLETED:
                continue
            try:
                self._runs.append((summary, plan(recalled(parse(read_config(path.parent), STAGES), path.parent))))
            except (EtlrunError, OSError):
                continue
        if not self._runs:
            raise WorldError(
                where=f"--runs {folder}",
                found="no completed run" if folder.is_dir() else "no such folder",
                expected="a folder with completed runs below it",
                remedy="give the folder of a run or of a sweep",
            )

    def of(self, planned: Plan) -> list[Summary]:
        """Return the summaries of the runs of this plan, with equal values everywhere."""
        return [summary for summary, there in self._runs if there.spec == planned.spec]

    def by_seed(self, planned: Plan) -> list[tuple[int, Mapping[str, float]]]:
        """Return the seed of each run of this plan with any seed, with its losses and its metric."""
        wanted = _of_any_seed(planned.spec)
        return [
            (there.spec.trainer.seed, outcome(summary).measures)
            for summary, there in self._runs
            if _of_any_seed(there.spec) == wanted
        ]

    def compare(self, old: Plan, new: Plan) -> tuple[Measured, ...]:
        """Return each measure that the runs of both plans have."""
        sides = [self.of(old), self.of(new)]
        found = []
        for measure, value_of in MEASURES.items():
            values = [tuple(float(value) for run in runs if (value := value_of(run)) is not None) for runs in sides]
            if all(values):
                found.append(measured(measure, *values))
        read = {item for runs in sides for run in runs for item in records_read(run).items()}
        same_records = len(read) == len(dict(read))
        found += qualities(self.by_seed(old), self.by_seed(new))
        return tuple(dataclasses.replace(of, same_records=same_records) for of in found)


def _of_any_seed(spec: RunSpec) -> RunSpec:
    return dataclasses.replace(spec, trainer=dataclasses.replace(spec.trainer, seed=0))


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
