"""Verdict on a run: input-bound or model-bound, the possible gain, the evidence, and overrides to try."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import takewhile
from typing import Any, cast

import numpy as np

from etlrun.cache.store import folder_of
from etlrun.measure.meter import Loop, StepKind, StepTimes
from etlrun.planning.plan import Plan, kinds_in, name_of_point, stage_of
from etlrun.planning.planner import NO_CACHE
from etlrun.planning.spec import RunSpec
from etlrun.record.summary import Apart, Kind, StageCost, Verdict
from etlrun.stages.base import ORDER, SPEED, parameters
from etlrun.stages.cache import MEMORY_SHARE, DiskCache, outlives_run
from etlrun.stages.dataset import Declared, Fetch
from etlrun.stages.extract import Interleave
from etlrun.stages.image import Decode, Turbo
from etlrun.stages.load import FullShuffle, Prefetch, Service, Shuffle
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone
from etlrun.stages.rows import Rows
from etlrun.stages.step import Map
from etlrun.system.errors import counted
from etlrun.system.machine import CORES, calls_here, free_memory_bytes, megabytes
from etlrun.system.values import frozen

_FEW_BUSY, _IDLE = 0.7, 0.3
"""Shares of the cores: of those in use below, and of idle ones above which threads are taken to wait for each other."""
_MOST_FILES = 16
"""Upper bound on the files to read concurrently; of the order of tf.data's default for autotuned cycles."""
_FIRST_EPOCH = "first epoch"
_LEAST = 1e-3
"""Smallest fraction of the total time that is left without a wait."""
_WORTH_REPORTING = 0.05
"""Fraction of the total time; a smaller part is not reported."""


@frozen
class Fewer:
    """Fewer parallel calls with which the pipeline alone is at least as fast.

    Attributes:
        key: Dotted key of the calls.
        calls: Their number.
        than: Number that the run had.
        ratio: Throughput with fewer calls over that of the run.
    """

    key: str
    calls: int
    than: int
    ratio: float


def advice(stage: str | None, plan: Plan, rows: Sequence[StageCost], conditions: Mapping[str, Any]) -> str | None:
    """Return one sentence with overrides to try, or one that no override helps; None if the run is not input-bound.

    `conditions` holds `cores`, `shards` of the split, `cached_bytes` (the size of a cache) and `epochs`; of shards
    that are fetched `fetched_bytes`; and where they were measured `cores_used` by the run and `cores_idle`, and `fewer`
    calls that are as fast.
    """
    if stage is None:
        return None
    last = f"No override helps: {stage} needs less work, faster storage, or more cores."
    if plan.spec.load.service is not None and stage != Prefetch.path:
        return "Start a dispatcher with a worker on another machine, and add it to load.service.address."
    if stage == Fetch.path:
        return _fetch(plan, conditions)
    own = _extract(plan, conditions) if stage.startswith("extract.") else _own(stage, plan, rows, conditions)
    fewer: Fewer | None = conditions.get("fewer")
    library = _library(stage, plan, conditions)
    if fewer and fewer.ratio >= _INPUT_GAIN and not library:
        times = f"{fewer.ratio:.1f} times as fast as with {fewer.than}"
        return f"Try {fewer.key}={fewer.calls}: the pipeline alone is then {times} calls, which wait for each other."
    if fewer and own and fewer.key in own:  # more of them
        own = None
    found = own or library or _cache(plan, conditions) or last
    return f"{found} {fewer.key}={fewer.calls} is as fast as {fewer.than}." if fewer else found


_TRIED = re.compile(r"ry ((?:[\w+.]+=(?:'[^']*'|[^\s:,']+)[ ]?)+)")


def overrides_in(text: str | None) -> tuple[str, ...]:
    """Return the overrides that advice names first."""
    found = _TRIED.search(text or "")
    return tuple(shlex.split(found[1])) if found else ()


