"""Verdict on a run: input-bound or model-bound, the possible gain, and the evidence."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from etlrun.measure.meter import Loop, StepKind
from etlrun.measure.stage_costs import StageCosts, Thread
from etlrun.record.summary import Apart, Kind, StageCost, Verdict
from etlrun.stages.cache import outlives_run
from etlrun.stages.dataset import Fetch
from etlrun.stages.load import FullShuffle, Prefetch, Service, Shuffle
from etlrun.system.values import frozen

TRAIN, VALIDATION, FIRST_EPOCH = "train", "validation", "first epoch"
"""Parts of a run by their names."""
LEAST = 1e-3
"""Smallest fraction of the total time that is left without a wait."""


@frozen
class MeasuredPipeline:
    """Measurements of one pipeline.

    Attributes:
        name: `train`, `first epoch` or `validation`.
        paths: Paths of its stages.
        loops: Times of its epochs.
        floors: Duration in seconds of a step of each kind on a batch that is ready, see `floors_of`; empty if unknown.
        handover_s: Wait for a batch that is ready, which no pipeline can avoid.
        example_bytes: Mean bytes of an example in the shards that are fetched; 0 if none are.
    """

    name: str
    paths: tuple[str, ...]
    loops: tuple[Loop, ...]
    floors: Mapping[StepKind, float]
    handover_s: float = 0.0
    example_bytes: float = 0.0

    @property
    def pipeline(self) -> str:
        """Its pipeline: `train` or `validation`."""
        return self.name if self.name == VALIDATION else TRAIN

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
    def gain(self) -> float:
        """Speedup without the avoidable input wait."""
        return self.measured_s / max(self.measured_s - self.avoidable_s, LEAST * self.measured_s, 1e-9)

    def of_epochs(self, first: int, end: int | None = None) -> MeasuredPipeline:
        """Return the measurements of these epochs alone."""
        return dataclasses.replace(self, loops=self.loops[first:end])

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
        """Duration of all steps if each batch were ready: the sum of their floors."""
        return sum(self.floors.get(kind, 0.0) for loop in self.loops for kind in loop.warm(loop.kinds))

    @property
    def floor_s(self) -> float | None:
        """Mean duration of a step on a batch that is ready; None if it could not be measured."""
        if not self.steps:
            return statistics.fmean(self.floors.values()) if self.floors else None
        return self.floors_s / self.steps or None

    @property
    def example_s(self) -> float:
        """Duration of a step on a batch that is ready, by example; 0 if it could not be measured."""
        return self.floors_s / max(1, sum(sum(loop.warm(loop.examples)) for loop in self.loops))

    @property
    def digests_s(self) -> float:
        """Wait for digests in all epochs."""
        return sum(loop.digest_s for loop in self.loops)

    @property
    def ceiling_gain(self) -> float:
        """Speedup if each step were as short as on a batch that is ready; at least 1."""
        overhead_s = sum(loop.overhead_s for loop in self.loops)
        return max(1.0, self.measured_s / (self.floors_s + self.handovers_s + overhead_s))


def floors_of(loops: Sequence[Loop], ready: Sequence[Loop]) -> dict[StepKind, float]:
    """Return the floor of each kind of steps in seconds: their duration on a batch that is ready.

    `loops` are those of the training, whose steps compete with the pipeline, and `ready` have steps on batches that are
    ready. The floor of a kind is the smaller median of the two. Kinds that are rare or too many are not in `ready`:
    theirs is the median in training, times the ratio of the floors to the medians of those that are, over all their
    steps. Without any in `ready`, it is the lower quartile in training.
    """
    training, timed = by_kind(loops), by_kind(ready)
    if not timed:
        return {kind: float(np.quantile(of, 0.25)) for kind, of in training.items()}
    medians = {kind: statistics.median(of) for kind, of in training.items()}
    floors = {kind: min(statistics.median(of), medians.get(kind, math.inf)) for kind, of in timed.items()}

    def all_s(each_s: Mapping[StepKind, float]) -> float:
        return sum(each_s[kind] * len(training[kind]) for kind in floors if kind in training)

    ratio = all_s(floors) / all_s(medians) if all_s(medians) else 1.0
    return {kind: ratio * median for kind, median in medians.items()} | floors


def by_kind(loops: Sequence[Loop]) -> dict[StepKind, list[float]]:
    """Return the durations of the steps of each kind, without those that may compile."""
    found: dict[StepKind, list[float]] = {}
    for loop in loops:
        for kind, step_s in zip(loop.warm(loop.kinds), loop.warm_steps_s, strict=True):
            found.setdefault(kind, []).append(step_s)
    return found


def utilisation(sides: Sequence[MeasuredPipeline]) -> float | None:
    """Return the accelerator utilization (AU), from 0 to 1: as MLPerf Storage defines it, step time over total.

    It is None where no step was measured, as in a run of one step, which compiles.
    """
    total_s = sum(side.measured_s for side in sides)
    if total_s <= 0 or not sides[0].floors or not any(side.steps for side in sides):
        return None
    return min(1.0, sum(side.floors_s for side in sides) / total_s)


WORTH_REPORTING = 0.05
"""Fraction of the total time; a smaller part is not reported."""
_MB = 1e6


def is_limit(loop: Loop) -> bool:
    """Return whether a pass waited for shards: on the way, or for most of the time to its first batch.

    The reader of shards waits only if those behind it want more: where another stage is the slowest, they are there.
    """
    on_the_way_s = loop.traffic.waited_s - loop.first_fetch_s
    if on_the_way_s > WORTH_REPORTING * loop.measured_s:
        return True
    return loop.fill_s > loop.input_wait_s and loop.first_fetch_s >= loop.fill_s / 2


def row(loop: Loop) -> StageCost:
    """Return the cost of the stage in a pass: what its reader waited."""
    examples = sum(loop.examples)
    return StageCost(stage=Fetch.path, examples=examples, cost_ms=1000 * loop.traffic.waited_s / max(1, examples))


def verdict_on_fetching(side: MeasuredPipeline, waited: str) -> Verdict:
    """Return the verdict on a pipeline whose passes wait for shards, of which steps `waited` so long."""
    loops = [loop for loop in side.loops if is_limit(loop)]
    arrive = arriving_per_s(loops)
    consumed = side.example_bytes / side.example_s if side.example_s and side.example_bytes else None
    if arrive is None or consumed is None or arrive >= consumed:
        first_s = sum(loop.first_fetch_s for loop in loops)
        because = f"{waited}; each pass first waits for shards, {first_s:.2f} s in all"
        return Verdict(kind="input", stage=Fetch.path, pipeline=side.pipeline, because=because)
    rates = f"shards arrive at {arrive / _MB:,.1f} MB/s, and the model consumes {consumed / _MB:,.1f} MB/s"
    return Verdict(
        kind="input",
        stage=Fetch.path,
        pipeline=side.pipeline,
        because=f"{waited}; {rates}",
        arriving_bytes_per_s=arrive,
        consumed_bytes_per_s=consumed,
    )


def arriving_per_s(loops: Sequence[Loop]) -> float | None:
    """Return the bytes per second that arrived while shards were fetched; None if none was."""
    busy_s, count = sum(loop.traffic.busy_s for loop in loops), sum(loop.traffic.bytes for loop in loops)
    return count / busy_s if busy_s > 0 and count else None


INPUT_GAIN = 1.10
"""A run is input-bound if it would be at least this many times faster without input wait."""
BALANCED_GAIN, HEADROOM = 1.05, 1.25
"""Otherwise it is balanced if the gain exceeds the first, or if the pipeline's headroom is below the second."""
UNEXPLAINED_GAIN = 1.25
"""Steps slower by this factor in the loop than on a ready batch, without input wait, are unexplained."""
FEWEST_STEPS = 8
_BLOCKS = 8
_SPARE = 0.9
"""A pipeline keeps up if its time per example is below this fraction of the step's."""
_MOST = 2
"""Stages that would have taken more than so many times the epoch were timed at the beginning of a pass alone."""
_BEGINNING = ""
"""What limits passes that take longer to begin than to read: no stage."""

