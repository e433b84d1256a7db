"""Verdict on a run: input-bound or model-bound, the possible gain, and the evidence."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from etlrun.measure.meter import Loop
from etlrun.measure.stage_costs import StageCosts, Thread
from etlrun.record.findings import Kind, StageCost, Verdict
from etlrun.stages.cache import DiskCache
from etlrun.stages.load import FullShuffle, Prefetch, Shuffle
from etlrun.stages.service import Service

INPUT_GAIN = 1.10
"""A run is input-bound if it would be at least this many times faster without input wait."""
BALANCED_GAIN, HEADROOM = 1.05, 1.25
"""Otherwise it is balanced if the gain exceeds the first, or if the pipeline's headroom is below the second."""
UNEXPLAINED_GAIN = 1.25
"""Steps slower by this factor in the loop than on a ready batch, without input wait, are unexplained."""
FEWEST_STEPS = 8
WORTH_REPORTING = 0.05
"""Fraction of the total time; a smaller part is not reported."""
_BLOCKS = 8
_SPARE = 0.9
"""A pipeline keeps up if its time per example is below this fraction of the step's."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """Measurements of one pipeline.

    Attributes:
        name: `train` or `validation`.
        paths: Paths of its stages.
        batch_size: Examples per batch.
        loops: Times of its epochs.
        costs: Stage costs of each epoch; None for an epoch that was not sampled.
        floor_s: Duration of a step on a batch that is ready; None if it could not be measured.
        handover_s: Wait for a batch that is ready, which no pipeline can avoid.
    """

    name: str
    paths: tuple[str, ...]
    batch_size: int
    loops: tuple[Loop, ...]
    costs: tuple[StageCosts | None, ...]
    floor_s: float | None
    handover_s: float = 0.0

    @property
    def measured_s(self) -> float:
        """Duration of all epochs, without the steps that may compile."""
        return sum(loop.measured_s for loop in self.loops)

    @property
    def waits_s(self) -> float:
        """Input wait of all epochs, including the wait for the first batch of each pass."""
        return sum(loop.fill_s + loop.input_wait_s for loop in self.loops)

    @property
    def avoidable_s(self) -> float:
        """Input wait that a faster pipeline would avoid."""
        return max(0.0, self.waits_s - self.handovers_s)

    @property
    def handovers_s(self) -> float:
        """Time that all steps take to receive batches that are ready."""
        return self.steps * self.handover_s

    @property
    def steps(self) -> int:
        """Number of steps that don't compile."""
        return sum(len(loop.warm_steps_s) for loop in self.loops)

    @property
    def floors_s(self) -> float:
        """Duration of all steps if each batch were ready."""
        return self.steps * (self.floor_s or 0.0)

    @property
    def digests_s(self) -> float:
        """Wait for digests in all epochs."""
        return sum(loop.digest_s for loop in self.loops)

    @property
    def overhead_s(self) -> float:
        """Overhead of all epochs, which no pipeline changes."""
        return sum(loop.overhead_s for loop in self.loops)


StepCosts = Callable[[str, str], Mapping[str, float]]
"""Milliseconds per example of each step of the transform of `train` or `validation`."""


def utilisation(sides: Sequence[Side]) -> float | None:
    """Return the accelerator utilization (AU) as MLPerf Storage defines it: step time over total time, in [0, 1]."""
    total_s = sum(side.measured_s for side in sides)
    if total_s <= 0 or sides[0].floor_s is None:
        return None
    return min(1.0, sum(side.floors_s for side in sides) / total_s)


def judge(sides: Sequence[Side], ceiling_per_s: float | None, step_costs: StepCosts, cores: int) -> Verdict:
    """Return the verdict on a run whose pipeline alone delivers `ceiling_per_s` training examples per second."""
    steps, total_s = sum(side.steps for side in sides), sum(side.measured_s for side in sides)
    if steps < FEWEST_STEPS or sides[0].floor_s is None:
        why = f"only {steps} steps were measured; a verdict needs at least {FEWEST_STEPS}"
        return _unknown(why, "with more steps")
    if why := _held_up(sides):
        return _unknown(why, "with measure.digest=false")
    avoidable_s = sum(side.avoidable_s for side in sides)
    gain, warm = _gain(sides), dataclasses.replace(sides[0], loops=sides[0].loops[1:] or sides[0].loops)
    train_gain = _gain([warm]) if warm.steps >= FEWEST_STEPS else None
    without_waits = total_s / (total_s - avoidable_s)
    error_s = math.hypot(*(_error_s(loop.waits_s) for side in sides for loop in side.loops))
    low, high = (total_s / max(total_s - max(avoidable_s + error, 0.0), total_s / 100) for error in (-error_s, error_s))
    waited = _waited(sides, total_s)
    if low < INPUT_GAIN < high and high / low > HEADROOM:
        why = f"{waited}, but the waits vary so much that the gain may be anything from {low:.2f} to {high:.2f}"
        return _unknown(why, "on an idle machine, or for more epochs")
    if without_waits >= INPUT_GAIN:
        return _bound_by_input(sides, (gain, train_gain), waited, step_costs, cores)
    if gain >= UNEXPLAINED_GAIN:
        return _unexplained(sides, waited)
    demand_per_s = sides[0].batch_size / (sides[0].floor_s or 1e-9)
    rates = f"the model consumes {demand_per_s:,.0f} examples/s"
    if ceiling_per_s is not None:
        rates = f"the pipeline alone delivers {ceiling_per_s:,.0f} examples/s, {rates}"
    is_tight = ceiling_per_s is not None and ceiling_per_s < HEADROOM * demand_per_s
    kind: Kind = "balanced" if without_waits >= BALANCED_GAIN or is_tight else "model"
    return Verdict(kind=kind, max_gain=gain, train_max_gain=train_gain, because=f"{waited}; {rates}")


