"""Comparison of runs themselves, beside that of their plans: what was measured, where, and with which packages."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etlrun.record.config import known_config
from etlrun.record.outcome import outcome, records_read
from etlrun.record.summary import COMPLETED, read_summary
from etlrun.review.measured import MEASURES, Measured, in_four_digits, measured, qualities
from etlrun.system.errors import printable

_UNKNOWN, _ABSENT = "unknown", "(none)"


@dataclass(frozen=True, kw_only=True)
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
        found += [f"measured {_of_single(of) if is_single else of}" for of in self.measured]
        found += ["measured in one run of each: how much of it is chance is unknown"] if is_single else []
        packages = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in self.packages.items())
        found += [f"packages: {packages}"] if packages else []
        found += [f"the same machine: {self.machine}"] if self.machine else []
        return [*map(printable, found), *self.read]


def _of_single(of: Measured) -> str:
    (old,), (new,) = of.old, of.new
    change = f"{new - old:+.4g}" if of.ratio is None else f"{of.ratio:.2f}x"
    return f"{of.measure}: {in_four_digits(old)} -> {in_four_digits(new)}, {change}"


class _Side:
    """Runs of one side, without those that have not begun.

    Attributes:
        counted: Runs that are compared: those that are completed, or all if none is.
        status: Status of all runs.
        speeds: Values of the measures of speed, and `losses` those of losses and metrics, by name.
        infinite: Losses and metrics of which a value is not finite, with a text that says so.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        read = {folder: read_summary(folder) for folder in folders}
        every = {folder: summary for folder, summary in read.items() if summary is not None}
        self.status = _joined(of.status if of else _UNKNOWN for of in read.values()) or "not begun"
        self.counted = {folder: of for folder, of in every.items() if of.status == COMPLETED} or every
        self.outcomes = [*map(outcome, self.counted.values())]
        self.speeds = _by_name({name: of(run) for name, of in MEASURES.items()} for run in self.counted.values())
        losses = _by_name(of.measures for of in self.outcomes)
        self.losses = {name: values for name, values in losses.items() if all(map(math.isfinite, values))}
        self.infinite = dict.fromkeys(losses.keys() - self.losses.keys(), "not finite")

    @property
    def by_seed(self) -> list[tuple[int, Mapping[str, float]]]:
        """Losses and metrics of each run with its seed."""
        seeds = (known_config(folder, "restore the file")["trainer"]["seed"] for folder in self.counted)
        return [(seed, of.measures) for seed, of in zip(seeds, self.outcomes, strict=True)]

    @property
    def facts(self) -> dict[str, str]:
        """What is told where it differs, by name."""
        summaries = self.counted.values()
        return {
            "status": self.status,
            "epochs": _joined(len(of.epochs) for of in summaries),
            "machine": _joined(of.machine or _UNKNOWN for of in self.outcomes),
            "jobs at a time": _joined(of.in_flight for of in self.outcomes),
        }

    @property
    def packages(self) -> dict[str, str]:
        """Versions by package."""
        return _joined_each(of.versions for of in self.counted.values())

    @property
    def records(self) -> dict[str, str]:
        """Digest of the records of each pipeline; those that are not known of each run are left out."""
        return _joined_each(map(records_read, self.counted.values()))


def _joined(values: Iterable[object]) -> str:
    """Return the values, each once; with their numbers if there are several."""
    counts = Counter(map(str, values))
    return next(iter(counts), "") if len(counts) < 2 else ", ".join(f"{count} {of}" for of, count in counts.items())  # noqa: PLR2004


def _by_name(several: Iterable[Mapping[str, float | None]]) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    for each in several:
        for name, value in each.items():
            found.setdefault(name, []).extend([] if value is None else [float(value)])
    return {name: tuple(values) for name, values in found.items() if values}


def _joined_each(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    each = [*several]
    names = dict.fromkeys(name for of in each for name in of)
    return {name: _joined(of[name] for of in each) for name in names if all(name in of for of in each)}


def compare_runs(old: Sequence[Path], new: Sequence[Path]) -> Ran:
    """Compare the runs of two configs, or what there is of them."""
    before, after = _Side(old), _Side(new)
    if not (before.counted and after.counted):
        status = {"status": (before.status, after.status)}
        return Ran(runs=(len(before.counted), len(after.counted)), others=status)
    found = [measured(name, of, after.speeds[name]) for name, of in before.speeds.items() if name in after.speeds]
    if len(before.counted) == len(after.counted) == 1:
        losses = ((name, of, after.losses[name]) for name, of in before.losses.items() if name in after.losses)
        found += [Measured(measure=name, old=was, new=now, ratio=None, interval=None) for name, was, now in losses]
    else:
        found += qualities(before.by_seed, after.by_seed)
    facts = [side.facts | side.infinite | _alone(side, other) for side, other in ((before, after), (after, before))]
    machines = {side.facts["machine"] for side in (before, after)} - {_UNKNOWN}
    others = _differing(facts[0], facts[1], _UNKNOWN)
    others |= {name: (of, of) for name, of in before.infinite.items() if name in after.infinite}
    return Ran(
        runs=(len(before.counted), len(after.counted)),
        measured=tuple(found),
        others=others,
        packages=_differing(before.packages, after.packages, _ABSENT),
        machine=next(iter(machines), "") if "machine" not in others else "",
        read=tuple(_read(before, after)),
    )


def _differing(old: Mapping[str, str], new: Mapping[str, str], absent: str) -> dict[str, tuple[str, str]]:
    """Return the values that differ, by name."""
    pairs = {name: (old.get(name) or absent, new.get(name) or absent) for name in {**old, **new}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _alone(side: _Side, other: _Side) -> dict[str, str]:
    """Return the measures that one side alone has."""
    own, others = side.speeds | side.losses, other.speeds | other.losses
    return {name: in_four_digits(statistics.median(values)) for name, values in own.items() if name not in others}


def _read(before: _Side, after: _Side) -> Iterator[str]:
    """Yield what is known of the records, and of the digests of `measure.digest`."""
    shared = before.records.keys() & after.records.keys()
    others = sorted(name for name in shared if before.records[name] != after.records[name])
    if shared:
        text = f"other records of {' and '.join(others)}" if others else "the same records"
        yield f"read {text}"
    digests = [{of.digests for of in side.counted.values()} for side in (before, after)]
    if all(len(of) == 1 for of in digests):
        pairs = [*zip(*(next(iter(of)) for of in digests), strict=False)]
        place = next((number for number, (was, now) in enumerate(pairs, 1) if was != now), None)
        what = "the same examples in each epoch" if place is None else f"other examples from epoch {place} on"
        yield from [f"read {what}, by their digests"] if pairs else []
