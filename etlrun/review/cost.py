"""Cost of a change: caches that are filled again, in bytes and seconds, and rates, memory and disk before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etlrun.system.machine import rounded
from etlrun.system.terminal import significant

_MINUTE_S, _HOUR_S = 60.0, 3600.0
_LEAST_S, _WHOLE = 0.1, 10
_FEW = 2
"""Of a unit of time, what is told in the next smaller one."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Value that was measured, or that follows from measured ones.

    Attributes:
        value: Median, or the most likely value.
        low: Lower end of what is to be expected; equal to `value` if no spread is known.
        high: Upper end.
        runs: Number of runs behind it.
    """

    value: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class Refill:
    """Cache on disk that is filled after a change.

    Attributes:
        key: Identity of what it holds, and where: experiments with the same key share the cache.
        pipeline: `train` or `validation`.
        size_bytes: Its size; None if it is unknown.
        duration_s: Seconds that filling it takes; None if they are unknown.
        is_by_old: Whether these are by the rate of the old plan, since no run of the new one was measured.
        machine: Machine on which the rate was measured; empty if none was.
    """

    key: str
    pipeline: str
    size_bytes: int | None
    duration_s: Estimate | None
    is_by_old: bool = False
    machine: str = ""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of the change of one experiment; None is what is not known, and never 0.

    Attributes:
        refill_bytes: Size of the caches on disk that will be filled again.
        refill_s: Seconds that filling them takes.
        refills: These caches.
        shared: Pipelines whose new cache on disk another experiment has filled before, each with its name.
        each_run_bytes: Size of the caches in memory that change, which each run fills.
        each_run_s: Seconds that filling these takes in each run.
        examples_per_s: Training throughput before and after.
        speedup: Ratio of these with its 95 % interval, of which both ends are equal where there is none.
        au: Accelerator utilization (AU) before and after, from 0 to 1.
        memory_bytes: Peak resident memory before and after.
        least_memory_bytes: What the caches in memory hold after the change, where nothing more is known.
        disk_bytes: Size of the caches on disk before and after.
        machine: Machine that was measured; empty if nothing was.
        is_told: Whether there are measurements to look for the plans in.
        is_added: Whether there is no old plan.
        is_as_fast: Whether nothing changes that the speed depends on.
    """

    refill_bytes: int | None = 0
    refill_s: Estimate | None = None
    refills: tuple[Refill, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    each_run_bytes: int | None = 0
    each_run_s: Estimate | None = None
    examples_per_s: tuple[Estimate | None, Estimate | None] = (None, None)
    speedup: Estimate | None = None
    au: tuple[Estimate | None, Estimate | None] = (None, None)
    memory_bytes: tuple[int | None, int | None] = (None, None)
    least_memory_bytes: int | None = None
    disk_bytes: tuple[int | None, int | None] = (0, 0)
    machine: str = ""
    is_told: bool = False
    is_added: bool = False
    is_as_fast: bool = False

    @property
    def lines(self) -> list[str]:
        """The cost without its rates, a sentence each."""
        lines = [_filled(self.refills)] if self.refills else []
        lines += [f"the cache on disk of {name} is that of {of}, and is not filled again" for name, of in self.shared]
        if self.is_told and self.each_run_s is not None:
            lines.append(f"each run fills its caches in memory in {_duration(self.each_run_s)}")
        before, after = self.disk_bytes
        if self.refills or before != after:
            stay = "; the old ones stay until etlrun cache gc removes them" if before != 0 else ""
            is_unknown = before is None and after is None
            sides = _sides([*map(_size, self.disk_bytes)], is_added=self.is_added or is_unknown)
            lines.append(f"caches on disk: {sides}{stay}")
        return lines

    @property
    def rate_lines(self) -> list[str]:
        """The rates and the memory before and after, a sentence each; none where nothing is told of them."""
        if not self.is_told or self.is_as_fast:
            return []
        memory = self._memory()
        if not self.machine:
            of = "the new plan" if self.is_added else "the old or of the new plan"
            return [f"expected examples/s, AU and memory: unknown, since no run of {of} was measured{memory}"]
        rates = [_rate(of) for of in self.examples_per_s]
        au = ["unknown" if of is None else f"{of.value:.2f}" for of in self.au]
        sides = [_sides([*of], is_added=self.is_added) for of in (rates, au)]
        return [f"expected on {self.machine}: examples/s {sides[0]}{_ratio(self.speedup)}; AU {sides[1]}{memory}"]

    def _memory(self) -> str:
        texts = [_size(of) for of in self.memory_bytes]
        least = self.least_memory_bytes
        if self.memory_bytes[1] is None and least:
            texts[1] += f", at least the {rounded(least)} of its caches"
        return f"; memory {_sides(texts, is_added=self.is_added)}" if self.machine or least else ""


def _sides(texts: Sequence[str], *, is_added: bool) -> str:
    return texts[1] if is_added else " -> ".join(texts)


def _rate(of: Estimate | None) -> str:
    if of is None:
        return "unknown"
    spread = "" if of.low == of.high else f"{significant(of.low)} to {significant(of.high)}, "
    return f"{significant(of.value)} ({spread}{_runs(of.runs)})"


def _ratio(of: Estimate | None) -> str:
    if of is None:
        return ""
    interval = "" if of.low == of.high else f" (95% interval {of.low:.2f} to {of.high:.2f})"
    return f", {of.value:.2f}x{interval}"


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else rounded(size_bytes) if size_bytes else "0"


def _duration(of: Estimate) -> str:
    """Return seconds as text: in minutes or hours from two of these on, with the spread in the same unit."""
    unit_s, unit = next(
        ((size, name) for size, name in ((_HOUR_S, "hours"), (_MINUTE_S, "minutes")) if of.value >= _FEW * size),
        (1.0, "s"),
    )
    if of.value < _LEAST_S:
        return f"less than {_LEAST_S} s"
    ends = (of.value / unit_s, of.low / unit_s, of.high / unit_s)
    texts = [f"{end:.2g}" if end < _WHOLE else f"{end:,.0f}" for end in ends]
    return f"{texts[0]} {unit}" + ("" if texts[1] == texts[2] else f" ({texts[1]} to {texts[2]})")


def refilled(costs: Sequence[Cost]) -> tuple[Refill, ...]:
    """Return the caches on disk that are filled after a change, each once, whichever experiments share it."""
    every = [refill for cost in costs for refill in cost.refills]
    known = {refill.key: refill for refill in every if refill.duration_s is not None}
    return tuple({refill.key: known.get(refill.key, refill) for refill in every}.values())


def size_of(refills: Sequence[Refill]) -> int | None:
    """Return the size of caches together; None if that of one is unknown."""
    sizes = [refill.size_bytes for refill in refills if refill.size_bytes is not None]
    return sum(sizes) if len(sizes) == len(refills) else None


def duration_of(refills: Sequence[Refill]) -> Estimate | None:
    """Return the seconds that filling caches takes, one after the other; None if those of one are unknown."""
    known = [refill.duration_s for refill in refills if refill.duration_s is not None]
    if len(known) < len(refills):
        return None
    sums = {end: sum(getattr(of, end) for of in known) for end in ("value", "low", "high")}
    return Estimate(**sums, runs=min((of.runs for of in known), default=0))


def _filled(refills: Sequence[Refill]) -> str:
    """Return the sentence on the caches that are filled: how large they are, and how long it takes."""
    sizes = [refill.size_bytes for refill in refills if refill.size_bytes is not None]
    unknown, count = len(refills) - len(sizes), f"{len(refills)} cache{'s' * (len(refills) != 1)} on disk"
    if not sizes:
        size = f"{count} of unknown size"
    else:
        size = f"{f'more than {rounded(sum(sizes))}' if unknown else rounded(sum(sizes))} in {count}"
        size += f", {unknown} of unknown size" if unknown else ""
    duration = duration_of(refills)
    if duration is None:
        return f"refills {size}; how long that takes is unknown, since no run that fills such a cache was measured"
    by = f"by {_runs(duration.runs)}{' of the old plan' * any(refill.is_by_old for refill in refills)}"
    machines = dict.fromkeys(refill.machine for refill in refills)
    return f"refills {size} in {_duration(duration)}, {by} on {' and '.join(machines)}"


def summed(costs: Sequence[Cost]) -> list[str]:
    """Return the sums of costs, a sentence each; none where the only cost says it."""
    several = sum(bool(cost.refills) for cost in costs) > 1
    return [f"cost: {_filled(refilled(costs))}"] if several else []
