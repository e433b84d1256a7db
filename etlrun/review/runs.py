"""What the runs of two configs have measured, with the interval of the ratio of their medians, and where they ran."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from etlrun.planning.spec import value_at
from etlrun.record.config import known_config
from etlrun.record.outcome import outcome, records_read
from etlrun.record.summary import COMPLETED, read_summary, sets_in
from etlrun.stages.dataset import Dataset
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import counted, printable
from etlrun.system.terminal import in_four_digits
from etlrun.system.values import frozen, grouped

if TYPE_CHECKING:
    from etlrun.measure.gains import Lead
    from etlrun.stages.sweep import Sweep

MEASURES = ("examples/s", "au", "input wait share")
"""What is compared of runs, by names in messages; examples/s are those of a sweep's table, of warm epochs."""
_UNKNOWN, _ABSENT = "unknown", "(none)"


@frozen
class Measured:
    """One measure of the runs of both plans.

    Attributes:
        measure: Name in messages.
        old: Values of the runs of the old plan.
        new: Values of the runs of the new plan.
        ratio: Ratio of the medians, new to old; None if the old one is missing or zero.
        interval: The 95 % interval of the ratio; None if one side has a single run, or a value is zero.
        lead: For a loss or a metric, the difference of runs of equal seeds, or of equal rounds, new less old, in the
            place of a ratio.
        pairs: What the runs of a pair have in common, one word.
    """

    measure: str
    old: tuple[float, ...]
    new: tuple[float, ...]
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    lead: Lead | None = None
    pairs: str = "seed"

    def told(self, *, is_single: bool = False) -> str:
        """Return the medians of both sides and what is between them, in words; `is_single` of one run on each side."""
        numbers = ["" if is_single else f" ({counted(len(runs), 'run')})" for runs in (self.old, self.new)]
        was, now = (statistics.median(runs) for runs in (self.old, self.new))
        sides = f"{self.measure}: {in_four_digits(was)}{numbers[0]} -> {in_four_digits(now)}{numbers[1]}"
        if (lead := self.lead) is not None:
            beside = f"no run of one {self.pairs} on both sides"
            if lead.low is not None:
                interval = f"95% interval {lead.low:+.4g} to {lead.high:+.4g}, {lead.rounds} {self.pairs}s"
                beside = f"{lead.middle:+.4g} ({interval})"
            elif lead.middle is not None:
                beside = f"{lead.middle:+.4g}; fewer than 3 {self.pairs}s on both sides have no interval"
        elif is_single:
            beside = f"{now - was:+.4g}" if self.ratio is None else f"{self.ratio:.2f}x"
        elif self.ratio is None:
            return sides
        elif self.interval is not None:
            beside = f"{self.ratio:.2f}x (95% interval {self.interval[0]:.2f} to {self.interval[1]:.2f})"
        else:
            has_one = min(len(self.old), len(self.new)) == 1
            beside = f"{self.ratio:.2f}x; {'a single run has no spread' if has_one else 'a value is zero'}"
        return f"{sides}, {beside}"


def measured(measure: str, old: tuple[float, ...], new: tuple[float, ...]) -> Measured:
    """Return a measure of runs of both sides."""
    base, interval = statistics.median(old), None
    ratio = statistics.median(new) / base if base else None
    if ratio is not None and min(len(old), len(new)) > 1 and min(*old, *new) > 0:
        from etlrun.measure.gains import interval_of_ratio  # imports NumPy, which most diffs do without

        interval = interval_of_ratio(old, new)
    return Measured(measure=measure, old=old, new=new, ratio=ratio, interval=interval)


def qualities(
    *sides: Sequence[tuple[object, Mapping[str, float]]], pairs: str = "seed", excess: float | None = None
) -> Iterator[Measured]:
    """Yield the losses and metrics of the validations that the runs of both sides have, each with its place in pairs.

    If rounds share examples, `excess` is that of `gains.leads`.
    """
    every = dict.fromkeys(name for side in sides for _, of in side for name in of)
    validated = ("val_", *(f"{name}." for name in sets_in(every)))
    for name in (name for name in every if name.startswith(validated)):
        old, new = ([(pair, of[name]) for pair, of in side if math.isfinite(of.get(name, math.nan))] for side in sides)
        if old and new:
            import numpy as np

            from etlrun.measure.gains import leads

            was, now = ({pair: statistics.fmean(of) for pair, of in grouped(side).items()} for side in (old, new))
            apart = np.array([now[pair] - of for pair, of in was.items() if pair in now])
            lead = leads({0: apart}, 0.0, excess=excess)[0]
            values = [tuple(of for _, of in side) for side in (old, new)]
            yield Measured(measure=name, old=values[0], new=values[1], lead=lead, pairs=pairs)


