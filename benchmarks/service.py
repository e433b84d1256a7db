"""Workers of a service: how batches per second grow with their number, exact against dynamic, and passes under kills.

    python -m benchmarks.service [--workers 1 2 4 8] [--kills 30] [--output benchmarks/results/service.md]

Each worker sleeps for each batch, in its graph, in place of a transform that takes a core for so long: two cores stand
in for many. The run holds each batch for 1 ms, as an accelerator does. The batches are single images of the sample
dataset, so that what a batch costs apart from that is counted fully. The rate is that of a pass from its first batch to
its last.

With `--kills`, a random worker is killed at a random moment of each pass with `order: exact`; the digest is over all
batches in order.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.plan.plan import Plan
from etlrun.run.service.pipeline import ServedPipeline
from etlrun.run.service.servers import Servers
from etlrun.run.session import contexts_of
from etlrun.sources.base import Source
from etlrun.sources.open import open_source
from etlrun.stages import STAGES
from etlrun.stages.service import Service

HELD_S = 0.001
"""Time for which the run holds a batch."""
SLEEP_MS, KILLED_SLEEP_MS = 20, 5
"""Time for which a worker sleeps for a batch: for rates, and for kills."""
KILLED_WORKERS = 3
RATED, KILLED = 'dataset.split="train[:40%]"', 'dataset.split="train[:25%]"'
OVERRIDES = [
    "load=service",
    "cache=none",
    "load.batch_size=1",
    "load.shuffle_buffer=64",
    "transform.num_parallel_calls=2",
]


class Slow(ServedPipeline):
    """A pipeline whose workers sleep for each batch."""

    sleep_ms = SLEEP_MS

    def _part(self, number: int, lane: int, done: int) -> tf.data.Dataset:
        return super()._part(number, lane, done).apply(testing.sleep(1000 * self.sleep_ms))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    lines: list[str] = []
    for line in _lines(known.workers, known.passes, known.kills):
        print(line, flush=True)
        lines.append(line)
    text = "\n".join(lines) + "\n"
    if known.output:
        known.output.write_text(text, encoding="utf-8")


def _lines(workers: list[int], passes: int, killed_passes: int) -> Iterator[str]:
    yield f"`python -m benchmarks.service` on {os.cpu_count()} cores"
    yield ""
    yield from rates(workers, passes)
    if killed_passes:
        yield ""
        yield from kills(killed_passes)


@contextlib.contextmanager
def served(plan: Plan, source: Source, **values: Any) -> Iterator[Slow]:
    """Yield the training pipeline of a plan, read from servers of its own."""
    service = Service(**values)
    contexts = contexts_of(plan, source, with_validation=False)
    pipeline = Slow("train", plan.train, contexts["train"], Servers(service, print))
    try:
        yield pipeline
    finally:
        pipeline.close()


def rates(counts: list[int], passes: int) -> Iterator[str]:
    """Yield the table of batches per second."""
    source = open_source(planned(RATED).spec.dataset)
    yield "| workers | exact, batches/s | of linear | dynamic, batches/s | exact of dynamic |"
    yield "|---|---|---|---|---|"
    alone: dict[str, float] = {}
    for count in counts:
        found = {}
        for order in ("exact", "dynamic"):
            with served(planned(RATED, f"load.service.order={order}"), source, workers=count, order=order) as pipeline:
                found[order] = max(rate(pipeline) for _ in range(passes))
            alone.setdefault(order, found[order] / count)
        linear = found["exact"] / (count * alone["exact"])
        yield (
            f"| {count} | {found['exact']:.0f} | {linear:.2f} | {found['dynamic']:.0f} | "
            f"{found['exact'] / found['dynamic']:.2f} |"
        )


def planned(*overrides: str) -> Plan:
    """Return the plan of the sample dataset."""
    return resolve(Request(overrides=[*OVERRIDES, *overrides]), STAGES).plan


def rate(pipeline: Pipeline) -> float:
    """Return the batches per second of a pass, of which each is held."""
    batches = iter(pipeline.dataset)
    next(batches)
    began_s, count = time.perf_counter(), 0
    for _ in batches:
        time.sleep(HELD_S)
        count += 1
    return count / (time.perf_counter() - began_s)


def kills(count: int) -> Iterator[str]:
    """Yield the table of passes in which workers are killed."""
    plan = planned(KILLED)
    source, chance = open_source(plan.spec.dataset), random.Random(0)  # noqa: S311 - no secret
    with served(plan, source, workers=KILLED_WORKERS) as pipeline:
        pipeline.sleep_ms = KILLED_SLEEP_MS
        began_s = time.perf_counter()
        expected, pass_s = digest(pipeline), time.perf_counter() - began_s
        equal, restarts = 0, pipeline.servers.restarts
        for _ in range(count):
            pipeline.skip_passes(-1)
            killer = threading.Timer(chance.uniform(0, pass_s), killed, (pipeline.servers, chance))
            killer.start()
            equal += digest(pipeline) == expected
            killer.join()
        restarts = pipeline.servers.restarts - restarts
    yield "| passes with a kill | of equal digest | workers started again | batches of a pass |"
    yield "|---|---|---|---|"
    yield f"| {count} | {equal} | {restarts} | {pipeline.batches_in_pass} |"


def killed(servers: Servers, chance: random.Random) -> None:
    """Kill a random worker."""
    process = chance.choice(servers._dispatchers).process  # noqa: SLF001 - there is no way to do it from outside
    if process.is_alive():
        os.kill(process.pid or 0, signal.SIGKILL)


def digest(pipeline: Pipeline) -> str:
    """Return the digest of all batches of a pass, in their order."""
    found = hashlib.sha256()
    for batch in pipeline.dataset:
        for part in tf.nest.flatten(batch):
            found.update(part.numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    main()