def _unknown(why: str, again: str) -> Verdict:
    return Verdict(kind="unknown", because=f"inconclusive: {why}", advice=f"Run again {again}.")


def _gain(sides: Sequence[Side]) -> float:
    """Return the speedup of these sides with ideal pipelines; at least 1."""
    needed_s = sum(side.floors_s + side.handovers_s + side.overhead_s for side in sides)
    return max(1.0, sum(side.measured_s for side in sides) / needed_s)


def _waited(sides: Sequence[Side], total_s: float) -> str:
    handovers_s = sum(side.handovers_s for side in sides)
    text = f"{_seconds(sum(side.waits_s for side in sides))} of {_seconds(total_s)} were spent waiting for data"
    if handovers_s > WORTH_REPORTING * total_s:
        text += f", {_seconds(handovers_s)} of it for handing over batches that were ready"
    return text


def judge_alone(side: Side, rate_per_s: float | None, step_ms: float = 0.0) -> Verdict:
    """Return the verdict on a drained pipeline: the stage that limits its throughput; without a model, no gain.

    `rate_per_s` is that of the pipeline with a step of `step_ms` for each batch.
    """
    if why := _held_up([side]):
        return _unknown(why, "with measure.digest=false")
    paces: dict[str, float] = {}
    for loop, costs in zip(side.loops, side.costs, strict=True):
        if costs is not None and costs.periods.slowest.shares:
            stage = _heaviest(costs.periods.slowest)
            paces[stage] = paces.get(stage, 0.0) + loop.measured_s
    if Service.path in side.paths and rate_per_s is not None:
        paces = paces or {Service.path: side.measured_s}
    if not paces or rate_per_s is None:
        return _unknown("the passes were too short to profile", "with more examples")
    stage = max(paces, key=lambda name: paces[name])
    with_what = f"with steps of {step_ms:g} ms" if step_ms else "alone"
    because = f"the pipeline {with_what} delivers {rate_per_s:,.0f} examples/s, limited by {stage}"
    return Verdict(kind="input", stage=stage, pipeline=side.name, because=because)


def _held_up(sides: Sequence[Side]) -> str:
    """Return how long steps waited for digests, if it is enough to hide the input wait; else an empty string."""
    held_s, total_s = sum(side.digests_s for side in sides), sum(side.measured_s for side in sides)
    text = f"{_seconds(held_s)} of {_seconds(total_s)} were spent waiting for digests, while the pipeline continued"
    return text if held_s > WORTH_REPORTING * total_s else ""


def _unexplained(sides: Sequence[Side], waited: str) -> Verdict:
    steps_s = sum(step for side in sides for loop in side.loops for step in loop.warm_steps_s)
    floors = _seconds(sum(side.floors_s for side in sides))
    return _unknown(
        f"{waited}, but the steps took {_seconds(steps_s)}, instead of {floors} on batches that are ready: either the "
        "pipeline competes with the model for cores, or the machine was busy with other work",
        "on an idle machine: if the verdict is the same, the pipeline takes the cores",
    )


def _error_s(waits_s: Sequence[float]) -> float:
    """Return two standard errors of the sum of waits, estimated from sums over blocks of consecutive waits."""
    if len(waits_s) < 2:  # noqa: PLR2004 - one value has no spread
        return sum(waits_s)
    blocks = [float(block.sum()) for block in np.array_split(np.asarray(waits_s), min(_BLOCKS, len(waits_s)))]
    return 2 * statistics.stdev(blocks) * math.sqrt(len(blocks))