StepCosts = Callable[[str, str], Mapping[str, float]]
"""Milliseconds per example of each step of the transform of `train` or `validation`."""


def judge(sides: Sequence[MeasuredPipeline], ceiling_per_s: float | None, step_costs: StepCosts, cores: int) -> Verdict:
    """Return the verdict on a run whose pipeline alone delivers `ceiling_per_s` training examples per second.

    It is about the training of the epochs that are to come: those after the first, if they have enough steps. What it
    leaves out is named apart.
    """
    step_costs, (train, *others) = cache(step_costs), sides
    later = train.of_epochs(1)
    if later.steps >= FEWEST_STEPS:
        train, others = later, [dataclasses.replace(train.of_epochs(0, 1), name=FIRST_EPOCH), *others]
    verdict = _of_training(train, ceiling_per_s, step_costs, cores, is_later=train is later)
    apart = (*_start_up(sides), *(_apart(side, step_costs, cores) for side in others if side.steps))
    return dataclasses.replace(verdict, apart=apart)


def _of_training(
    train: MeasuredPipeline, ceiling_per_s: float | None, step_costs: StepCosts, cores: int, *, is_later: bool
) -> Verdict:
    """Return the verdict on training in the epochs of `train`, which are all after the first, or all there are."""
    if train.steps < FEWEST_STEPS or train.floor_s is None:
        steps = "1 training step was" if train.steps == 1 else f"{train.steps} training steps were"
        why = f"only {steps} measured; a verdict needs at least {FEWEST_STEPS}"
        return _unknown(why, "with more steps")
    if why := _held_up(train):
        return _unknown(why, "with measure.digest=false")
    after = " after the first epoch" * is_later
    text = f"{_seconds(train.waits_s)} of {_seconds(train.measured_s)} were spent waiting for data{after}"
    if train.handovers_s > WORTH_REPORTING * train.measured_s:
        text += f", {_seconds(train.handovers_s)} of it for handing over batches that were ready"
    total_s, waited = train.measured_s, text
    error_s = math.hypot(*(_error_s(loop.waits_s) for loop in train.loops))
    low, high = (
        total_s / max(total_s - max(train.avoidable_s + error, 0.0), total_s / 100) for error in (-error_s, error_s)
    )
    is_fetched = any(map(is_limit, train.loops))  # for which a single long wait is no accident
    if low < INPUT_GAIN < high and high / low > HEADROOM and not is_fetched:
        why = f"{waited}, but the waits vary so much that the gain may be anything from {low:.2f} to {high:.2f}"
        return _unknown(why, "on an idle machine, or for more epochs")
    if train.gain >= INPUT_GAIN:
        return _bound_by_input(train, waited, step_costs, cores)
    if train.ceiling_gain >= UNEXPLAINED_GAIN:
        return _unexplained(train, waited)
    demand_per_s = 1 / max(train.example_s, 1e-9)
    rates = f"the model consumes {demand_per_s:,.0f} examples/s"
    if ceiling_per_s is not None:
        rates = f"the pipeline alone delivers {ceiling_per_s:,.0f} examples/s, {rates}"
    is_tight = ceiling_per_s is not None and ceiling_per_s < HEADROOM * demand_per_s
    kind: Kind = "balanced" if train.gain >= BALANCED_GAIN or is_tight else "model"
    return _gaining(train, Verdict(kind=kind, because=f"{waited}; {rates}"))


