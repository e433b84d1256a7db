"""Stage costs of a pipeline that other processes compute, from a probe in each of them after the training.

tf.data keeps the model of a pass where it is computed, and its service does not tell it to the reader.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import tensorflow as tf

from etlrun.measure.stage_costs import Periods, StageCosts, Thread
from etlrun.measure.watched import Watch
from etlrun.record.findings import StageCost
from etlrun.stages.load import Prefetch
from etlrun.stages.service import Service

_LOOKS_APART_S = 0.02


def models_of(batches: tf.data.Dataset, seconds: float) -> list[bytes]:
    """Read `batches`, again and again, for that time; return the models of its stages, serialised, as `Watch` does."""
    watch, until_s, looked_s, is_empty = Watch(with_digest=False), time.perf_counter() + seconds, 0.0, False
    while time.perf_counter() < until_s and not is_empty:
        iterator, is_empty = iter(batches), True
        for _ in iterator:
            now_s, is_empty = time.perf_counter(), False
            if now_s - looked_s > _LOOKS_APART_S:
                watch.look(iterator)
                looked_s = now_s
            if now_s > until_s:
                break
    return [model.SerializeToString() for model in watch.taken_models()]


def over_workers(each: Sequence[StageCosts], reading: Collection[str], readers: int, period_ms: float) -> StageCosts:
    """Return the costs of a pipeline per example that it delivers, from those of its workers.

    The stages of `reading` read all examples in each of `readers` workers. What the slowest thread of the workers does
    not explain of `period_ms`, the time per example that was measured, is the cost of the service itself.
    """

    def times(stage: str) -> int:
        return readers if stage in reading else 1

    def mean(pick: Callable[[Periods], Thread]) -> Thread:
        total = Thread()
        for costs in each:
            total = total.and_then(pick(costs.periods))
        return Thread({stage: times(stage) * ms / len(each) for stage, ms in total.shares.items()})

    work, whole = mean(lambda of: of.work), copy.copy(each[0])
    threads = {row.stage: row.parallelism or 1 for row in whole.rows}
    read = Thread({stage: ms / threads.get(stage, 1) for stage, ms in work.of(reading).shares.items()})
    slowest = max(mean(lambda of: of.slowest), read, key=lambda thread: thread.period_ms).scaled(1 / len(each))
    own_ms = max(0.0, period_ms - slowest.period_ms)
    examples = sum(costs.rows[0].examples for costs in each)
    inside = [row for row in whole.rows if row.stage != Prefetch.path]  # which the reader does
    rows = [replace(row, cost_ms=work.shares.get(row.stage, 0.0)) for row in inside]
    whole.rows = [*rows, StageCost(stage=Service.path, examples=examples, cost_ms=own_ms)]
    whole.periods = Periods(behind=slowest.plus(Service.path, own_ms), work=work)
    return whole