def told(text: str | None, spec: RunSpec) -> str | None:
    """Return advice whose first sentence ends with what its overrides change in a run beside the speed."""
    stages = [spec.trainer, spec.load, spec.extract]
    kinds_of = {stage.key(of.name): kinds_in(spec, stage, of) for stage in stages for of in parameters(stage)}
    kinds_of["extract"] = kinds_of["extract.cycle_length"] = (ORDER,)
    keys = re.findall(r"[\w.]+(?==)", text or "")
    kinds = dict.fromkeys(kind for key in keys for kind in kinds_of.get(key, ()) if kind != SPEED)
    return re.sub(r"\.(?= |$)", f" (changes the {next(iter(kinds))}).", text, count=1) if text and kinds else text


def _fetch(plan: Plan, conditions: Mapping[str, Any]) -> str:
    """Return advice on shards that arrive too slowly."""
    dataset, at_once = cast("Declared", plan.spec.dataset), cast("Fetch", stage_of(plan.train, Fetch)).at_once
    shards, fetched, folder = conditions["shards"], conditions["fetched_bytes"], folder_of(dataset.copies)
    if dataset.keep != "all" and conditions["epochs"] > 1:
        if DiskCache.space(folder).takes(fetched):
            return f"Try dataset.keep=all: later epochs then read {megabytes(fetched)} from {folder}, where they fit."
        if cached := _cache(plan, conditions):
            return cached
    later = "; later epochs and runs read the copies" if dataset.keep == "all" else ""
    if shards < 2 * at_once:
        return f"No override helps: {Fetch.path} needs a nearer or faster store{later}."
    more = f"dataset.storage='{{at_once: {2 * at_once}}}'"
    if dataset.storage:
        more = f"{'+' * ('at_once' not in dataset.storage)}dataset.storage.at_once={2 * at_once}"
    return f"Try {more}: {at_once} of {shards} shards were fetched at once{later}."


