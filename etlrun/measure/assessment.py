"""Assessment of a run: collects the measurements of its epochs, runs the probes, and writes the verdict."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.measure import verdict as fetching
from etlrun.measure.advice import advice, told
from etlrun.measure.meter import Loop, Shapes, spread_ms
from etlrun.measure.neighbours import Beside
from etlrun.measure.stage_costs import StageCosts
from etlrun.measure.verdict import MeasuredPipeline, by_kind, floors_of, judge, judge_alone, utilisation
from etlrun.measure.watched import Sampler, Watch
from etlrun.planning.plan import Plan, PlannedStage, at_cache, stage_of
from etlrun.record.record import Record
from etlrun.record.summary import Epoch, Fetched, StageCost, StageRow
from etlrun.sources.rows.reader import lengths_of
from etlrun.stages.base import AUTOTUNE, Tuned
from etlrun.stages.cache import cache_bytes
from etlrun.stages.dataset import Dataset, Fetch
from etlrun.stages.load import Batch
from etlrun.stages.sequences import Bucket
from etlrun.stages.step import Map
from etlrun.stages.trainer import Trainer
from etlrun.system.machine import cores
from etlrun.system.values import frozen

_SAMPLE, _FEWEST = 8, 8
"""Number of examples on which transform steps are timed, and the minimum number of timings."""
_LATE, _LONGER = 4, 4
"""A probe goes on while a batch took more than this part of it, but not for longer than so many times its seconds."""


def _settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> Iterator[tuple[PlannedStage, Tuned, int]]:
    """Yield each stage whose config says `autotune`, with the parameter that AUTOTUNE has set, and its value."""
    costs = {row.stage: row for row in rows}
    for planned in stages:
        tuned = planned.stage.tuned
        if tuned is not None and planned.stage.path in costs:
            value = getattr(costs[planned.stage.path], tuned.setting)
            if getattr(planned.stage, tuned.field) == AUTOTUNE and value:
                yield planned, tuned, value


def settled_values(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> dict[str, int]:
    """Return the values that AUTOTUNE chose where the plan says `autotune`, by dotted config key."""
    return {tuned.key: value for _, tuned, value in _settled(stages, rows)}


def with_settled(stages: Sequence[PlannedStage], rows: Sequence[StageCost]) -> list[PlannedStage]:
    """Return `stages` with the values that AUTOTUNE chose, so that another pass starts from them."""
    found = {id(planned): {tuned.field: value} for planned, tuned, value in _settled(stages, rows)}
    return [
        dataclasses.replace(planned, stage=dataclasses.replace(planned.stage, **found.get(id(planned), {})))  # type: ignore[type-var]
        for planned in stages
    ]


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
    sample = pipeline.before(path).take(_SAMPLE).cache().repeat()
    budget_s = seconds / (1 + len(stage.steps))
    # A parallel map with one call: tf.data's serial map polls blocking functions at intervals of 2**n milliseconds.
    prefixes = [
        dataclasses.replace(stage, num_parallel_calls=1, steps=stage.steps[: end + 1])
        for end in range(len(stage.steps))
    ]
    through = [sample, *(map_steps(sample, prefix, pipeline.context) for prefix in prefixes)]
    try:
        periods_ms = [_period_ms(dataset, budget_s) for dataset in through]
    except tf.errors.OpError:
        return {}
    costs = [max(0.0, after - before) for before, after in pairwise(periods_ms)]
    return {step.path: cost for step, cost in zip(stage.steps, costs, strict=True)}


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
        self.work, self._peak_gpu_bytes = work, peak_gpu_bytes
        self.loops: dict[str, list[Loop]] = {name: [] for name in work.pipelines}
        known, folder, trainer = work.record.summary, work.record.folder.resolve(), work.plan.spec.fit
        own = str(folder if known.in_flight is None else folder.parent)
        beside = Beside("a run on several hosts" if trainer is not None and trainer.hosts > 1 else own)
        self._sampler = Sampler(work.watches.values(), beside, with_gpu=bool(known.host.accelerators))
        self._used: dict[str, Any] = {}
        self._handover_s = 0.0
        self._is_drained = work.plan.spec.fit is None

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
        self.loops = {name: [] for name in work.pipelines}

    @property
    def usage(self) -> dict[str, Any]:
        """Memory and CPU over the training so far, as `usage` of the summary; empty if it was too short for that."""
        usage = self._sampler.usage.described()
        return {"usage": usage} if usage else {}

    def begin(self, name: str) -> None:
        """Start an epoch of the pipeline `name`."""
        self.work.watches[name].meter.begin()

    def end(self, name: str) -> Loop:
        """End the epoch of the pipeline `name`, and return its measurements."""
        watch = self.work.watches[name]
        loop = watch.meter.end()
        loop.costs = costs = self._costs_of(name)
        if costs is not None and self._fetches(name):
            costs.rows.insert(0, fetching.row(loop))
        if not loop.steps_s:
            if watch.resumed_batches:
                return loop
            raise self.work.pipelines[name].empty_pass(Dataset.key_of(name))
        if watch.pass_batches is None:
            watch.release()
        if not self.loops[name]:
            self.work.pipelines[name].filled_s = self._filled_s(name, loop)
        if costs is not None:
            self.work.record.event("stages", pipeline=name, stages=[dataclasses.asdict(row) for row in costs.rows])
            if not self.loops[name]:
                first_s = self._first_ms(name, costs) / 1000 + loop.first_fetch_s
                loop.split_fill(self.work.pipelines[name].filling_s + first_s)
        self.loops[name].append(loop)
        return loop

    def _filled_s(self, name: str, loop: Loop) -> float:
        """Return the seconds of a first pass that has filled a cache, without start-up; 0 for any other.

        They are at least those that the pipeline takes for its examples, some of which it reads during the start-up.
        """
        pipeline, warm_s = self.work.pipelines[name], loop.warm_steps_s
        keeper = pipeline.keeper
        if not self.work.plan.spec.cache.keeps or pipeline.filling_s or (keeper and keeper.passes[:1] != ["filled"]):
            return 0.0
        first_s = loop.startup_s - loop.start_s
        usual_s = statistics.median(warm_s) * (len(loop.steps_s) - len(warm_s)) if warm_s else first_s
        took_s = loop.wall_s - max(loop.start_s, pipeline.building_s) - first_s + min(usual_s, first_s)
        period_ms = loop.costs.periods.slowest.period_ms if loop.costs is not None else 0.0
        work_s = period_ms / 1000 * sum(loop.examples)
        return max(took_s, work_s) if work_s < loop.wall_s else took_s

    def _costs_of(self, name: str) -> StageCosts | None:
        """Return the costs of the last pass, by its deepest and its last model.

        None if the pass was too short for a model, or for one that has seen a batch: its costs would be of no example.
        """
        keeper, stages = self.work.pipelines[name].keeper, [planned.stage for planned in self._stages(name)]
        reads_disk = keeper is not None and keeper.passes[-1:] == ["read"]
        seen = [
            StageCosts(
                model, stages, self._batch_size(name), cores(), reads_disk=reads_disk, pass_examples=self._batched(name)
            )
            for model in self.work.watches[name].taken_models()
        ]
        if not seen:
            return None
        seen[0].improve(seen[1])
        has_batches = any(row.examples for row in seen[0].rows[-1:])
        return seen[0] if has_batches and seen[0].periods.work.period_ms else None

    def _batched(self, name: str) -> int:
        """Return the number of examples in the batches of a pass, if no record is skipped."""
        batch, num_examples = stage_of(self._stages(name), Batch), int(self.work.pipelines[name].split.num_examples)
        if isinstance(batch, Bucket):
            return self._in_buckets(name, batch)[0]
        if batch is None or not batch.drop_remainder:
            return num_examples
        return num_examples // batch.batch_size * batch.batch_size

    def _in_buckets(self, name: str, batch: Bucket) -> tuple[int, int]:
        """Return the number of examples in the batches of a pass, and the number of these."""
        pipeline = self.work.pipelines[name]
        lengths = lengths_of(pipeline.context.source, pipeline.split, batch.columns)  # type: ignore[arg-type] # of rows
        ends = batch.cut(lengths)[1]
        return int(ends[-1]), len(ends) - 1

    def _first_ms(self, name: str, costs: StageCosts) -> float:
        """Return the time that the first batch takes, with the examples that go through the stages of the buffer."""
        stages, costs_ms = [planned.stage for planned in self._stages(name)], costs.periods.slowest.period_ms
        count = int(self.work.pipelines[name].split.num_examples)
        place = next((place for place, stage in enumerate(stages) if stage.holds), None)
        if place is None or costs.reads_disk:  # a disk cache is shuffled by number
            return min(self._batch_size(name), count) * costs_ms
        before = {stage.path for stage in stages[: place + 1]}
        if Map.path in before:
            return min(self._batch_size(name) + stages[place].holds, count) * costs_ms
        read_ms = sum(row.cost_ms for row in costs.rows if row.stage in before)
        return min(stages[place].holds, count) * read_ms + min(self._batch_size(name), count) * costs_ms

    def probe_s(self) -> float:
        """Return the duration of a probe in seconds."""
        trained_s = sum(loop.wall_s for loop in self.loops["train"])
        return min(max(_PROBE_SHARE * trained_s, _PROBE_LEAST_S), _PROBE_MOST_S)

    @property
    def au(self) -> float | None:
        """Accelerator utilization (AU) of the training in the last epoch, as far as floors are known by then."""
        return utilisation([self._side("train", ()).of_epochs(-1)])

    def shares(self, times_compiled: int) -> dict[Shapes, float]:
        """Return the part of the time of training steps by their shapes, of the model as it is compiled now."""
        now_s = {of.shapes: sum(s) for of, s in by_kind(self.loops["train"]).items() if of.compiled == times_compiled}
        return {shapes: step_s / sum(now_s.values()) for shapes, step_s in now_s.items()}

    def conclude(self, ready: Sequence[Loop]) -> None:
        """Write the verdict and its evidence to the summary; `ready` holds steps on batches that were ready."""
        if not self.loops["train"]:  # a resumed run that was already complete
            return
        if handovers_s := [wait_s for loop in ready for wait_s in loop.warm(loop.waits_s)]:
            self._handover_s = statistics.median(handovers_s)
        ceiling, tuned = self._ceiling_per_s(), settled_values(self.work.train.stages, self._rows("train"))
        sides = [self._side(name, ready if name == "train" else ()) for name in self.work.pipelines]
        if self._is_drained:
            verdict = judge_alone(sides[0], ceiling, self.work.plan.spec.trainer.step_ms)
        else:
            verdict = judge(sides, ceiling, self._step_costs_ms, cores())
        train, name = sides[0], verdict.pipeline or "train"
        stages, rows = self._stages(name), self._rows(name)
        steady_s = sum(loop.measured_s - loop.fill_s for loop in train.loops)
        waits_s = sum(loop.input_wait_s for loop in train.loops)
        advised = advice(
            verdict.stage,
            self.work.plan,
            rows,
            {
                "cores": cores(),
                "shards": len(self.work.pipelines[name].split.shards),
                "cached_bytes": sum(map(cached_bytes, self.work.pipelines.values())),
                "epochs": len(self.loops["train"]),
                "fetched_bytes": self._fetched_bytes(self.work.pipelines),
            },
        )
        epochs, copies = self._with_au(train), self.work.train.context.source.copies
        self.work.record.update(
            verdict=dataclasses.replace(verdict, advice=told(verdict.advice or advised, self.work.plan.spec)),
            step_floor_ms=None if train.floor_s is None else 1000 * train.floor_s,
            step_floor_cores=statistics.fmean([loop.cores or 0.0 for loop in ready]) if ready else None,
            pipeline_examples_per_s=ceiling,
            au=utilisation(sides),
            epochs=epochs,
            input_wait_s=sum(epoch.input_wait_s for epoch in epochs),
            **spread_ms([wait_s for loop in train.loops for wait_s in loop.waits_s]),
            input_wait_share=waits_s / steady_s if steady_s > 0 else None,
            fill_wait_s=sum(epoch.fill_wait_s for epoch in epochs),
            validation_wait_s=sum(epoch.validation_wait_s for epoch in epochs),
            stages=[
                StageRow(**dataclasses.asdict(row), set_by="autotune" if settled_values(stages, [row]) else "config")
                for row in rows
            ],
            autotune=tuned,
            **({} if copies is None else {"fetched": Fetched(**dataclasses.asdict(copies.traffic))}),
            resources=self._used,
            **self.usage,
        )

    def _with_au(self, train: MeasuredPipeline) -> list[Epoch]:
        """Return all epochs of the run, those of `train` with the AU by its floors."""
        epochs = self.work.record.summary.epochs
        first = len(epochs) - len(train.loops)
        aus = [utilisation([train.of_epochs(number, number + 1)]) for number in range(len(train.loops))]
        return [*epochs[:first], *(of.with_values(au=au) for of, au in zip(epochs[first:], aus, strict=True))]

    def _fetches(self, name: str) -> bool:
        return stage_of(self._stages(name), Fetch) is not None

    def _fetched_bytes(self, names: Iterable[str]) -> int:
        """Return the bytes of all objects of these pipelines; 0 of files on this machine."""
        sizes = [self.work.pipelines[name].split.sizes for name in names if self._fetches(name)]
        return sum({path: size for of in sizes for path, size in of.items()}.values())

    def _stages(self, name: str) -> tuple[PlannedStage, ...]:
        return self.work.pipelines[name].stages

    def _batch_size(self, name: str) -> int:
        """Return the number of examples in a batch; in the mean, where buckets have batches of several sizes."""
        batch = stage_of(self._stages(name), Batch)
        if isinstance(batch, Bucket):
            examples, batches = self._in_buckets(name, batch)
            return max(round(examples / max(batches, 1)), 1)
        return self.work.plan.spec.load.batch_size

    def _side(self, name: str, ready: Sequence[Loop]) -> MeasuredPipeline:
        """Return the measurements of a pipeline, with the floors of its steps unless it was drained."""
        return MeasuredPipeline(
            name=name,
            paths=tuple(planned.stage.path for planned in self._stages(name)),
            loops=tuple(self.loops[name]),
            floors={} if self._is_drained else floors_of(self.loops[name], ready),
            handover_s=self._handover_s,
            example_bytes=self._fetched_bytes([name]) / max(1, self.work.pipelines[name].split.num_examples),
        )

    def _rows(self, name: str) -> list[StageCost]:
        """Return the stage costs of the epoch with the longest wait; other epochs supply the stages that it lacks."""
        rows: dict[str, StageCost] = {}
        for loop in sorted(self.loops[name], key=lambda loop: -(loop.fill_s + loop.input_wait_s)):
            for row in loop.costs.rows if loop.costs is not None else ():
                rows.setdefault(row.stage, row)
        return [rows[planned.stage.path] for planned in self._stages(name) if planned.stage.path in rows]

    def _ceiling_per_s(self) -> float | None:
        """Return the throughput of the pipeline alone: measured, or from its slowest thread if batches are slow."""
        loops, rows = self.loops["train"], self._rows("train")
        examples = sum(sum(loop.examples) for loop in loops)
        if self._is_drained:
            measured_s = sum(loop.measured_s for loop in loops)
            return examples / measured_s if measured_s > 0 else None
        costs = loops[-1].costs
        period_ms = costs.periods.slowest.period_ms if costs is not None else 0.0
        if self._batch_size("train") * period_ms / 1000 > self.probe_s():
            return 1000 / period_ms
        has_cache = self.work.plan.spec.cache.keeps
        keeper = self.work.train.keeper
        is_full = has_cache and (keeper.count > 0 if keeper else examples > self.work.train.split.num_examples)
        return ceiling_per_s(self.work.train, rows, from_cache=is_full, seconds=self.probe_s())

    def _step_costs_ms(self, name: str, stage: str) -> Mapping[str, float]:
        return step_costs_ms(self.work.pipelines[name], stage, seconds=self.probe_s())
