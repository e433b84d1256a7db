"""Workers of a service: how batches per second grow with their number, and passes under kills.

    python -m benchmarks.service [--workers 1 2 4 8] [--kills 30] [--output benchmarks/results/service.md]

Dispatchers and workers are started by `etlrun service`. Each worker sleeps for each batch, in its graph, in place of a
transform that takes a core for so long: two cores stand in for many. The run holds each batch for 1 ms, as an
accelerator does. The batches are single images of the sample dataset, so that what a batch costs apart from that is
counted fully. The rate is that of a pass from its first batch to its last.

With `--kills`, a random worker is killed at a random moment of each pass, and started again by the benchmark; the
digest is over all batches in order.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from etlrun.cluster.service import ServedPipeline
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES

HELD_S = 0.001
"""Time for which the run holds a batch."""
SLEEP_MS, KILLED_SLEEP_MS = 20, 5
"""Time for which a worker sleeps for a batch: for rates, and for kills."""
KILLED_WORKERS = 3
FIRST_PORT = 5150
RATED, KILLED = 'dataset.split="train[:40%]"', 'dataset.split="train[:25%]"'
OVERRIDES = [
    "load=service",
    "load.service.trusted_network=true",
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


class Server:
    """A dispatcher or a worker, in a process of its own."""

    def __init__(self, *words: str) -> None:
        self._words = [sys.executable, "-m", "etlrun", "service", *words, "--trusted-network"]
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._words, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        while "without encryption" not in (line := self._process.stderr.readline()):
            assert line, self._words

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill the process, and start it again."""
        self.kill()
        self._start()


@contextlib.contextmanager
def clusters(count: int) -> Iterator[tuple[list[str], list[Server]]]:
    """Yield the addresses of so many dispatchers, and their workers."""
    ports = [FIRST_PORT + place for place in range(count)]
    dispatchers = [Server("dispatcher", "--port", str(port)) for port in ports]
    workers = [Server("worker", "--dispatcher", f"localhost:{port}", "--port", str(port + 100)) for port in ports]
    try:
        yield [f"localhost:{port}" for port in ports], workers
    finally:
        for server in (*workers, *dispatchers):
            server.kill()


@contextlib.contextmanager
def served(addresses: list[str], *overrides: str) -> Iterator[Slow]:
    """Yield the training pipeline of a plan that reads from these dispatchers."""
    plan = resolve(Request(overrides=[*OVERRIDES, f"load.service.address={addresses}", *overrides]), STAGES).plan
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    pipeline = Slow("train", plan, contexts["train"])
    try:
        yield pipeline
    finally:
        pipeline.close()


def rates(counts: list[int], passes: int) -> Iterator[str]:
    """Yield the table of batches per second."""
    yield "| workers | batches/s | of linear |"
    yield "|---|---|---|"
    alone = 0.0
    with clusters(max(counts)) as (addresses, _):
        for count in counts:
            with served(addresses[:count], RATED) as pipeline:
                found = max(rate(pipeline) for _ in range(passes))
            alone = alone or found / count
            yield f"| {count} | {found:.0f} | {found / (count * alone):.2f} |"


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
    chance = random.Random(0)  # noqa: S311 - no secret
    with clusters(KILLED_WORKERS) as (addresses, workers), served(addresses, KILLED) as pipeline:
        pipeline.sleep_ms = KILLED_SLEEP_MS
        began_s = time.perf_counter()
        expected, pass_s = digest(pipeline), time.perf_counter() - began_s
        equal = 0
        for _ in range(count):
            pipeline.skip(-1)
            killer = threading.Timer(chance.uniform(0, pass_s), chance.choice(workers).restart)
            killer.start()
            equal += digest(pipeline) == expected
            killer.join()
    yield "| passes with a kill | of equal digest | batches of a pass |"
    yield "|---|---|---|"
    yield f"| {count} | {equal} | {pipeline.batches_in_pass} |"


def digest(pipeline: Pipeline) -> str:
    """Return the digest of all batches of a pass, in their order."""
    found = hashlib.sha256()
    for batch in pipeline.dataset:
        for part in tf.nest.flatten(batch):
            found.update(part.numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    main()