@frozen
class Ran:
    """Comparison of the runs of both sides.

    Attributes:
        runs: Number of compared runs of each side; where one has none, the status of both alone is known.
        others: What differs, by name; a measure that one side alone has is `unknown` on the other.
        measured: Measures that both sides have.
        packages: Versions of packages that differ, by name; `(none)` where a side lacks it.
        machine: The machine of all of them; empty if they had several, or if it is unknown.
        read: What is known of the examples that they have read, a sentence each.
    """

    runs: tuple[int, int]
    others: Mapping[str, tuple[str, str]]
    measured: tuple[Measured, ...] = ()
    packages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    machine: str = ""
    read: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The comparison, a sentence each."""
        is_single = self.runs == (1, 1)
        found = [f"{name}: {old} -> {new}" for name, (old, new) in self.others.items()]
        found += [f"measured {of.told(is_single=is_single)}" for of in self.measured]
        found += ["measured in one run of each: the noise is unknown"] * is_single
        packages = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in self.packages.items())
        found += [f"packages: {packages}"] * bool(packages) + [f"the same machine: {self.machine}"] * bool(self.machine)
        return [*map(printable, found), *self.read]


class _Runs:
    """Runs of one side, without those that have not begun; those that are completed, or all if none is."""

    def __init__(self, folders: Sequence[Path]) -> None:
        read = {folder: read_summary(folder) for folder in folders}
        every = {folder: summary for folder, summary in read.items() if summary is not None}
        self.counted = {folder: of for folder, of in every.items() if of.status == COMPLETED} or every
        summaries, self.outcomes = self.counted.values(), [*map(outcome, self.counted.values())]
        measures = grouped(
            (name, float(value))
            for summary, of in zip(summaries, self.outcomes, strict=True)
            for name, value in [
                *zip(MEASURES, (of.examples_per_s, summary.au, summary.input_wait_share), strict=True),
                *of.measures.items(),
            ]
            if value is not None
        )
        self.values = {name: tuple(of) for name, of in measures.items()}
        self.facts = {
            "status": _joined(of.status if of else _UNKNOWN for of in read.values()) or "not begun",
            "epochs": _joined(len(of.epochs) for of in summaries),
            "machine": _joined(of.machine or _UNKNOWN for of in self.outcomes),
            "commit": _joined(of.commit.told for of in summaries if of.commit and of.commit.revision),
            "jobs at a time": _joined(of.in_flight for of in self.outcomes),
        }
        self.packages = _joined_each(of.versions for of in summaries)
        self.records = _joined_each(map(records_read, summaries))

    def in_pairs(self, *keys: str) -> list[tuple[object, Mapping[str, float]]]:
        """Return losses and metrics of each run with its values of these dotted keys."""
        configs = (known_config(folder, "restore the file") for folder in self.counted)
        places = (tuple(value_at(config, key.split(".")) for key in keys) for config in configs)
        return [(place, of.measures) for place, of in zip(places, self.outcomes, strict=True)]


def _joined(values: Iterable[object]) -> str:
    """Return the values, each once; with their numbers if there are several."""
    counts = Counter(map(str, values))
    return next(iter(counts), "") if len(counts) < 2 else ", ".join(f"{count} {of}" for of, count in counts.items())  # noqa: PLR2004


def _joined_each(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    each = [*several]
    names = dict.fromkeys(name for of in each for name in of)
    return {name: _joined(of[name] for of in each) for name in names if all(name in of for of in each)}


def _in_pairs(before: _Runs, after: _Runs, cuts: Sequence[Sweep]) -> Iterator[Measured]:
    """Yield losses and metrics of runs of equal seeds; of `cuts`, sweeps with splits of rounds, of equal rounds."""
    keys, excess = [Trainer.key("seed")], None
    if cuts:
        from etlrun.measure.gains import excess_of

        keys += [Dataset.key("split"), Dataset.key("eval_split")]
        excess = excess_of((*before.outcomes, *after.outcomes), has_folds=all(sweep.folds for sweep in cuts))
    sides = (side.in_pairs(*keys) for side in (before, after))
    yield from qualities(*sides, pairs="round" if cuts else "seed", excess=excess)


def compare_runs(old: Sequence[Path], new: Sequence[Path], cuts: Sequence[Sweep] = ()) -> Ran:
    """Compare the runs of two configs, or what there is of them; `cuts` are their sweeps with splits of rounds."""
    before, after = sides = _Runs(old), _Runs(new)
    runs = len(before.counted), len(after.counted)
    if 0 in runs:
        return Ran(runs=runs, others={"status": (before.facts["status"], after.facts["status"])})
    found: list[Measured] = []
    others = _differing(before.facts, after.facts, _UNKNOWN)
    for name in {**before.values, **after.values}:
        was, now = (side.values.get(name, ()) for side in sides)
        if not (was and now and all(map(math.isfinite, (*was, *now)))):
            others[name] = _median(was), _median(now)
        elif name in MEASURES:
            found.append(measured(name, was, now))
        elif runs == (1, 1):
            found.append(Measured(measure=name, old=was, new=now))
    found += _in_pairs(before, after, cuts) if runs != (1, 1) else ()
    shared = before.records.keys() & after.records.keys()
    unlike = sorted(name for name in shared if before.records[name] != after.records[name])
    read = [f"read other records of {' and '.join(unlike)}" if unlike else "read the same records"] * bool(shared)
    digests = [{of.digests for of in side.counted.values()} for side in sides]  # of `measure.digest`
    if all(len(of) == 1 for of in digests) and (pairs := [*zip(*(next(iter(of)) for of in digests), strict=False)]):
        place = next((number for number, (was, now) in enumerate(pairs, 1) if was != now), None)
        what = "the same examples in each epoch" if place is None else f"other examples from epoch {place} on"
        read.append(f"read {what}, by their digests")
    machines = {side.facts["machine"] for side in sides} - {_UNKNOWN}
    return Ran(
        runs=runs,
        measured=tuple(found),
        others=others,
        packages=_differing(before.packages, after.packages, _ABSENT),
        machine="" if "machine" in others else next(iter(machines), ""),
        read=tuple(read),
    )


def _median(values: Sequence[float]) -> str:
    if not all(map(math.isfinite, values)):
        return "not finite"
    return in_four_digits(statistics.median(values)) if values else _UNKNOWN


def _differing(old: Mapping[str, str], new: Mapping[str, str], absent: str) -> dict[str, tuple[str, str]]:
    pairs = {name: (old.get(name) or absent, new.get(name) or absent) for name in {**old, **new}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
