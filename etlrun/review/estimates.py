"""What a change of a plan costs, by what was measured of both plans, or of others with the same caches."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from etlrun.planning.plan import Plan, at_cache
from etlrun.review.caches import FIRST, REBUILT, Kept, cached_bytes, caches, size_of
from etlrun.review.cost import Cost, Estimate, Refill, duration_of
from etlrun.review.cost import size_of as size_of_all
from etlrun.review.measured_costs import Costs, Entry, held_key, plan_key


def held_on_disk(plans: Mapping[str, Plan]) -> dict[str, str]:
    """Return the keys of the caches on disk of plans, which their runs have filled, each with the name of a plan."""
    every = [(plan, of, name) for of, plan in plans.items() for name in plan.pipelines if "=" not in of]
    return {held_key(plan, name): of for plan, of, name in every if _is_on_disk(plan, name)}


def _is_on_disk(plan: Plan, name: str) -> bool:
    cache = at_cache(plan.pipelines[name])[1]
    return cache is not None and cache.outlives_run


def cost_of(old: Plan | None, new: Plan, costs: Costs, filled: Mapping[str, str]) -> Cost:
    """Return the cost of a change to a `new` plan, of an `old` one if there is one.

    `filled` are the keys of caches on disk that there are before the change, each with the experiment that has it.
    """
    sides = (costs.of(old), costs.of(new))
    machine = _machine(sides)
    before, after = (of.get(machine) for of in sides)
    states = {kept.pipeline: kept for kept in (() if old is None else caches(old, new))}
    on_disk = [name for name in new.pipelines if _is_on_disk(new, name) and _is_refilled(states.get(name), old)]
    shared = {name: of for name in on_disk if (of := filled.get(held_key(new, name))) is not None}
    refills = tuple(_refill(old, new, name, costs, machine) for name in on_disk if name not in shared)
    in_memory = [name for name in new.pipelines if at_cache(new.pipelines[name])[1] and not _is_on_disk(new, name)]
    memory = [bytes_of(new, name, costs) for name in in_memory]
    each_run = [_refill(None, new, name, costs, machine) for name in in_memory if old is None or name in states]
    return Cost(
        refill_bytes=size_of_all(refills),
        refill_s=duration_of(refills),
        refills=refills,
        shared=tuple(shared.items()),
        each_run_bytes=size_of_all(each_run),
        each_run_s=duration_of(each_run) if each_run else None,
        examples_per_s=(_rate(before), _rate(after)),
        speedup=_speedup(before, after),
        au=tuple(None if of is None else _estimate(of.au) for of in (before, after)),  # type: ignore[arg-type]
        memory_bytes=tuple(_peak(of) for of in (before, after)),  # type: ignore[arg-type]
        least_memory_bytes=sum(size for size in memory if size is not None) or None,
        disk_bytes=(_on_disk_bytes(old, costs), _on_disk_bytes(new, costs)),
        machine=machine,
        is_told=bool(costs.entries),
        is_added=old is None,
        is_as_fast=old is not None and plan_key(old, costs.given) == plan_key(new, costs.given),
    )


def _is_refilled(kept: Kept | None, old: Plan | None) -> bool:
    return old is None or (kept is not None and kept.state in {REBUILT, FIRST})


def _machine(sides: Sequence[Mapping[str, Entry]]) -> str:
    """Return the machine that has measured both plans, else one of them, and the most runs; empty without any."""
    found = sorted({machine for of in sides for machine in of})
    runs = {machine: [of[machine].runs for of in sides if machine in of] for machine in found}
    return max(found, key=lambda machine: (len(runs[machine]), sum(runs[machine])), default="")


def _refill(old: Plan | None, new: Plan, name: str, costs: Costs, preferred: str) -> Refill:
    size, count = bytes_of(new, name, costs), costs.examples(new, name)
    rates, is_by_old = costs.fill_s(new, name), False
    if not rates and old is not None:
        rates = costs.fill_s(old, name)
        is_by_old = bool(rates)
    machine = max(sorted(rates), key=lambda of: (of == preferred, len(rates[of])), default="")
    duration = None if count is None or not machine else _estimate([each_s * count for each_s in rates[machine]])
    return Refill(
        key=held_key(new, name),
        pipeline=name,
        size_bytes=size,
        duration_s=duration,
        is_by_old=is_by_old,
        machine=machine,
    )


def bytes_of(plan: Plan, name: str, costs: Costs) -> int | None:
    """Return the size of the cache of a pipeline: by its examples here, or by those that a run has read."""
    known = None if costs.given else size_of(plan, name)[0]
    count = costs.examples(plan, name)
    if known is not None or count is None:
        return known
    each = costs.held_bytes(plan, name)
    computed = cached_bytes(plan, name, count)
    return computed if computed is not None or each is None else round(each * count)


def _on_disk_bytes(plan: Plan | None, costs: Costs) -> int | None:
    if plan is None:
        return 0
    sizes = [bytes_of(plan, name, costs) for name in plan.pipelines if _is_on_disk(plan, name)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _estimate(values: Sequence[float]) -> Estimate | None:
    if not values:
        return None
    return Estimate(value=statistics.median(values), low=min(values), high=max(values), runs=len(values))


def _rate(entry: Entry | None) -> Estimate | None:
    return None if entry is None else _estimate(entry.examples_per_s)


def _peak(entry: Entry | None) -> int | None:
    return None if entry is None or not entry.memory_bytes else round(statistics.median(entry.memory_bytes))


def _speedup(before: Entry | None, after: Entry | None) -> Estimate | None:
    """Return the ratio of the throughputs; its ends are equal to it if one side has a single run."""
    if before is None or after is None:
        return None
    rates = before.examples_per_s, after.examples_per_s
    if not all(rates) or min(map(min, rates)) <= 0:
        return None
    if before.plan == after.plan:
        return None
    ratio, runs = statistics.median(rates[1]) / statistics.median(rates[0]), min(map(len, rates))
    if runs == 1:
        return Estimate(value=ratio, low=ratio, high=ratio, runs=1)
    from etlrun.measure.gains import interval_of_ratio  # imports NumPy, which most diffs do without

    low, high = interval_of_ratio(*rates)
    return Estimate(value=ratio, low=low, high=high, runs=runs)