def _gaining(side: MeasuredPipeline, verdict: Verdict) -> Verdict:
    """Return the verdict on a pipeline with what it would gain."""
    return dataclasses.replace(verdict, max_gain=side.gain, train_max_gain=max(side.gain, side.ceiling_gain))


def _start_up(sides: Sequence[MeasuredPipeline]) -> Iterator[Apart]:
    """Yield what the start-up takes of the run: tracing, compiling and building graphs, which happen once."""
    total_s = sum(loop.wall_s for side in sides for loop in side.loops)
    lost_s = min(total_s, sum(loop.startup_s for side in sides for loop in side.loops))
    if lost_s:
        gain = total_s / max(total_s - lost_s, LEAST * total_s)
        yield Apart(name="start-up", lost_s=lost_s, total_s=total_s, max_gain=gain)


def _apart(side: MeasuredPipeline, step_costs: StepCosts, cores: int) -> Apart:
    """Return what waiting takes of a part that the verdict leaves out, and the stage that limits it."""
    is_bound = side.gain >= INPUT_GAIN and not _held_up(side)
    stage = _bound_by_input(side, "", step_costs, cores).stage if is_bound else None
    return Apart(name=side.name, lost_s=side.waits_s, total_s=side.measured_s, max_gain=side.gain, stage=stage)


