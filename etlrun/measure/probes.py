"""Short measurements after a training: the pipeline with nothing behind it, and the steps of its transform."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.measure.settled import with_settled
from etlrun.record.findings import StageCost

_SAMPLE, _FEWEST = 8, 8
"""Examples on which the steps of a transform are timed, and how often at least."""


def ceiling_per_s(pipeline: Pipeline, rows: Sequence[StageCost], *, from_cache: bool, seconds: float) -> float:
    """Examples a second that the pipeline gives when nothing waits behind it.

    It reads without its shuffle stage, which changes the rate of no long pass, and with the numbers that AUTOTUNE had
    settled on. `from_cache` reads what the training's cache holds; otherwise the cache is left out.
    """
    dataset = pipeline.alone(with_settled(pipeline.stages, rows), from_cache=from_cache)
    batches = iter(dataset.repeat())
    next(batches)
    began_s, examples, elapsed_s = time.perf_counter(), 0, 0.0
    while elapsed_s < seconds or not examples:
        examples += int(next(batches)[1].shape[0])
        elapsed_s = time.perf_counter() - began_s
    return examples / elapsed_s


def step_costs_ms(pipeline: Pipeline, path: str, *, seconds: float) -> dict[str, float]:
    """Milliseconds per example of each step of the map `path`, in one thread, on a sample that is in memory.

    Empty where the sample holds a record that the run has skipped.
    """
    stage: Any = next(planned.stage for planned in pipeline.stages if planned.stage.path == path)
    sample = pipeline.before(path).take(_SAMPLE).cache().repeat()
    budget_s = seconds / (1 + len(stage.steps))
    # Parallel with one call: tf.data's serial map waits for functions that block in powers of two milliseconds.
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
    """From one element to the next, the median; the first pass over the sample is left out."""
    elements, times_ms = iter(dataset), list[float]()
    for _ in range(_SAMPLE):
        next(elements)
    until_s = time.perf_counter() + seconds
    while len(times_ms) < _FEWEST or time.perf_counter() < until_s:
        began_s = time.perf_counter()
        next(elements)
        times_ms.append(1000 * (time.perf_counter() - began_s))
    return statistics.median(times_ms)
