"""How far do workers of tf.data's service get, and what is the limit then? A simulation from measured costs.

    python -m benchmarks.workers --run RUN [--storage-gb-per-s 10] [--network-gbit-per-s 25]
                               [--output benchmarks/results/workers.md]

`RUN` is a run whose stages have been measured, without a cache (`etlrun trainer=drain cache=none`). Its machine is a
worker. What is measured here beside are bytes that a client receives per second, over loopback on the cores that worker
and client share, so that it is a lower bound.

Every worker reads all records and transforms every n-th batch, and the client takes the batches in turn. Each worker
keeps two batches ready; its times are drawn from a gamma distribution.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from etlrun.record.config import read_config
from etlrun.record.summary import Summary, read_summary
from etlrun.system import machine

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SPREAD = 0.3
"""Standard deviation of the time of a batch, as a share of the mean."""
READY, ROUNDS = 2, 400
"""Batches that a worker keeps ready, and batches of each worker that are simulated."""
HEAD = ("workers", "examples/s", "limit")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of an example: milliseconds of one core, and bytes; and what is shared by all workers.

    Attributes:
        read_ms: Reading and shuffling of a record; each worker does it for all of them.
        transform_ms: Decoding and all further steps.
        record_bytes, given_bytes: Size of a record, and of what the model gets of it.
        cores, batch_size: Cores of a worker, and examples per batch.
        storage_bytes_per_s, client_bytes_per_s: What the storage delivers to all workers, and what the client receives.
    """

    read_ms: float
    transform_ms: float
    record_bytes: float
    given_bytes: float
    cores: int
    batch_size: int
    storage_bytes_per_s: float
    client_bytes_per_s: float

    def rates(self, workers: int) -> Mapping[str, float]:
        """Examples per second that each part allows; the workers are simulated."""
        is_reading = workers * self.read_ms > self.transform_ms
        return {
            "reading, which each worker does for all" if is_reading else "workers": self._in_turn(workers),
            "storage, read by each worker": self.storage_bytes_per_s / (workers * self.record_bytes),
            "network of the client": self.client_bytes_per_s / self.given_bytes,
        }

    def _in_turn(self, workers: int) -> float:
        """Examples per second of workers whose batches are taken in turn, without any other limit."""
        mean_s = self.batch_size * (workers * self.read_ms + self.transform_ms) / 1000 / self.cores
        shape = 1 / SPREAD**2
        takes_s = np.random.default_rng(0).gamma(shape, mean_s / shape, (ROUNDS, workers))
        ready_s, taken_s, now_s = np.zeros((ROUNDS, workers)), np.zeros((ROUNDS, workers)), 0.0
        for turn in range(ROUNDS):
            begun_s = ready_s[turn - 1] if turn else np.zeros(workers)
            if turn >= READY:
                begun_s = np.maximum(begun_s, taken_s[turn - READY])
            ready_s[turn] = begun_s + takes_s[turn]
            taken_s[turn] = np.maximum.accumulate(np.maximum(ready_s[turn], now_s))
            now_s = taken_s[turn, -1]
        first = ROUNDS // 2
        return float((ROUNDS - first) * workers * self.batch_size / (now_s - taken_s[first - 1, -1]))


def client_bytes_per_s(batch_bytes: int, batches: int = 400) -> float:
    """Bytes that a client receives per second in batches of that size."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    server = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    made = tf.data.Dataset.from_tensors(tf.zeros(batch_bytes, tf.uint8)).repeat(batches)
    dataset = made.apply(service.distribute(service.ShardingPolicy.OFF, dispatcher.target))
    began_s = time.perf_counter()
    count = sum(1 for _ in dataset)
    took_s = time.perf_counter() - began_s
    del server
    return count * batch_bytes / took_s


def costs_of(folder: Path, summary: Summary, known: argparse.Namespace) -> Costs:
    """The costs of a run, and of what is shared."""
    config = read_config(folder)
    of_stages = {row.stage: row.cost_ms for row in summary.stages}
    read_ms = sum(ms for stage, ms in of_stages.items() if stage.startswith(("extract.", "load.")))
    height, width = config["transform"]["resize"]["size"]
    batch_size, given_bytes = int(config["load"]["batch_size"]), height * width * 3
    network = known.network_gbit_per_s * 1e9 / 8
    examples = sum(summary.dataset.examples.values())
    return Costs(
        read_ms=read_ms,
        transform_ms=sum(of_stages.values()) - read_ms,
        record_bytes=summary.dataset.bytes / examples,
        given_bytes=given_bytes,
        cores=summary.host.cores or 1,
        batch_size=batch_size,
        storage_bytes_per_s=known.storage_gb_per_s * 1e9,
        client_bytes_per_s=min(network, client_bytes_per_s(batch_size * given_bytes)),
    )


def table(costs: Costs) -> str:
    """The rates and their limits, by the number of workers."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for workers in WORKERS:
        rates = costs.rates(workers)
        limit = min(rates, key=lambda part: rates[part])
        lines.append(f"| {workers:,} | {rates[limit]:,.0f} | {limit} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, simulate, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--storage-gb-per-s", type=float, default=10)
    parser.add_argument("--network-gbit-per-s", type=float, default=25)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    summary = read_summary(known.run)
    assert summary is not None, known.run
    costs = costs_of(known.run, summary, known)
    given = (
        f"Workers of {costs.cores} cores; an example takes {costs.read_ms:.3f} ms of a core to read and "
        f"{costs.transform_ms:.3f} ms to transform, {costs.record_bytes / 1000:,.0f} kB as a record and "
        f"{costs.given_bytes / 1000:,.0f} kB as the model gets it. The storage delivers "
        f"{costs.storage_bytes_per_s / 1e9:g} GB/s, the client receives {costs.client_bytes_per_s / 1e9:.2f} GB/s."
    )
    print(f"{given}\n\n{table(costs)}")
    if known.output:
        how = "python -m benchmarks.workers --run RUN"
        known.output.write_text(f"`{how}` on {machine.cores()} cores\n\n{given}\n\n{table(costs)}\n")


if __name__ == "__main__":
    main()