def _unknown(why: str, again: str) -> Verdict:
    return Verdict(kind="unknown", because=f"inconclusive: {why}", advice=f"Run again {again}.")


def judge_alone(side: MeasuredPipeline, rate_per_s: float | None, step_ms: float = 0.0) -> Verdict:
    """Return the verdict on a drained pipeline: the stage that limits its throughput; without a model, no gain.

    `rate_per_s` is that of the pipeline with a step of `step_ms` for each batch.
    """
    if why := _held_up(side):
        return _unknown(why, "with measure.digest=false")
    paces: dict[str, float] = {}
    for loop in side.loops:
        is_fetched = is_limit(loop)
        if is_fetched or (loop.costs is not None and loop.costs.periods.slowest.shares):
            stage = Fetch.path if is_fetched else _heaviest(loop.costs.periods.slowest)  # type: ignore[union-attr]
            paces[stage] = paces.get(stage, 0.0) + loop.measured_s
    if Service.path in side.paths and rate_per_s is not None:
        paces = paces or {Service.path: side.measured_s}
    if not paces or rate_per_s is None:
        return _unknown("the passes were too short to profile", "with more examples")
    stage = max(paces, key=lambda name: paces[name])
    with_what = f"with steps of {step_ms:g} ms" if step_ms else "alone"
    because = f"the pipeline {with_what} delivers {rate_per_s:,.0f} examples/s, limited by {stage}"
    if stage == Fetch.path and (arriving := arriving_per_s(side.loops)) is not None:
        because += f": shards arrive at {arriving / 1e6:,.1f} MB/s"
    return Verdict(kind="input", stage=stage, pipeline=side.pipeline, because=because)


def _held_up(side: MeasuredPipeline) -> str:
    """Return how long steps waited for digests, if it is enough to hide the input wait; else an empty string."""
    held_s, total_s = side.digests_s, side.measured_s
    text = f"{_seconds(held_s)} of {_seconds(total_s)} were spent waiting for digests, while the pipeline continued"
    return text if held_s > WORTH_REPORTING * total_s else ""


def _unexplained(side: MeasuredPipeline, waited: str) -> Verdict:
    steps_s = sum(step for loop in side.loops for step in loop.warm_steps_s)
    return _unknown(
        f"{waited}, but the steps took {_seconds(steps_s)}, instead of {_seconds(side.floors_s)} on batches that are "
        "ready: either the pipeline competes with the model for cores, or the machine was busy with other work",
        "on an idle machine: if the verdict is the same, the pipeline takes the cores",
    )


def _error_s(waits_s: Sequence[float]) -> float:
    """Return two standard errors of the sum of waits, estimated from sums over blocks of consecutive waits."""
    if len(waits_s) < 2:  # noqa: PLR2004 - one value has no spread
        return sum(waits_s)
    blocks = [float(block.sum()) for block in np.array_split(np.asarray(waits_s), min(_BLOCKS, len(waits_s)))]
    return 2 * statistics.stdev(blocks) * math.sqrt(len(blocks))


def _bound_by_input(side: MeasuredPipeline, waited: str, step_costs: StepCosts, cores: int) -> Verdict:
    """Return the verdict on a pipeline whose steps wait for it: the stage that limits it, and why."""
    weights: dict[str, float] = {}
    evidence: dict[str, tuple[Loop, StageCosts]] = {}
    for loop in side.loops:
        costs, waits_s = loop.costs, loop.fill_s + loop.input_wait_s
        if is_limit(loop):
            weights[Fetch.path] = weights.get(Fetch.path, 0.0) + waits_s
            continue
        if costs is None or not costs.periods.slowest.shares:
            continue
        stage = _stage(side, loop, costs)
        if stage not in evidence or waits_s > evidence[stage][0].fill_s + evidence[stage][0].input_wait_s:
            evidence[stage] = loop, costs
        weights[stage] = weights.get(stage, 0.0) + waits_s
    if weights:
        stage = max(weights, key=lambda candidate: weights[candidate])
        if stage == Fetch.path:
            return _gaining(side, verdict_on_fetching(side, waited))
        if stage == _BEGINNING:
            return _begins(side, waited)
        named, why = _why(stage, side, *evidence[stage], step_costs, cores)
    elif Service.path in side.paths:
        named = Service.path
        why = f"{named} delivers batches more slowly than the steps take them; its stages are not known here"
    elif sum(loop.fill_s - loop.input_wait_s for loop in side.loops) > 0:
        return _begins(side, waited)
    else:
        return _unknown(f"{waited}, but the passes were too short to profile", "with more examples")
    return _gaining(side, Verdict(kind="input", stage=named, pipeline=side.pipeline, because=f"{waited}; {why}"))


