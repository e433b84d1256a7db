"""Assessment of a run: collects the measurements of its epochs, runs the probes, and writes the verdict."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.measure.meter import Loop, Shapes, spread_ms
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import MeasuredPipeline, advice, by_kind, floors_of, judge, judge_alone, told, utilisation
from etlrun.measure.watched import Beside, Sampler, Watch
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
from etlrun.system.machine import cores
from etlrun.system.values import frozen

_SAMPLE, _FEWEST = 8, 8
"""Number of examples on which transform steps are timed, and the minimum number of timings."""
_LATE, _LONGER = 4, 4
"""A probe goes on while a batch took more than this part of it, but not for longer than so many times its seconds."""


def with_settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> list[PlannedStage]:
    """Return `stages` with the values that AUTOTUNE chose where the plan says `autotune`, for another pass."""
    costs, found = {row.stage: row for row in rows}, list[PlannedStage]()
    for planned in stages:
        stage, tuned = planned.stage, planned.stage.tuned
        value = getattr(costs[stage.path], tuned.setting) if tuned is not None and stage.path in costs else None
        if tuned is not None and value and getattr(stage, tuned.field) == AUTOTUNE:
            new = dataclasses.replace(stage, **{tuned.field: value})  # type: ignore[type-var]
            found.append(dataclasses.replace(planned, stage=new))
        else:
            found.append(planned)
    return found


def settled_values(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> dict[str, int]:
    """Return the values that AUTOTUNE chose where the plan says `autotune`, by dotted config key."""
    both = zip(stages, with_settled(stages, rows), strict=True)
    changed = ((new.stage, new.stage.tuned) for old, new in both if old is not new)
    return {tuned.key: getattr(stage, tuned.field) for stage, tuned in changed if tuned is not None}


def ceiling_per_s(pipeline: Pipeline, rows: Sequence[StageCost], *, from_cache: bool, seconds: float) -> float:
    """Return the examples per second of the pipeline without a model.

    The pipeline is read without its shuffle stage, which does not change the throughput of a long pass, and with the
    values that AUTOTUNE settled on; that of a service as it is. `from_cache` reads from the training's cache; otherwise
    the cache is left out. A batch that came late, since the machine did something else, is not what a pipeline takes:
    the probe goes on until it weighs little.
    """
    batches = pipeline.repeated_alone(with_settled(pipeline.stages, rows), from_cache=from_cache)
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
    planned = next(planned for planned in pipeline.stages if planned.stage.path == path)
    stage: Any = planned.stage
    if not planned.steps or planned.stage.does_steps:
        return {}
    through = [sample := pipeline.before(path).take(_SAMPLE).cache().repeat()]
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


_PROBE_SHARE, _PROBE_LEAST_S, _PROBE_MOST_S = 0.02, 0.3, 1.5
"""Duration of a probe after the training: a fraction of the training time, between a minimum and a maximum."""


@frozen
class Work:
    """The parts of a run.

    Attributes:
        plan: Plan of the run.
        record: Record of the run.
        pipelines: Pipelines by name: `train` and, if there is validation, `validation`.
        watches: Measurements of each pipeline.
    """

    plan: Plan
    record: Record
    pipelines: dict[str, Pipeline]
    watches: dict[str, Watch]

    @property
    def trainer(self) -> Trainer:
        """The trainer of the run, which trains a model."""
        assert self.plan.spec.fit is not None  # noqa: S101 - for mypy
        return self.plan.spec.fit

    @property
    def train(self) -> Pipeline:
        """The training pipeline."""
        return self.pipelines["train"]


class Assessment:
    """Context manager around the training that measures it.

    Attributes:
        loops: Epochs of each pipeline, by its name.
    """

    def __init__(self, work: Work, peak_gpu_bytes: Callable[[], int | None]) -> None:
        self._peak_gpu_bytes = peak_gpu_bytes
        self.go_on_with(work)
        known, folder, trainer = work.record.summary, work.record.folder.resolve(), work.plan.spec.fit
        own = str(folder if known.in_flight is None else folder.parent)
        beside = Beside("a run on several hosts" if trainer is not None and trainer.hosts > 1 else own)
        self._sampler = Sampler(work.watches.values(), beside, with_gpu=bool(known.host.accelerators))
        self._used: dict[str, Any] = {}
        self._ready: Sequence[Loop] = ()
        self._is_drained = trainer is None

    def __enter__(self) -> Self:
        self._sampler.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        for watch in self.work.watches.values():
            watch.release()
        self._sampler.__exit__(*exception)
        for note in self._sampler.beside.notes():
            self.work.record.remark(note)
        self._used = {
            **self._sampler.usage.used(),
            "cache_bytes": sum(pipeline.held_bytes for pipeline in self.work.pipelines.values()),
            "gpus": self._sampler.gpu.described(),
            "peak_gpu_bytes": self._peak_gpu_bytes(),
        }

    def go_on_with(self, work: Work) -> None:
        """Go on with other pipelines, which the verdict is then about."""
        self.work = work
        self.loops: dict[str, list[Loop]] = {name: [] for name in work.pipelines}

    @property
    def usage(self) -> dict[str, Any]:
        """Memory and CPU over the training so far, as `usage` of the summary; empty if it was too short for that."""
        usage = self._sampler.usage.described()
        return {"usage": usage} if usage else {}

    def end(self, name: str) -> Loop:
        """End the epoch of the pipeline `name`, and return its measurements."""
        watch, pipeline = self.work.watches[name], self.work.pipelines[name]
        loop = watch.meter.end()
        loop.costs = self._costs_of(name, loop)
        if not loop.steps:
            if watch.resumed_batches:
                return loop
            raise pipeline.empty_pass(Dataset.key_of(name))
        if watch.pass_batches is None:
            watch.release()
        if not self.loops[name]:
            pipeline.filled_s = self._filled_s(pipeline, loop)
        if loop.costs is not None:
            self.work.record.event("stages", pipeline=name, stages=[*map(dataclasses.asdict, loop.rows)])
            if not self.loops[name]:
                first_s = self._first_ms(name, loop.costs) / 1000 + loop.first_fetch_s
                loop.split_fill(pipeline.filling_s + first_s)
        self.loops[name].append(loop)
        return loop

    def _filled_s(self, pipeline: Pipeline, loop: Loop) -> float:
        """Return the seconds of a first pass that has filled a cache, without start-up; 0 for any other.

        They are at least those that the pipeline takes for its examples, some of which it reads during the start-up.
        """
        keeper, warm_s = pipeline.keeper, [step.step_s for step in loop.warm]
        if not self.work.plan.spec.cache.keeps or pipeline.filling_s or (keeper and keeper.passes[:1] != ["filled"]):
            return 0.0
        first_s = loop.startup_s - loop.start_s
        usual_s = statistics.median(warm_s) * (len(loop.steps) - len(warm_s)) if warm_s else first_s
        took_s = loop.wall_s - max(loop.start_s, pipeline.building_s) - first_s + min(usual_s, first_s)
        work_s = loop.slowest.period_ms / 1000 * loop.examples
        return max(took_s, work_s) if work_s < loop.wall_s else took_s

    def _costs_of(self, name: str, loop: Loop) -> StageCosts | None:
        """Return the costs of the last pass, by its deepest and its last model.

        None if the pass was too short for a model, or for one that has seen a batch: its costs would be of no example.
        """
        keeper, stages = self.work.pipelines[name].keeper, [planned.stage for planned in self._stages(name)]
        reads_disk = keeper is not None and keeper.passes[-1:] == ["read"]
        models = self.work.watches[name].taken_models()
        if not models:
            return None
        size, examples = self._batches(name)
        found, last = (
            StageCosts(model, stages, size, cores(), reads_disk=reads_disk, pass_examples=examples) for model in models
        )
        found.improve(last)
        if not any(row.examples for row in found.rows[-1:]) or not found.periods.work.period_ms:
            return None
        if self._fetches(name):
            cost_ms = 1000 * loop.traffic.waited_s / max(1, loop.examples)
            found.rows.insert(0, StageCost(stage=Fetch.path, examples=loop.examples, cost_ms=cost_ms))
        return found

    def _batches(self, name: str) -> tuple[int, int]:
        """Return the examples in a batch, the mean of those of buckets, and in a pass that skips no record."""
        pipeline, batch = self.work.pipelines[name], stage_of(self._stages(name), Batch)
        size, examples = self.work.plan.spec.load.batch_size, int(pipeline.split.num_examples)
        if isinstance(batch, Bucket):
            lengths = lengths_of(pipeline.context.source, pipeline.split, batch.columns)  # type: ignore[arg-type] # of rows
            ends = batch.cut(lengths)[1]
            return max(round(ends[-1] / max(len(ends) - 1, 1)), 1), int(ends[-1])
        left = examples % batch.batch_size if batch is not None and batch.drop_remainder else 0
        return size, examples - left

    def _first_ms(self, name: str, costs: StageCosts) -> float:
        """Return the time that the first batch takes, with the examples that go through the stages of the buffer."""
        stages, costs_ms = [planned.stage for planned in self._stages(name)], costs.periods.slowest.period_ms
        size, count = self._batches(name)[0], int(self.work.pipelines[name].split.num_examples)
        batch_ms, place = min(size, count) * costs_ms, next((at for at, of in enumerate(stages) if of.holds), None)
        if place is None or costs.reads_disk:  # a disk cache is shuffled by number
            return batch_ms
        before, holds = {stage.path for stage in stages[: place + 1]}, stages[place].holds
        if Map.path in before:
            return min(size + holds, count) * costs_ms
        return batch_ms + min(holds, count) * sum(row.cost_ms for row in costs.rows if row.stage in before)

    def probe_s(self) -> float:
        """Return the duration of a probe in seconds."""
        trained_s = sum(loop.wall_s for loop in self.loops["train"])
        return min(max(_PROBE_SHARE * trained_s, _PROBE_LEAST_S), _PROBE_MOST_S)

    @property
    def au(self) -> float | None:
        """Accelerator utilization (AU) of the training in the last epoch, as far as floors are known by then."""
        return utilisation([self._side("train").of_epochs(-1)])

    def shares(self, times_compiled: int) -> dict[Shapes, float]:
        """Return the part of the time of training steps by their shapes, of the model as it is compiled now."""
        now_s = {of.shapes: sum(s) for of, s in by_kind(self.loops["train"]).items() if of.compiled == times_compiled}
        return {shapes: step_s / sum(now_s.values()) for shapes, step_s in now_s.items()}

    def conclude(self, ready: Sequence[Loop]) -> None:
        """Write the verdict and its evidence to the summary; `ready` holds steps on batches that were ready."""
        if not self.loops["train"]:  # a resumed run that was already complete
            return
        plan, ceiling, self._ready = self.work.plan, self._ceiling_per_s(), ready
        sides = [*map(self._side, self.work.pipelines)]
        train, copies = sides[0], self.work.train.context.source.copies
        if self._is_drained:
            verdict = judge_alone(train, ceiling, plan.spec.trainer.step_ms)
        else:
            probe, pipelines = partial(step_costs_ms, seconds=self.probe_s()), self.work.pipelines
            verdict = judge(sides, ceiling, lambda of, stage: probe(pipelines[of], stage), cores())
        name = verdict.pipeline or "train"
        stages, rows = self._stages(name), self._rows(name)
        steady_s = sum(loop.measured_s - loop.fill_s for loop in train.loops)
        waits_s = sum(loop.input_wait_s for loop in train.loops)
        conditions = {
            "cores": cores(),
            "shards": len(self.work.pipelines[name].split.shards),
            "cached_bytes": sum(map(cached_bytes, self.work.pipelines.values())),
            "epochs": len(train.loops),
            "fetched_bytes": self._fetched_bytes(self.work.pipelines),
        }
        advised = verdict.advice or advice(verdict.stage, plan, rows, conditions)
        epochs = [*self.work.record.summary.epochs]
        for number in range(-len(train.loops), 0):
            au = utilisation([train.of_epochs(number, number + 1 or None)])
            epochs[number] = epochs[number].with_values(au=au)
        self.work.record.update(
            verdict=dataclasses.replace(verdict, advice=told(advised, plan.spec)),
            step_floor_ms=train.floor_ms,
            step_floor_cores=statistics.fmean([loop.cores or 0.0 for loop in ready]) if ready else None,
            pipeline_examples_per_s=ceiling,
            au=utilisation(sides),
            epochs=epochs,
            **{
                key: sum(getattr(epoch, key) for epoch in epochs)
                for key in ("input_wait_s", "fill_wait_s", "validation_wait_s")
            },
            **spread_ms([step.wait_s for loop in train.loops for step in loop.steps]),
            input_wait_share=waits_s / steady_s if steady_s > 0 else None,
            stages=[
                StageRow(**dataclasses.asdict(row), set_by="autotune" if settled_values(stages, [row]) else "config")
                for row in rows
            ],
            autotune=settled_values(self._stages("train"), self._rows("train")),
            **({} if copies is None else {"fetched": Fetched(**dataclasses.asdict(copies.traffic))}),
            resources=self._used,
            **self.usage,
        )

    def _fetches(self, name: str) -> bool:
        return stage_of(self._stages(name), Fetch) is not None

    def _fetched_bytes(self, names: Iterable[str]) -> int:
        """Return the bytes of all objects of these pipelines; 0 of files on this machine."""
        sizes = [self.work.pipelines[name].split.sizes for name in names if self._fetches(name)]
        return sum({path: size for of in sizes for path, size in of.items()}.values())

    def _stages(self, name: str) -> tuple[PlannedStage, ...]:
        return self.work.pipelines[name].stages

    def _side(self, name: str) -> MeasuredPipeline:
        """Return the measurements of a pipeline, with the floors of its steps unless it was drained."""
        handovers_s = [step.wait_s for loop in self._ready for step in loop.warm]
        ready = self._ready if name == "train" else ()
        return MeasuredPipeline(
            name=name,
            paths=tuple(planned.stage.path for planned in self._stages(name)),
            loops=tuple(self.loops[name]),
            floors={} if self._is_drained else floors_of(self.loops[name], ready),
            handover_s=statistics.median(handovers_s) if handovers_s else 0.0,
            example_bytes=self._fetched_bytes([name]) / max(1, self.work.pipelines[name].split.num_examples),
        )

    def _rows(self, name: str) -> list[StageCost]:
        """Return the stage costs of the epoch with the longest wait; other epochs supply the stages that it lacks."""
        loops = sorted(self.loops[name], key=lambda loop: -loop.waited_s)[::-1]
        rows = {row.stage: row for loop in loops for row in loop.rows}
        return [rows[planned.stage.path] for planned in self._stages(name) if planned.stage.path in rows]

    def _ceiling_per_s(self) -> float | None:
        """Return the throughput of the pipeline alone: measured, or from its slowest thread if batches are slow."""
        loops, pipeline = self.loops["train"], self.work.train
        examples, period_ms = sum(loop.examples for loop in loops), loops[-1].slowest.period_ms
        if self._is_drained:
            measured_s = sum(loop.measured_s for loop in loops)
            return examples / measured_s if measured_s > 0 else None
        if self._batches("train")[0] * period_ms / 1000 > self.probe_s():
            return 1000 / period_ms
        has_read = pipeline.keeper.count > 0 if pipeline.keeper else examples > pipeline.split.num_examples
        is_full = self.work.plan.spec.cache.keeps and has_read
        return ceiling_per_s(pipeline, self._rows("train"), from_cache=is_full, seconds=self.probe_s())