def _bound_by_input(
    sides: Sequence[Side], gains: tuple[float, float | None], waited: str, step_costs: StepCosts, cores: int
) -> Verdict:
    weights: dict[tuple[str, str], float] = {}
    evidence: dict[tuple[str, str], tuple[Loop, StageCosts]] = {}
    for side in sides:
        for loop, costs in zip(side.loops, side.costs, strict=True):
            if costs is None or not costs.periods.slowest.shares:
                continue
            key = side.name, _stage(side, loop, costs)
            waits_s = loop.fill_s + loop.input_wait_s
            if key not in evidence or waits_s > evidence[key][0].fill_s + evidence[key][0].input_wait_s:
                evidence[key] = loop, costs
            weights[key] = weights.get(key, 0.0) + waits_s
    if not weights and Service.path in sides[0].paths:
        side = max(sides, key=lambda side: side.waits_s)
        why = f"{Service.path} delivers batches more slowly than the steps take them; its stages are not known here"
        return Verdict(
            kind="input",
            stage=Service.path,
            pipeline=side.name,
            max_gain=gains[0],
            train_max_gain=gains[1],
            because=f"{waited}; {why}",
        )
    if not weights:
        return _unknown(f"{waited}, but the passes were too short to profile", "with more examples")
    pipeline, stage = key = max(weights, key=lambda candidate: weights[candidate])
    side = next(side for side in sides if side.name == pipeline)
    named, why = _why(stage, side, *evidence[key], step_costs, cores)
    others = f" ({_seconds(weights[key])} of it in {pipeline})" if len(sides) > 1 else ""
    because = f"{waited}{others}; {why}{_cold(side)}"
    return Verdict(
        kind="input", stage=named, pipeline=pipeline, max_gain=gains[0], train_max_gain=gains[1], because=because
    )


def _stage(side: Side, loop: Loop, costs: StageCosts) -> str:
    """Return the stage whose removal would save most of an epoch."""
    step_ms = 1000 * (side.floor_s or 0.0) / side.batch_size
    keeps_up = costs.periods.slowest.period_ms < _SPARE * step_ms
    if loop.fill_s > loop.input_wait_s and keeps_up and (costs.reads_disk or Shuffle.path in side.paths):
        return DiskCache.path if costs.reads_disk else Shuffle.path
    slowest = costs.periods.slowest
    if Prefetch.path not in side.paths and slowest.period_ms <= step_ms:
        return Prefetch.path  # steps and batches alternate, though each is fast enough
    return _heaviest(slowest)


def _heaviest(thread: Thread) -> str:
    return max(thread.shares, key=lambda stage: thread.shares[stage])


def _why(stage: str, side: Side, loop: Loop, costs: StageCosts, step_costs: StepCosts, cores: int) -> tuple[str, str]:
    """Return the path of the stage, or of its step, and the evidence for it."""
    step_ms = 1000 * (side.floor_s or 0.0) / side.batch_size
    budget = f"a step takes {step_ms:.3g} ms per example"
    if stage == Prefetch.path:
        cost = f"the {costs.periods.slowest.period_ms:.3g} ms per example of the pipeline are added to each step"
        return stage, f"nothing is prefetched, so {cost}; {budget}"
    took = f"which took {_seconds(loop.fill_s)} of {_seconds(loop.measured_s)}"
    if stage == Shuffle.path:
        return stage, f"each pass first fills the shuffle buffer, {took}"
    if stage == DiskCache.path and loop.fill_s > loop.input_wait_s:
        by = "a full shuffle" if FullShuffle.path in side.paths else Service.path if Service.path in side.paths else ""
        whole = f", which {by} needs whole," if by else ""
        return stage, f"each pass first opens the cache{whole} and reads a batch, {took}"
    row = next((row for row in costs.rows if row.stage == stage), StageCost(stage=stage, examples=0, cost_ms=0.0))
    threads = "one thread" if (row.parallelism or 1) == 1 else f"{row.parallelism} threads"
    threads += " of each worker" if Service.path in side.paths and stage != Service.path else ""
    cost = f"{stage} takes {row.cost_ms:.3g} ms per example with {threads}; {budget}"
    if not stage.startswith("transform.") or (row.parallelism or 1) < cores:
        return stage, cost
    steps = step_costs(side.name, stage)
    step = max(steps, key=lambda name: steps[name], default=stage)
    if not any(steps.values()) or steps[step] < sum(steps.values()) / 2:  # all are 0 where noise exceeds them
        return stage, cost
    return step, f"{cost}; {step} is {steps[step] / sum(steps.values()):.0%} of it"


def _cold(side: Side) -> str:
    """Return a note if most of the input wait was in the first epoch; else an empty string."""
    if len(side.loops) < 2:  # noqa: PLR2004 - no later epoch to compare to
        return ""
    first, *later = (loop.fill_s + loop.input_wait_s for loop in side.loops)
    if first < 2 * max(later) or first < sum(later):
        return ""
    return f"; {_seconds(first)} of the wait was in the first epoch, {_seconds(sum(later))} in all later ones"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if round(value, 2) >= 10 else f"{value:.2f} s"  # noqa: PLR2004 - three significant digits
