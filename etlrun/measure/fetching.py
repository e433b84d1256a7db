"""The fetching of shards as the limit of a run: the rate at which they arrive, and the one that its model consumes."""

from __future__ import annotations

from collections.abc import Sequence

from etlrun.measure.meter import Loop
from etlrun.measure.side import Side
from etlrun.record.findings import StageCost, Verdict
from etlrun.stages.dataset import Fetch

WORTH_REPORTING = 0.05
"""Fraction of the total time; a smaller part is not reported."""
_MB = 1e6


def is_limit(loop: Loop) -> bool:
    """Return whether a pass waited for shards: on the way, or for most of the time to its first batch.

    The reader of shards waits only if those behind it want more: where another stage is the slowest, they are there.
    """
    on_the_way_s = loop.traffic.waited_s - loop.first_fetch_s
    if on_the_way_s > WORTH_REPORTING * loop.measured_s:
        return True
    return loop.fill_s > loop.input_wait_s and loop.first_fetch_s >= loop.fill_s / 2


def row(loop: Loop) -> StageCost:
    """Return the cost of the stage in a pass: what its reader waited."""
    examples = sum(loop.examples)
    return StageCost(stage=Fetch.path, examples=examples, cost_ms=1000 * loop.traffic.waited_s / max(1, examples))


def verdict(side: Side, waited: str) -> Verdict:
    """Return the verdict on a pipeline whose passes wait for shards, of which steps `waited` so long."""
    loops = [loop for loop in side.loops if is_limit(loop)]
    arrive, consumed = arriving_per_s(loops), _consumed_per_s(side)
    if arrive is None or consumed is None or arrive >= consumed:
        first_s = sum(loop.first_fetch_s for loop in loops)
        because = f"{waited}; each pass first waits for shards, {first_s:.2f} s in all"
        return Verdict(kind="input", stage=Fetch.path, pipeline=side.pipeline, because=because)
    rates = f"shards arrive at {arrive / _MB:,.1f} MB/s, and the model consumes {consumed / _MB:,.1f} MB/s"
    return Verdict(
        kind="input",
        stage=Fetch.path,
        pipeline=side.pipeline,
        because=f"{waited}; {rates}",
        arriving_bytes_per_s=arrive,
        consumed_bytes_per_s=consumed,
    )


def arriving_per_s(loops: Sequence[Loop]) -> float | None:
    """Return the bytes per second that arrived while shards were fetched; None if none was."""
    busy_s, count = sum(loop.traffic.busy_s for loop in loops), sum(loop.traffic.bytes for loop in loops)
    return count / busy_s if busy_s > 0 and count else None


def _consumed_per_s(side: Side) -> float | None:
    """Return the bytes of shards that the model would consume per second; None if its step is not known."""
    return side.example_bytes / side.example_s if side.example_s and side.example_bytes else None
