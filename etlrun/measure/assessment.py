"""Assessment of a run: collects the measurements of its epochs, runs the probes, and writes the verdict."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import Any

import tensorflow as tf

from etlrun.cache.keeper import Identified
from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.graph.shards import count_of_batches
from etlrun.measure.meter import Loop, Shapes
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import (
    Fewer,
    MeasuredPipeline,
    advice,
    by_kind,
    floors_of,
    judge,
    judge_alone,
    overrides_in,
    told,
    utilisation,
)
from etlrun.measure.watched import Watch, sampled
from etlrun.planning.plan import Plan, PlannedStage, at_cache, stage_of
from etlrun.record.record import Record
from etlrun.record.summary import Fetched, StageCost, StageRow
from etlrun.sources.rows.reader import lengths_of
from etlrun.stages.base import AUTOTUNE
from etlrun.stages.cache import cache_bytes
from etlrun.stages.dataset import Dataset, Fetch
from etlrun.stages.load import Batch, Bucket
from etlrun.stages.step import Map
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError
from etlrun.system.machine import cores

_SAMPLE, _FEWEST = 8, 8
"""Number of examples on which transform steps are timed, and the minimum number of timings."""
_LATE, _LONGER = 4, 4
"""A probe goes on while a batch took more than this part of it, but not for longer than so many times its seconds."""
_RECENT = 8
"""Number of last epochs whose steps tell the floors while a run goes on."""
_NEARLY, _AS_FAST, _TURNS = 0.6, 0.93, 3
"""Rates of a pipeline with fewer calls, over its rate, measured again, up to so often, and taken for as fast."""
_OWN = 0.8
"""Share of the cores that a run uses, or nothing does, on a machine that is not taken for one that others use."""
_PROBE_SHARE, _PROBE_LEAST_S, _PROBE_MOST_S = 0.02, 0.3, 1.5
"""Duration of a probe after the training: a fraction of the training time, between a minimum and a maximum."""


def settled_values(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> dict[str, int]:
    """Return the values that AUTOTUNE chose where the plan says `autotune`, by dotted config key."""
    costs, found = {row.stage: row for row in rows}, dict[str, int]()
    for stage in (planned.stage for planned in stages):
        tuned, row = stage.tuned, costs.get(stage.path)
        if tuned is not None and row is not None and getattr(stage, tuned.field) == AUTOTUNE:
            found |= {tuned.key: value} if (value := getattr(row, tuned.setting)) else {}
    return found


def with_settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> list[PlannedStage]:
    """Return `stages` with the values that AUTOTUNE chose where the plan says `autotune`, for another pass."""
    found = [*stages]
    for place, planned in enumerate(stages):
        for value in settled_values([planned], rows).values():
            new = dataclasses.replace(planned.stage, **{planned.stage.tuned.field: value})  # type: ignore[type-var, union-attr] # it has one
            found[place] = dataclasses.replace(planned, stage=new)
    return found


def with_calls(stages: Sequence[PlannedStage], key: str, calls: int) -> list[PlannedStage]:
    """Return `stages` with so many parallel calls where those of `key` make more."""
    found = [*stages]
    for place, planned in enumerate(stages):
        stage, tuned = planned.stage, planned.stage.tuned
        of = getattr(stage, tuned.field) if tuned is not None and tuned.key == key else None
        if isinstance(of, int) and of > calls:
            new = dataclasses.replace(stage, **{tuned.field: calls})  # type: ignore[type-var, union-attr] # it has one
            found[place] = dataclasses.replace(planned, stage=new)
    return found


def fewer_calls(than: int, rate: Callable[[int], float], least: int = 1) -> tuple[int, float] | None:
    """Return fewer parallel calls that are as fast, and their rate over that of `than`; None if none are.

    `rate` measures a number of calls. A quarter is tried each time, and `least` at least; what seems as fast is
    measured again, in turns.
    """
    best, calls, usual = None, than, [rate(than)]
    while calls > least:
        calls = max(least, calls // 4)
        fewer, ratio, enough = [rate(calls)], 0.0, _AS_FAST * (best[1] if best else 1.0)
        while fewer[0] >= _NEARLY * statistics.median(usual) and ratio < enough and len(fewer) < _TURNS:
            fewer.append(rate(calls))
            usual.append(rate(than))
            ratio = statistics.median(fewer) / statistics.median(usual)
        if ratio < enough:
            break
        best = calls, ratio
    return best


def ceiling_per_s(
    pipeline: Pipeline, stages: Sequence[PlannedStage], *, from_cache: bool, seconds: float, ahead: int = 1
) -> float:
    """Return the examples per second of the pipeline without a model.

    The pipeline is read without its shuffle stage, which does not change the throughput of a long pass, and with
    `stages`; that of a service as it is. `from_cache` reads from the training's cache; otherwise the cache is left out.
    Batches `ahead` are not timed. A batch that came late, since the machine did something else, is not what a pipeline
    takes: the probe goes on until it weighs little.
    """
    batches = pipeline.repeated_alone(stages, from_cache=from_cache)
    for _ in range(ahead):
        next(batches)
    began_s, examples, elapsed_s, slowest_s = time.perf_counter(), 0, 0.0, 0.0
    while elapsed_s < seconds or elapsed_s < min(_LATE * slowest_s, _LONGER * seconds):
        before_s = elapsed_s
        examples += int(tf.nest.flatten(next(batches))[0].shape[0])
        elapsed_s = time.perf_counter() - began_s
        slowest_s = max(slowest_s, elapsed_s - before_s)
    return examples / elapsed_s


def step_costs_ms(pipeline: Pipeline, path: str, *, seconds: float) -> dict[str, float]:
    """Return the milliseconds per example of each step of the map `path`, in one thread, on a sample in memory.

    Empty if the stage is no map of steps, or if the sample holds a record that the run has skipped.
    """
    place = next(place for place, planned in enumerate(pipeline.stages) if planned.stage.path == path)
    planned = pipeline.stages[place]
    stage: Any = planned.stage
    if not planned.steps or planned.stage.does_steps:
        return {}
    through = [sample := pipeline.uncached(pipeline.stages[:place]).take(_SAMPLE).cache().repeat()]
    for end in range(len(stage.steps)):
        # A parallel map with one call: tf.data's serial map polls blocking functions at intervals of 2**n milliseconds.
        prefix = dataclasses.replace(stage, num_parallel_calls=1, steps=stage.steps[: end + 1])
        through.append(map_steps(sample, prefix, pipeline.context))
    try:
        periods_ms = [_period_ms(dataset, seconds / len(through)) for dataset in through]
    except tf.errors.OpError:
        return {}
    costs = zip(stage.steps, pairwise(periods_ms), strict=True)
    return {step.path: max(0.0, after - before) for step, (before, after) in costs}


def _period_ms(dataset: tf.data.Dataset, seconds: float) -> float:
    """Return the median time per element, without the first pass over the sample."""
    elements, times_ms = iter(dataset), list[float]()
    for _ in range(_SAMPLE):
        next(elements)
    until_s = time.perf_counter() + seconds
    while len(times_ms) < _FEWEST or time.perf_counter() < until_s:
        began_s = time.perf_counter()
        next(elements)
        times_ms.append(1000 * (time.perf_counter() - began_s))
    return statistics.median(times_ms)


def cached_bytes(pipeline: Pipeline) -> int:
    """Return the size of the cache of a pipeline as it was measured, or of one of what it gives if it has none."""
    before, _, after = at_cache(pipeline.stages)
    return pipeline.held_bytes or cache_bytes((before or after)[-1].gives, pipeline.split.num_examples, 0.0) or 0


@dataclass
class Input:
    """A pipeline of a run, with the measurements of its passes.

    Attributes:
        name: `train`, `validation`, or that of a named validation set.
        plan: Plan of the run.
        pipeline: The pipeline.
        watch: What is measured of its passes.
        content: Content of the files whose digest the run records.
        loops: Times of its epochs.
    """

    name: str
    plan: Plan
    pipeline: Pipeline
    watch: Watch
    content: Identified
    loops: list[Loop] = field(default_factory=list)

    @property
    def batches(self) -> int:
        """Number of batches in a pass, if no record is skipped."""
        pipeline = self.pipeline
        return count_of_batches(pipeline.stages, pipeline.split)

    @property
    def paths(self) -> list[str]:
        """Paths of its stages."""
        return [planned.stage.path for planned in self.pipeline.stages]

    @property
    def fetched(self) -> Mapping[str, int]:
        """Bytes of the objects that are fetched, by their paths; empty of files on this machine."""
        return self.pipeline.split.sizes if Fetch.path in self.paths else {}

    @property
    def rows(self) -> list[StageCost]:
        """Stage costs of the epoch with the longest wait; other epochs supply the stages that it lacks."""
        loops = sorted(self.loops, key=lambda loop: -loop.waited_s)[::-1]
        rows = {row.stage: row for loop in loops for row in loop.rows}
        return [rows[path] for path in self.paths if path in rows]

    @property
    def sizes(self) -> tuple[int, int]:
        """Examples in a batch, the mean of those of buckets, and in a pass that skips no record."""
        batch, examples = stage_of(self.pipeline.stages, Batch), int(self.pipeline.split.num_examples)
        if isinstance(batch, Bucket):
            source, split = self.pipeline.context.source, self.pipeline.split
            lengths = lengths_of(source, split, batch.columns)  # type: ignore[arg-type] # of rows
            ends = batch.cut(lengths)[1]
            return max(round(ends[-1] / max(len(ends) - 1, 1)), 1), int(ends[-1])
        left = examples % batch.batch_size if batch is not None and batch.drop_remainder else 0
        return self.plan.spec.load.batch_size, examples - left

    def end(self) -> Loop:
        """End an epoch, and return its measurements."""
        loop, pipeline = self.watch.meter.end(), self.pipeline
        loop.costs = self._costs_of(loop)
        if not loop.steps:
            if self.watch.resumed_batches:
                return loop
            key = Dataset.key_of(self.name)
            raise WorldError(
                key,
                "an epoch without a batch",
                "at least one batch: readable examples and, with load.drop_remainder=true, as many as the batch size",
                f"repair the data, choose a larger {key}, or set load.drop_remainder=false",
            )
        if self.watch.pass_batches is None:
            self.watch.release()
        if not self.loops:
            keeper, may_fill = pipeline.keeper, self.plan.spec.cache.keeps and not pipeline.filling_s
            if may_fill and (not keeper or keeper.passes[:1] == ["filled"]):
                # At least what the pipeline takes for its examples, some of which it reads during the start-up.
                whole_s = loop.slowest.period_ms / 1000 * loop.examples
                pipeline.filled_s = min(max(loop.measured_s, whole_s), loop.wall_s)
            if loop.costs is not None:
                loop.split_fill(pipeline.filling_s + self._first_ms(loop.costs) / 1000 + loop.first_fetch_s)
        self.loops.append(loop)
        return loop

    def _costs_of(self, loop: Loop) -> StageCosts | None:
        """Return the costs of the last pass by its deepest and its last model; None if neither has seen a batch."""
        keeper, models = self.pipeline.keeper, self.watch.taken_models()
        if not models:
            return None
        stages, (size, examples) = [planned.stage for planned in self.pipeline.stages], self.sizes
        reads_disk = keeper is not None and keeper.passes[-1:] == ["read"]
        found, last = (
            StageCosts(model, stages, size, cores(), reads_disk=reads_disk, pass_examples=examples) for model in models
        )
        found.improve(last)
        if not any(row.examples for row in found.rows[-1:]) or not found.periods.work.period_ms:
            return None
        if Fetch.path in self.paths:
            cost_ms = 1000 * loop.traffic.waited_s / max(1, loop.examples)
            found.rows.insert(0, StageCost(stage=Fetch.path, examples=loop.examples, cost_ms=cost_ms))
        return found

    def _first_ms(self, costs: StageCosts) -> float:
        """Return the time that the first batch takes, with the examples that go through the stages of the buffer."""
        costs_ms, count = costs.periods.slowest.period_ms, int(self.pipeline.split.num_examples)
        size, holds = self.sizes[0], [planned.stage.holds for planned in self.pipeline.stages]
        place = next((at for at, of in enumerate(holds) if of), None)
        if place is None or costs.reads_disk:  # a disk cache is shuffled by number
            return min(size, count) * costs_ms
        before = {*self.paths[: place + 1]}
        if Map.path in before:
            return min(size + holds[place], count) * costs_ms
        held_ms = min(holds[place], count) * sum(row.cost_ms for row in costs.rows if row.stage in before)
        return min(size, count) * costs_ms + held_ms


@dataclass(eq=False)
class Work:
    """A run at work, and what is measured of its training.

    Attributes:
        plan: Plan of the run, or of its phases that are in progress.
        record: Record of the run.
        inputs: Pipelines by name: `train` and, with validation, `validation` and the named sets. The verdict is about
            those.
        peak_gpu_bytes: Function that returns the peak GPU memory used for tensors.
    """

    plan: Plan
    record: Record
    inputs: dict[str, Input]
    peak_gpu_bytes: Callable[[], int | None]
    _used: dict[str, Any] = field(default_factory=dict)

    @property
    def trainer(self) -> Trainer:
        """The trainer of the run, which trains a model."""
        assert self.plan.spec.fit is not None  # noqa: S101 - for mypy
        return self.plan.spec.fit

    @property
    def train(self) -> Input:
        """The training pipeline."""
        return self.inputs["train"]

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the training inside."""
        watches = [of.watch for of in self.inputs.values()]
        with sampled(watches) as used:
            try:
                yield
            finally:
                for watch in watches:
                    watch.release()
        self._used = {
            **used(),
            "cache_bytes": sum(of.pipeline.held_bytes for of in self.inputs.values()),
            "peak_gpu_bytes": self.peak_gpu_bytes(),
        }

    def end(self, of: Input) -> Loop:
        """End an epoch of a pipeline, and return its measurements."""
        loop = of.end()
        if loop.steps and loop.costs is not None:
            self.record.event("stages", pipeline=of.name, stages=[*map(dataclasses.asdict, loop.rows)])
        return loop

    def probe_s(self) -> float:
        """Return the duration of a probe in seconds."""
        trained_s = sum(loop.wall_s for loop in self.train.loops)
        return min(max(_PROBE_SHARE * trained_s, _PROBE_LEAST_S), _PROBE_MOST_S)

    @property
    def au(self) -> float | None:
        """Accelerator utilization (AU) of the training in the last epoch, by the floors of the last few ones."""
        recent = dataclasses.replace(self.train, loops=self.train.loops[-_RECENT:])
        return utilisation([self._side(recent).of_epochs(-1)])

    def shares(self) -> dict[Shapes, float]:
        """Return the part of the time of training steps by their shapes, of the model as it is compiled now."""
        kinds, now = by_kind(self.train.loops), self.train.watch.meter.times_compiled
        now_s = {of.shapes: sum(s) for of, s in kinds.items() if of.compiled == now}
        return {shapes: step_s / sum(now_s.values()) for shapes, step_s in now_s.items()}

    def conclude(self, ready: Sequence[Loop]) -> None:
        """Write the verdict and its evidence to the summary; `ready` holds steps on batches that were ready."""
        train, inputs = self.train, self.inputs
        if not train.loops:  # a resumed run that was already complete
            return
        plan, ceiling, loops = self.plan, self._ceiling_per_s(), train.loops
        sides = [self._side(of, ready) for of in inputs.values()]
        if plan.spec.fit is None:
            verdict = judge_alone(sides[0], ceiling, plan.spec.trainer.step_ms)
        else:
            probe = partial(step_costs_ms, seconds=self.probe_s())
            verdict = judge(sides, ceiling, lambda of, stage: probe(inputs[of].pipeline, stage), cores())
        about = inputs[verdict.pipeline or "train"]
        steady_s = sum(loop.measured_s - loop.fill_s for loop in loops)
        waits_s = sum(loop.input_wait_s for loop in loops)
        conditions = {
            "cores": cores(),
            **{key: self._used[key] for key in ("cores_used", "cores_idle")},
            "shards": len(about.pipeline.split.shards),
            "cached_bytes": sum(cached_bytes(of.pipeline) for of in inputs.values()),
            "epochs": len(loops),
            "fetched_bytes": sum(dict(chain(*(of.fetched.items() for of in inputs.values()))).values()),
        }
        if verdict.kind == "input" and about is train and verdict.stage != Fetch.path and not plan.spec.load.service:
            conditions["fewer"] = self._fewer(verdict.stage or "")
        advised = verdict.advice or advice(verdict.stage, plan, about.rows, conditions)
        epochs = [*self.record.summary.epochs]
        for number in range(-len(loops), 0):
            au = utilisation([sides[0].of_epochs(number, number + 1 or None)])
            epochs[number] = epochs[number].with_values(au=au)
        settled, copies = partial(settled_values, about.pipeline.stages), train.pipeline.context.source.copies
        self.record.update(
            verdict=dataclasses.replace(verdict, advice=told(advised, plan.spec), overrides=overrides_in(advised)),
            step_floor_ms=sides[0].floor_ms,
            step_floor_cores=statistics.fmean([loop.cores or 0.0 for loop in ready]) if ready else None,
            pipeline_examples_per_s=ceiling,
            au=utilisation(sides),
            epochs=epochs,
            **{
                key: sum(getattr(epoch, key) for epoch in epochs)
                for key in ("input_wait_s", "fill_wait_s", "validation_wait_s")
            },
            input_wait_share=waits_s / steady_s if steady_s > 0 else None,
            stages=[
                StageRow(**dataclasses.asdict(row), set_by="autotune" if settled([row]) else "config")
                for row in about.rows
            ],
            autotune=settled_values(train.pipeline.stages, train.rows),
            **({} if copies is None else {"fetched": Fetched(**dataclasses.asdict(copies.traffic))}),
            resources=self._used,
        )

    def _side(self, of: Input, ready: Sequence[Loop] = ()) -> MeasuredPipeline:
        """Return the measurements of a pipeline, with the floors of its steps unless it was drained."""
        handovers_s = [step.wait_s for loop in ready for step in loop.warm]
        is_drained, own = self.plan.spec.fit is None, ready if of.name == "train" else ()
        return MeasuredPipeline(
            name=of.name,
            paths=tuple(of.paths),
            loops=tuple(of.loops),
            floors={} if is_drained else floors_of(of.loops, own),
            handover_s=statistics.median(handovers_s) if handovers_s else 0.0,
            example_bytes=sum(of.fetched.values()) / max(1, of.pipeline.split.num_examples),
        )

    def _ceiling_per_s(self) -> float | None:
        """Return the throughput of the pipeline alone: measured, or from its slowest thread if batches are slow."""
        train, plan = self.train, self.plan
        loops, pipeline = train.loops, train.pipeline
        examples, period_ms = sum(loop.examples for loop in loops), loops[-1].slowest.period_ms
        if plan.spec.fit is None:
            measured_s = sum(loop.measured_s for loop in loops)
            return examples / measured_s if measured_s > 0 else None
        if train.sizes[0] * period_ms / 1000 > self.probe_s():
            return 1000 / period_ms
        return self._alone_per_s(with_settled(pipeline.stages, train.rows))

    def _alone_per_s(self, stages: Sequence[PlannedStage], ahead: int = 1) -> float:
        """Return the throughput of the training pipeline alone with these stages."""
        pipeline, examples = self.train.pipeline, sum(loop.examples for loop in self.train.loops)
        has_read = pipeline.keeper.count > 0 if pipeline.keeper else examples > pipeline.split.num_examples
        is_full = self.plan.spec.cache.keeps and has_read
        return ceiling_per_s(pipeline, stages, from_cache=is_full, seconds=self.probe_s(), ahead=ahead)

    def _fewer(self, stage: str) -> Fewer | None:
        """Return fewer parallel calls of what limits the training that are as fast; None if none are known."""
        train, key = self.train, f"{stage.partition('.')[0]}.num_parallel_calls"
        if self.plan.spec.fit is None or train.sizes[0] * train.loops[-1].slowest.period_ms / 1000 > self.probe_s():
            return None
        stages = with_settled(train.pipeline.stages, train.rows)
        calls = [
            getattr(of, of.tuned.field) for planned in stages if (of := planned.stage).tuned and of.tuned.key == key
        ]
        than = max((of for of in calls if isinstance(of, int)), default=1)
        used, idle = self._used["cores_used"], self._used["cores_idle"]
        is_shared = idle is not None and (used or 0.0) + idle < _OWN * cores()
        least = cores() if is_shared else 1  # as many threads as cores get more of those that others use, too
        if than <= least:
            return None
        found = fewer_calls(than, lambda of: self._alone_per_s(with_calls(stages, key, of), than), least)
        return found and Fewer(key=key, calls=found[0], than=than, ratio=found[1])