def _begins(side: MeasuredPipeline, waited: str) -> Verdict:
    """Return the verdict on passes whose first batches take most of the wait."""
    count, steps = len(side.loops), round(side.steps / len(side.loops))
    begin_ms, steps_ms = (1000 * value / count for value in (sum(loop.fill_s for loop in side.loops), side.floors_s))
    why = f"the first batch of each pass takes {begin_ms:,.1f} ms, and its {steps} steps {steps_ms:,.1f} ms"
    examples = steps * max(count for loop in side.loops for count in loop.examples)
    then = f"an epoch then has up to {examples:,} examples, and begins while the one before it is trained on"
    advice = f"Try trainer.steps_per_epoch={steps}: {then}."
    return _gaining(side, Verdict(kind="input", pipeline=side.pipeline, because=f"{waited}; {why}", advice=advice))


def _stage(side: MeasuredPipeline, loop: Loop, costs: StageCosts) -> str:
    """Return the stage whose removal would save most of an epoch."""
    step_ms, slowest = 1000 * side.example_s, costs.periods.slowest
    is_over = slowest.period_ms * sum(loop.examples) > _MOST * 1000 * loop.wall_s
    if loop.fill_s > loop.input_wait_s and (is_over or slowest.period_ms < _SPARE * step_ms):
        if costs.reads_disk:
            return next(filter(outlives_run, side.paths))
        return Shuffle.path if Shuffle.path in side.paths else _BEGINNING
    if Prefetch.path not in side.paths and slowest.period_ms <= step_ms:
        return Prefetch.path  # steps and batches alternate, though each is fast enough
    return _heaviest(slowest)


def _heaviest(thread: Thread) -> str:
    return max(thread.shares, key=lambda stage: thread.shares[stage])


def _why(
    stage: str, side: MeasuredPipeline, loop: Loop, costs: StageCosts, step_costs: StepCosts, cores: int
) -> tuple[str, str]:
    """Return the path of the stage, or of its step, and the evidence for it."""
    step_ms = 1000 * side.example_s
    budget = f"a step takes {step_ms:.3g} ms per example"
    if stage == Prefetch.path and stage not in side.paths:
        cost = f"the {costs.periods.slowest.period_ms:.3g} ms per example of the pipeline are added to each step"
        return stage, f"nothing is prefetched, so {cost}; {budget}"
    took = f"which took {_seconds(loop.fill_s)} of {_seconds(loop.measured_s)}"
    if stage == Shuffle.path:
        return stage, f"each pass first fills the shuffle buffer, {took}"
    if outlives_run(stage) and loop.fill_s > loop.input_wait_s:
        by = "a full shuffle" if FullShuffle.path in side.paths else Service.path if Service.path in side.paths else ""
        whole = f", which {by} needs whole," if by else ""
        return stage, f"each pass first opens the cache{whole} and reads a batch, {took}"
    row = next((row for row in costs.rows if row.stage == stage), StageCost(stage=stage, examples=0, cost_ms=0.0))
    threads = "one thread" if (row.parallelism or 1) == 1 else f"{row.parallelism} threads"
    cost = f"{stage} takes {row.cost_ms:.3g} ms per example with {threads}; {budget}"
    if not stage.startswith("transform.") or (row.parallelism or 1) < cores:
        return stage, cost
    steps = step_costs(side.pipeline, stage)
    step = max(steps, key=lambda name: steps[name], default=stage)
    if not any(steps.values()) or steps[step] < sum(steps.values()) / 2:  # all are 0 where noise exceeds them
        return stage, cost
    return step, f"{cost}; {step} is {steps[step] / sum(steps.values()):.0%} of it"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if round(value, 2) >= 10 else f"{value:.2f} s"  # noqa: PLR2004 - three significant digits
