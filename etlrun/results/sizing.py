"""Sizing of the input for an accelerator, from the costs that a run has measured.

A stage that takes c seconds per example, summed over its threads, keeps r * c threads busy at r examples per second
(Little's law). An accelerator of step time s is used at a share a if a batch arrives each s / a seconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun.record import record as records
from etlrun.record.config import read_config
from etlrun.record.findings import Fetched, Resources
from etlrun.record.summary import Summary
from etlrun.stages.fetch import Fetch
from etlrun.system.errors import WorldError

_UNSURE = 1.25
"""Factor by which the cost of a single pass may be wrong."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """A figure with its bounds, from the passes of a run.

    Attributes:
        low: The lowest; `likely` is the median, `high` the highest.
    """

    low: float
    likely: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the range with each value multiplied by `factor`."""
        return Range(low=self.low * factor, likely=self.likely * factor, high=self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Need:
    """What passes of one kind need.

    Attributes:
        passes: `each pass`; with a cache, `the first pass` or `later passes`.
        busy: Threads that all stages together keep busy; as many cores, if none of them waits for storage.
        cores: Cores that compute, by the CPU time of the run; None if its model computes, too, or a cache serves it.
        threads: Threads that each stage keeps busy.
        workers: Machines like that of the run.
        storage_bytes_per_s: Rate at which records are read; 0 from a cache in memory.
        arriving_bytes_per_s: Rate at which the store of the run gave them; None if none was fetched.
    """

    passes: str
    busy: Range
    cores: float | None
    threads: Mapping[str, float]
    workers: int
    storage_bytes_per_s: float
    arriving_bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """What an accelerator needs.

    Attributes:
        step_ms: Milliseconds of its step.
        au: Accelerator utilization (AU) to reach, from 0 to 1.
        batch_size: Examples per batch.
        examples_per_s: Examples that it consumes then.
        worker_cores: Cores of the machine of the run.
        cache_bytes: Size of the caches of the run; None without one.
        cache_at: Target and point of the cache; empty without one.
        needs: Passes of the run by their kind.
    """

    step_ms: float
    au: float
    batch_size: int
    examples_per_s: float
    worker_cores: int
    cache_bytes: int | None
    cache_at: str
    needs: Sequence[Need]


def size(folder: Path, summary: Summary, step_ms: float | None, au: float) -> Sizing:
    """Return what an accelerator of that step time needs, by the costs of the run in `folder`.

    Without `step_ms` it is the accelerator of the run. `WorldError` if the run has not measured what is needed.
    """
    config = read_config(folder)
    if config["load"].get("service") is not None:
        remedy = "size a run of the same config with load=shuffled"
        raise _unmeasured(folder, "load.service, whose passes are not measured", "a run without a service", remedy)
    batch_size, step_ms = int(config["load"]["batch_size"]), step_ms or _step_ms(summary, config)
    if step_ms is None:
        remedy = "pass --step-ms, the milliseconds of a training step of your accelerator"
        raise _unmeasured(folder, "a run without a training step", "the time of a step", remedy)
    passes = [*_passes(folder)]
    if not passes or not summary.dataset.examples.get("train"):
        remedy = "run it for longer, with the trainer `drain` if there is no accelerator here"
        raise _unmeasured(folder, "no costs of stages: its passes were too short", "a run with measured stages", remedy)
    rate, cache = batch_size / (step_ms / 1000) * au, summary.cache
    machine = _machine(summary, config)
    needs = [_need(kind, costs, rate, machine, summary) for kind, costs in _kinds(passes, has_cache=cache is not None)]
    held = sum(one.held_bytes for one in cache.pipelines.values()) if cache is not None else None
    return Sizing(
        step_ms=step_ms,
        au=au,
        batch_size=batch_size,
        examples_per_s=rate,
        worker_cores=machine.cores,
        cache_bytes=held,
        cache_at=f"{cache.target.removeprefix('cache.')}, {cache.at}" if cache is not None else "",
        needs=needs,
    )


def _step_ms(summary: Summary, config: Mapping[str, Any]) -> float | None:
    own = config["model"].get("step_ms") if config["model"].get("name") == "emulated" else None
    return summary.step_floor_ms or config["trainer"].get("step_ms") or own


def _unmeasured(folder: Path, found: str, expected: str, remedy: str) -> WorldError:
    return WorldError(where=str(folder), found=found, expected=expected, remedy=remedy)


def _passes(folder: Path) -> Iterator[dict[str, float]]:
    """Yield the milliseconds per example of each stage in each training pass that was sampled."""
    for event in records.events(folder):
        if event.get("event") == "stages" and event["pipeline"] == "train":
            yield {row["stage"]: row["cost_ms"] for row in event["stages"] if row["stage"] != Fetch.path}


def _kinds(passes: Sequence[dict[str, float]], *, has_cache: bool) -> Iterator[tuple[str, Sequence[dict[str, float]]]]:
    """Yield the passes by their kind: a pass that reads a cache does not read records.

    Without a cache each does, but the reading of one that is shorter than the shuffle buffer may be over before the
    first sample: such passes are left out where others are complete.
    """
    reading = [costs for costs in passes if any(stage.startswith("extract.") for stage in costs)]
    if not has_cache:
        yield "each pass", reading or passes
        return
    others = [costs for costs in passes if costs not in reading]
    if reading:
        yield "the first pass", reading
    if others:
        yield "later passes", others


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """The machine of the run: its cores, and what it took for an example of the pipeline alone, where that is known."""

    cores: int
    alone_ms: float | None
    cpu_ms: float | None


def _machine(summary: Summary, config: Mapping[str, Any]) -> _Machine:
    """Return the machine; milliseconds per example are None if there is more in them."""
    rate, used = summary.pipeline_examples_per_s, summary.resources or Resources()
    examples = sum(epoch.examples for epoch in summary.epochs)
    is_bare = summary.cache is None and not config["trainer"].get("step_cores")
    is_drained = config["trainer"].get("name") == "drain"
    is_alone = is_bare and (not is_drained or not config["trainer"].get("step_ms"))
    computes_alone = is_bare and (is_drained or config["model"].get("name") == "emulated")
    return _Machine(
        cores=summary.host.cores or 1,
        alone_ms=1000 / rate if rate and is_alone else None,
        cpu_ms=1000 * used.cpu_s / examples if used.cpu_s and examples and computes_alone else None,
    )


def _need(passes: str, costs: Sequence[dict[str, float]], rate: float, machine: _Machine, summary: Summary) -> Need:
    totals = [sum(of.values()) for of in costs]
    spread = _UNSURE if len(totals) == 1 else 1.0
    cost_ms = Range(low=min(totals) / spread, likely=statistics.median(totals), high=max(totals) * spread)
    stages = {stage: statistics.median([of[stage] for of in costs if stage in of]) for of in costs for stage in of}
    capacity = machine.cores * 1000 / cost_ms.likely if machine.alone_ms is None else 1000 / machine.alone_ms
    is_reading = summary.cache is None or any(stage.startswith("extract.") for stage in stages)
    fetched = summary.fetched or Fetched()
    encoded = summary.dataset.bytes / max(sum(summary.dataset.examples.values()), 1)
    return Need(
        passes=passes,
        busy=cost_ms.times(rate / 1000),
        cores=None if machine.cpu_ms is None else rate * machine.cpu_ms / 1000,
        threads={stage: rate * ms / 1000 for stage, ms in stages.items()},
        workers=max(1, math.ceil(rate / capacity - 1e-9)),
        storage_bytes_per_s=rate * encoded if is_reading else 0.0,
        arriving_bytes_per_s=fetched.bytes / fetched.busy_s if is_reading and fetched.busy_s else None,
    )
