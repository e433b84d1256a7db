"""Probes after a training: the pipeline alone with the values of AUTOTUNE, each transform step, and the cache."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.planning.plan import PlannedStage, at_cache
from etlrun.record.findings import StageCost
from etlrun.stages.base import AUTOTUNE, Tuned
from etlrun.stages.cache import cache_bytes

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
