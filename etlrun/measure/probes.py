"""Short measurements after a training: the pipeline with nothing behind it, and the steps of its transform one by one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.measure.settled import with_settled
from etlrun.measure.stage_costs import StageCost
from etlrun.stages.transform import Map

_SAMPLE = 16
"""Examples on which the steps of a transform are timed."""


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


def step_costs_ms(pipeline: Pipeline, *, seconds: float) -> dict[str, float]:
    """Milliseconds per example of each step of the transform, in one thread, on a sample that is in memory."""
    planned = next(planned for planned in pipeline.stages if isinstance(planned.stage, Map))
    stage: Any = planned.stage
    sample = pipeline.extracted().take(_SAMPLE).cache()
    _drain_ms(sample)
    budget_s = seconds / (1 + len(stage.steps))
    prefixes = [dataclasses.replace(stage, num_parallel_calls=None, steps=stage.steps[: end + 1]) for end in range(len(stage.steps))]
    through = [sample, *(map_steps(sample, prefix, pipeline.context) for prefix in prefixes)]
    times_ms = [_fastest_ms(dataset, budget_s) for dataset in through]
    costs = [max(0.0, after - before) for before, after in pairwise(times_ms)]
    return {step.path: cost for step, cost in zip(stage.steps, costs, strict=True)}


def _fastest_ms(dataset: tf.data.Dataset, seconds: float) -> float:
    """Per example; other work on the machine only ever adds to it."""
    until_s, fastest_ms = time.perf_counter() + seconds, _drain_ms(dataset)
    while time.perf_counter() < until_s:
        fastest_ms = min(fastest_ms, _drain_ms(dataset))
    return fastest_ms


def _drain_ms(dataset: tf.data.Dataset) -> float:
    began_s, count = time.perf_counter(), 0
    for _example in dataset:
        count += 1
    return 1000 * (time.perf_counter() - began_s) / max(count, 1)