def _own(stage: str, plan: Plan, rows: Sequence[StageCost], conditions: Mapping[str, Any]) -> str | None:
    """Return advice on the parameters of the stage itself."""
    parallelism, load, cores = {row.stage: row.parallelism or 1 for row in rows}, plan.spec.load, conditions["cores"]
    if stage == Prefetch.path and not load.prefetch:
        return "Try load.prefetch=autotune: batches are then prepared while the model runs."
    is_map = stage.startswith("transform.") or stage == Mix.path
    if is_map and parallelism.get(stage, parallelism.get(Map.path, 1)) < cores:
        return f"Try transform.num_parallel_calls={cores}: the transform does not use all cores."
    if stage == Backbone.path and not plan.spec.cache.outlives_run:
        return "Try cache=disk: later runs on the same data then read the features."
    if outlives_run(stage) and _fits_memory(plan, conditions):
        return f"Try cache=memory: the examples take {megabytes(conditions['cached_bytes'])}, which fits in memory."
    if stage == Shuffle.path and (smaller := max(load.batch_size, load.shuffle_buffer // 8)) < load.shuffle_buffer:
        return f"Try load.shuffle_buffer={smaller}: a smaller buffer fills faster."
    return None


def _library(stage: str, plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """Return advice on native decoding that keeps few cores busy, though it has as many threads."""
    cores, used, idle = conditions["cores"], conditions.get("cores_used", math.inf), conditions.get("cores_idle", 0.0)
    native = next((step for step in plan.spec.transform.steps if isinstance(step, Decode) and step.uses_turbo), None)
    if not native or stage not in (Turbo.path, Decode.path) or used >= _FEW_BUSY * cores or idle <= _IDLE * cores:
        return None
    change = "library=tensorflow, which changes pixels by up to 1 of 255"
    if not native.processes and sys.platform == "linux":
        change = "processes=cores, which gives the same pixels without Python's lock"
    return f"Try transform.decode.{change}: {used:.1f} of {cores} cores are busy."


def _extract(plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """Return advice to read more files concurrently, if there are more."""
    extract, shards, cores = stage_of(plan.train, Interleave), conditions["shards"], conditions["cores"]
    files = min(shards, _MOST_FILES)
    why = f"{files} files are then read concurrently."
    if files == 1 or plan.spec.extract.decode or plan.spec.load.is_by_number:  # which reads concurrently, too
        return None
    if extract is None:
        return f"Try extract=interleave extract.cycle_length={files}: {why}"
    calls, at_once = extract.num_parallel_calls, extract.at_once(shards)
    calls = calls_here(str(calls), cores) if calls in CORES else calls
    if at_once < files or calls is None or (isinstance(calls, int) and calls < files):
        cycle_length = extract.cycle_length if at_once >= files else files
        return f"Try extract.cycle_length={cycle_length} extract.num_parallel_calls={files}: {why}"
    return None


def _cache(plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """Return advice to add a cache, if there is none and later epochs would read it."""
    cache, steps = plan.spec.cache, plan.spec.transform.steps
    if cache.keeps or cache is NO_CACHE or conditions["epochs"] == 1 or isinstance(plan.spec.dataset, Rows):
        return None  # phases behind those of cached features have none; the columns of rows are kept already
    if plan.train[-1].gives.sequences:  # which no cache holds
        return None
    if any(step.random for step in steps):
        fixed = [*takewhile(lambda step: not step.random, steps)]
        return f"Try cache=disk cache.at={name_of_point(fixed)}: later epochs then skip the steps up to it."
    target = "memory" if _fits_memory(plan, conditions) else "disk"
    return f"Try cache={target}: later epochs then read {megabytes(conditions['cached_bytes'])} from it."


def _fits_memory(plan: Plan, conditions: Mapping[str, Any]) -> bool:
    """Return whether memory can hold the cache; it can't be read by number there."""
    return not plan.spec.load.is_by_number and bool(conditions["cached_bytes"] < MEMORY_SHARE * free_memory_bytes())


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
        return "train" if self.name == _FIRST_EPOCH else self.name

    @property
    def served_by(self) -> str:
        """Its stage whose batches other processes make, of whose stages nothing is known here; empty without one."""
        return Service.path if Service.path in self.paths else ""

    @cached_property
    def steps(self) -> list[StepTimes]:
        """Steps of all epochs that don't compile."""
        return [step for loop in self.loops for step in loop.warm]

    @property
    def measured_s(self) -> float:
        """Duration of all epochs, without the steps that may compile."""
        return sum(loop.measured_s for loop in self.loops)

    @property
    def waits_s(self) -> float:
        """Input wait of all epochs, including the wait for the first batch of each pass."""
        return sum(loop.waited_s for loop in self.loops)

    @property
    def handovers_s(self) -> float:
        """Time that all steps take to receive batches that are ready."""
        return len(self.steps) * self.handover_s

    @property
    def avoidable_s(self) -> float:
        """Input wait that a faster pipeline would avoid."""
        return max(0.0, self.waits_s - self.handovers_s)

    @property
    def gain(self) -> float:
        """Speedup without the avoidable input wait."""
        return self.measured_s / max(self.measured_s - self.avoidable_s, _LEAST * self.measured_s, 1e-9)

    @property
    def floors_s(self) -> float:
        """Duration of all steps if each batch were ready: the sum of their floors."""
        return sum(self.floors.get(step.kind, 0.0) for step in self.steps)

    @property
    def floor_ms(self) -> float | None:
        """Mean duration of a step on a batch that is ready; None if it could not be measured."""
        floors_s = [self.floors_s / len(self.steps)] if self.steps else [*self.floors.values()]
        return 1000 * statistics.fmean(floors_s or [0.0]) or None

    @cached_property
    def example_s(self) -> float:
        """Duration of a step on a batch that is ready, by example; 0 if it could not be measured."""
        return self.floors_s / max(1, sum(step.examples for step in self.steps))

    @property
    def ceiling_gain(self) -> float:
        """Speedup if each step were as short as on a batch that is ready; at least 1."""
        overhead_s = sum(loop.overhead_s for loop in self.loops)
        return max(1.0, self.measured_s / (self.floors_s + self.handovers_s + overhead_s))

    def of_epochs(self, first: int, end: int | None = None) -> MeasuredPipeline:
        """Return the measurements of these epochs alone."""
        return dataclasses.replace(self, loops=self.loops[first:end])


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
    floors_s, medians_s = (
        sum(each_s[kind] * len(training[kind]) for kind in floors if kind in training) for each_s in (floors, medians)
    )
    ratio = floors_s / medians_s if medians_s else 1.0
    return {kind: ratio * median for kind, median in medians.items()} | floors


def by_kind(loops: Sequence[Loop]) -> dict[StepKind, list[float]]:
    """Return the durations of the steps of each kind, without those that may compile."""
    found = defaultdict[StepKind, list[float]](list)
    for loop in loops:
        for step in loop.warm:
            found[step.kind].append(step.step_s)
    return found


def utilisation(sides: Sequence[MeasuredPipeline]) -> float | None:
    """Return the accelerator utilization (AU), from 0 to 1: as MLPerf Storage defines it, step time over total.

    It is None where no step was measured, as in a run of one step, which compiles.
    """
    total_s = sum(side.measured_s for side in sides)
    if total_s <= 0 or not sides[0].floors or not any(side.steps for side in sides):
        return None
    return min(1.0, sum(side.floors_s for side in sides) / total_s)


def _is_fetched(loop: Loop) -> bool:
    """Return whether a pass waited for shards: on the way, or for most of the time to its first batch."""
    # The reader of shards waits only if those behind it want more: where another stage is the slowest, they are there.
    if loop.traffic.waited_s - loop.first_fetch_s > _WORTH_REPORTING * loop.measured_s:
        return True
    return loop.fill_s > loop.input_wait_s and loop.first_fetch_s >= loop.fill_s / 2


def _fetched(side: MeasuredPipeline) -> tuple[str, dict[str, float]]:
    """Return the evidence that passes wait for shards, and the rates at which these arrive and are consumed."""
    loops = [*filter(_is_fetched, side.loops)]
    arrive, consumed = _arriving_per_s(loops), side.example_bytes / (side.example_s or math.inf)
    if not arrive or not arrive < consumed:
        first_s = sum(loop.first_fetch_s for loop in loops)
        return f"each pass first waits for shards, {first_s:.2f} s in all", {}
    rates = f"shards arrive at {arrive / 1e6:,.1f} MB/s, and the model consumes {consumed / 1e6:,.1f} MB/s"
    return rates, {"arriving_bytes_per_s": arrive, "consumed_bytes_per_s": consumed}


def _arriving_per_s(loops: Sequence[Loop]) -> float | None:
    """Return the bytes per second that arrived while shards were fetched; None if none was."""
    busy_s, count = sum(loop.traffic.busy_s for loop in loops), sum(loop.traffic.bytes for loop in loops)
    return count / busy_s if busy_s > 0 and count else None


_INPUT_GAIN = 1.10
"""A run is input-bound if it would be at least this many times faster without input wait."""
_BALANCED_GAIN, _HEADROOM = 1.05, 1.25
"""Otherwise it is balanced if the gain exceeds the first, or if the pipeline's headroom is below the second."""
_UNEXPLAINED_GAIN = 1.25
"""Steps slower by this factor in the loop than on a ready batch, without input wait, are unexplained."""
_FEWEST_STEPS = 8
_BLOCKS = 8
_SPARE = 0.9
"""A pipeline keeps up if its time per example is below this fraction of the step's."""
_MOST = 2
"""Stages that would have taken more than so many times the epoch were timed at the beginning of a pass alone."""
_WORTH_ADVICE_MS = 10_000
"""Wait for the first batches of a run that is worth a change of its epochs."""
_BEGINNING = ""
"""What limits passes that take longer to begin than to read: no stage."""

StepCosts = Callable[[str, str], Mapping[str, float]]
"""Milliseconds per example of each step of the transform of `train` or `validation`."""
Why = Callable[[str, MeasuredPipeline, Loop], tuple[str, str]]
"""Path of a stage, or of its step, and the evidence that a pass waits for it."""


def judge(sides: Sequence[MeasuredPipeline], ceiling_per_s: float | None, step_costs: StepCosts, cores: int) -> Verdict:
    """Return the verdict on a run whose pipeline alone delivers `ceiling_per_s` training examples per second.

    It is about the training of the epochs that are to come: those after the first, if they have enough steps. What it
    leaves out is named apart.
    """
    why, (train, *others) = partial(_why, cache(step_costs), cores), sides
    later = train.of_epochs(1)
    if len(later.steps) >= _FEWEST_STEPS:
        train, others = later, [dataclasses.replace(train.of_epochs(0, 1), name=_FIRST_EPOCH), *others]
    verdict = _of_training(train, ceiling_per_s, why, is_later=train is later)
    apart = list[Apart]()
    for side in (of for of in others if of.steps):
        is_bound = side.gain >= _INPUT_GAIN and not _held_up(side)
        stage = _bound_by_input(side, "", why).stage if is_bound else None
        waits_s, gain = side.waits_s, side.gain
        apart.append(Apart(name=side.name, lost_s=waits_s, total_s=side.measured_s, max_gain=gain, stage=stage))
    total_s = sum(loop.wall_s for side in sides for loop in side.loops)
    lost_s = min(total_s, sum(loop.startup_s for side in sides for loop in side.loops))
    if lost_s:  # by tracing, compiling and building graphs, which happen once
        gain = total_s / max(total_s - lost_s, _LEAST * total_s)
        apart.insert(0, Apart(name="start-up", lost_s=lost_s, total_s=total_s, max_gain=gain))
    return dataclasses.replace(verdict, apart=tuple(apart))


def _of_training(train: MeasuredPipeline, ceiling_per_s: float | None, why: Why, *, is_later: bool) -> Verdict:
    """Return the verdict on training in the epochs of `train`, which are all after the first, or all there are."""
    count, total_s = len(train.steps), train.measured_s
    if count < _FEWEST_STEPS or train.floor_ms is None:
        few = f"{counted(count, 'training step')} measured; a verdict needs at least {_FEWEST_STEPS}"
        return _unknown(few, "with more steps")
    if held := _held_up(train):
        return _unknown(held, "with measure.digest=false")
    waited = f"{_seconds(train.waits_s)} of {_seconds(total_s)} were spent waiting for data"
    waited += " after the first epoch" * is_later
    if train.handovers_s > _WORTH_REPORTING * total_s:
        waited += f", {_seconds(train.handovers_s)} of it for handing over batches that were ready"
    error_s = math.hypot(*(_error_s([step.wait_s for step in loop.steps]) for loop in train.loops))
    low, high = (
        total_s / max(total_s - max(train.avoidable_s + error, 0.0), total_s / 100) for error in (-error_s, error_s)
    )
    is_fetched = any(map(_is_fetched, train.loops))  # for which a single long wait is no accident
    if low < _INPUT_GAIN < high and high / low > _HEADROOM and not is_fetched:
        varies = f"{waited}, but the waits vary so much that the gain may be anything from {low:.2f} to {high:.2f}"
        return _unknown(varies, "on an idle machine, or for more epochs")
    if train.gain >= _INPUT_GAIN:
        return _bound_by_input(train, waited, why)
    if train.ceiling_gain >= _UNEXPLAINED_GAIN:
        steps_s = _seconds(sum(step.step_s for step in train.steps))
        return _unknown(
            f"{waited}, but the steps took {steps_s}, instead of {_seconds(train.floors_s)} on batches that are ready: "
            "either the pipeline competes with the model for cores, or the machine was busy with other work",
            "on an idle machine: if the verdict is the same, the pipeline takes the cores",
        )
    demand_per_s = 1 / max(train.example_s, 1e-9)
    rates = "" if ceiling_per_s is None else f"the pipeline alone delivers {ceiling_per_s:,.0f} examples/s, "
    is_tight = ceiling_per_s is not None and ceiling_per_s < _HEADROOM * demand_per_s
    kind: Kind = "balanced" if train.gain >= _BALANCED_GAIN or is_tight else "model"
    return _gaining(train, f"{waited}; {rates}the model consumes {demand_per_s:,.0f} examples/s", kind=kind)


def _gaining(side: MeasuredPipeline, because: str, **more: Any) -> Verdict:
    """Return the verdict on a pipeline with what it would gain."""
    best = max(side.gain, side.ceiling_gain)
    return Verdict(because=because, max_gain=side.gain, train_max_gain=best, **more)


def _unknown(why: str, again: str) -> Verdict:
    return Verdict(kind="unknown", because=f"inconclusive: {why}", advice=f"Run again {again}.")


def judge_alone(side: MeasuredPipeline, rate_per_s: float | None, step_ms: float = 0.0) -> Verdict:
    """Return the verdict on a drained pipeline: the stage that limits its throughput; without a model, no gain.

    `rate_per_s` is that of the pipeline with a step of `step_ms` for each batch.
    """
    if held := _held_up(side):
        return _unknown(held, "with measure.digest=false")
    paces = defaultdict[str, float](float)
    for loop in side.loops:
        if _is_fetched(loop) or loop.slowest:
            paces[Fetch.path if _is_fetched(loop) else loop.slowest.heaviest] += loop.measured_s
    if side.served_by and not paces:
        paces[side.served_by] = side.measured_s
    if not paces or rate_per_s is None:
        return _unknown("the passes were too short to profile", "with more examples")
    stage = max(paces, key=lambda name: paces[name])
    with_what = f"with steps of {step_ms:g} ms" if step_ms else "alone"
    because = f"the pipeline {with_what} delivers {rate_per_s:,.0f} examples/s, limited by {stage}"
    if stage == Fetch.path and (arriving := _arriving_per_s(side.loops)) is not None:
        because += f": shards arrive at {arriving / 1e6:,.1f} MB/s"
    return Verdict(kind="input", stage=stage, pipeline=side.pipeline, because=because)


def _held_up(side: MeasuredPipeline) -> str:
    """Return how long steps waited for digests, if it is enough to hide the input wait; else an empty string."""
    held_s, total_s = sum(loop.digest_s for loop in side.loops), side.measured_s
    text = f"{_seconds(held_s)} of {_seconds(total_s)} were spent waiting for digests, while the pipeline continued"
    return text if held_s > _WORTH_REPORTING * total_s else ""


def _error_s(waits_s: Sequence[float]) -> float:
    """Return two standard errors of the sum of waits, estimated from sums over blocks of consecutive waits."""
    if len(waits_s) < 2:  # noqa: PLR2004 - one value has no spread
        return sum(waits_s)
    blocks = [float(block.sum()) for block in np.array_split(np.asarray(waits_s), min(_BLOCKS, len(waits_s)))]
    return 2 * statistics.stdev(blocks) * math.sqrt(len(blocks))


def _bound_by_input(side: MeasuredPipeline, waited: str, why: Why) -> Verdict:
    """Return the verdict on a pipeline whose steps wait for it: the stage that limits it, and why."""
    loops, more = defaultdict[str, list[Loop]](list), dict[str, Any]()
    for loop in side.loops:
        if (found := _stage(side, loop)) is not None:
            loops[found].append(loop)
    if loops:
        stage = max(loops, key=lambda name: sum(loop.waited_s for loop in loops[name]))
    elif side.served_by:
        stage = side.served_by
    elif sum(loop.fill_s - loop.input_wait_s for loop in side.loops) > 0:
        stage = _BEGINNING
    else:
        return _unknown(f"{waited}, but the passes were too short to profile", "with more examples")
    if stage == _BEGINNING:
        text, more = _begins(side)
    elif stage == Fetch.path:
        text, more = _fetched(side)
    elif loops:
        stage, text = why(stage, side, max(loops[stage], key=lambda loop: loop.waited_s))
    else:
        text = f"{stage} delivers batches more slowly than the steps take them; its stages are not known here"
    because = f"{waited}; {text}"
    return _gaining(side, because, kind="input", stage=stage or None, pipeline=side.pipeline, **more)


def _begins(side: MeasuredPipeline) -> tuple[str, dict[str, str]]:
    """Return the evidence that first batches take most of the wait of passes, and advice."""
    count, steps = len(side.loops), round(len(side.steps) / len(side.loops))
    begin_ms, steps_ms = (1000 * value / count for value in (sum(loop.fill_s for loop in side.loops), side.floors_s))
    why = (
        f"the first batch of each pass takes {_seconds(begin_ms / 1000)}, all {steps} steps {_seconds(steps_ms / 1000)}"
    )
    if count * begin_ms < _WORTH_ADVICE_MS:
        return why, {}
    saves = f"reads on across epochs, which saves {_seconds(begin_ms / 1000)} each"
    return why, {"advice": f"Try trainer.steps_per_epoch={steps}: {saves}."}


def _stage(side: MeasuredPipeline, loop: Loop) -> str | None:
    """Return the stage whose removal would save most of an epoch; None if its pass was too short to profile."""
    step_ms, slowest = 1000 * side.example_s, loop.slowest
    if _is_fetched(loop):
        return Fetch.path
    if loop.costs is None or not slowest:
        return None
    is_over = slowest.period_ms * loop.examples > _MOST * 1000 * loop.wall_s
    if loop.fill_s > loop.input_wait_s and (is_over or slowest.period_ms < _SPARE * step_ms):
        if loop.costs.reads_disk:
            return next(filter(outlives_run, side.paths))
        return Shuffle.path if Shuffle.path in side.paths else _BEGINNING
    if Prefetch.path not in side.paths and slowest.period_ms <= step_ms:
        return Prefetch.path  # steps and batches alternate, though each is fast enough
    return slowest.heaviest


def _why(step_costs: StepCosts, cores: int, stage: str, side: MeasuredPipeline, loop: Loop) -> tuple[str, str]:
    """Return the path of the stage, or of its step, and the evidence for it."""
    budget = f"a step takes {1000 * side.example_s:.3g} ms per example"
    if stage == Prefetch.path and stage not in side.paths:
        cost = f"the {loop.slowest.period_ms:.3g} ms per example of the pipeline are added to each step"
        return stage, f"nothing is prefetched, so {cost}; {budget}"
    took = f"which took {_seconds(loop.fill_s)} of {_seconds(loop.measured_s)}"
    if stage == Shuffle.path:
        return stage, f"each pass first fills the shuffle buffer, {took}"
    if outlives_run(stage) and loop.fill_s > loop.input_wait_s:
        whole = " whole for the full shuffle" if FullShuffle.path in side.paths else ""
        return stage, f"each pass first opens the cache{whole} and reads a batch, {took}"
    row = next((row for row in loop.rows if row.stage == stage), StageCost(stage=stage, examples=0, cost_ms=0.0))
    used = row.parallelism or 1
    cost = f"{stage} takes {row.cost_ms:.3g} ms per example with {'one thread' if used == 1 else f'{used} threads'}"
    steps = step_costs(side.pipeline, stage) if stage.startswith("transform.") and used >= cores else {}
    step, total_ms = max(steps, key=lambda name: steps[name], default=stage), sum(steps.values())
    if not total_ms or steps[step] < total_ms / 2:  # all are 0 where noise exceeds them
        return stage, f"{cost}; {budget}"
    return step, f"{cost}; {budget}; {step} is {steps[step] / total_ms:.0%} of it"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if round(value, 2) >= 10 else f"{value:.2f} s"  # noqa: PLR2004 - three significant digits
