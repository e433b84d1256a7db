"""Prediction of the time of a config from measured costs, and what can't fit into memory or on the disk.

Costs are those of one thread, and of all threads together, which is what no sum of single costs tells: threads share
cores, memory and locks. A stage with threads of its own works beside those after it; the slowest of them sets the pace
(as for Kuchnik et al., "Plumber", MLSys 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etlrun.planning.plan import Plan
from etlrun.record.summary import Summary
from etlrun.review.caches import cached_bytes
from etlrun.sources.base import on_disk
from etlrun.stages.cache import CACHES
from etlrun.stages.dataset import Fetch
from etlrun.sweep.tune.space import CACHE, EXTRACT_CALLS, POINT, PREFETCH, TRANSFORM_CALLS, value_of
from etlrun.sweep.tune.windows import Scene
from etlrun.system import machine
from etlrun.system.machine import megabytes

_UNSURE, _UNSURE_OF_CACHE = 1.25, 1.6
"""Factors by which a prediction may be wrong: from costs that were measured, and for a cache that was not."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Milliseconds per example.

    Attributes:
        read_ms: Reading of a record in one thread.
        map_ms: All steps in one thread.
        rest_ms: Shuffling and batching.
        fastest_ms: The whole pipeline with many threads, without a cache.
        cached_ms: The pipeline behind a cache after the last steady step; None if it was not measured.
        cached_bytes: Bytes of an example there; None if they are not known.
        source_bytes: Bytes of an encoded example; None if they are not known.
    """

    read_ms: float
    map_ms: float
    rest_ms: float
    fastest_ms: float
    cached_ms: float | None
    cached_bytes: float | None
    source_bytes: float | None


def pace_ms(window: Summary) -> float:
    """Return the milliseconds per example of the last pass of a window that holds no batch."""
    epoch = window.epochs[-1]
    batch = epoch.examples / max(epoch.steps, 1)
    steady_s = epoch.wall_s - epoch.startup_s - epoch.fill_wait_s
    if epoch.steps > 1 and steady_s > 0:
        return 1000 * steady_s / (epoch.examples - batch)
    return 1000 * epoch.wall_s / max(epoch.examples, 1)


def costs_of(plan: Plan, one: Summary, many: Summary, cached: Summary | None) -> Costs:
    """Return the costs measured in a window with one thread for each stage, one with many, and one with a cache."""
    costs = {row.stage: row.cost_ms for row in one.stages if row.stage != Fetch.path}  # later passes read copies
    read = plan.spec.extract.path
    read_ms = costs.pop(read, 0.0)
    map_ms = sum(cost for stage, cost in costs.items() if stage.startswith("transform."))
    rest_ms = sum(cost for stage, cost in costs.items() if not stage.startswith("transform."))
    known = on_disk(plan.spec.dataset).examples(plan.spec.dataset.split)
    held = cached.cache.pipelines.get("train") if cached is not None and cached.cache is not None else None
    in_pass = cached.epochs[-1].examples if cached is not None and cached.epochs else 0
    return Costs(
        read_ms=read_ms,
        map_ms=map_ms or max(pace_ms(one) - read_ms - rest_ms, 0.0),
        rest_ms=rest_ms,
        fastest_ms=pace_ms(many),
        cached_ms=pace_ms(cached) if cached is not None and len(cached.epochs) > 1 else None,
        cached_bytes=held.held_bytes / in_pass if held is not None and in_pass else None,
        source_bytes=None if known is None else known.encoded_bytes,
    )


class Predictor:
    """Predicts the seconds of all epochs of a config from its values."""

    def __init__(self, scene: Scene, costs: Costs, config: Mapping[str, Any], cores: int) -> None:
        self.scene, self.costs, self.cores, self._config = scene, costs, cores, config

    def seconds(self, changes: Mapping[str, Any]) -> tuple[float, float, float]:
        """Return the lowest, the likely and the highest seconds of all epochs."""
        target, point = self._value(changes, CACHE), self._value(changes, POINT)
        uncached_ms = self._paced(changes, self._uncached_ms(changes))
        later_ms, factor = uncached_ms, _UNSURE
        if target != "none" and point == "source":
            later_ms = self._paced(changes, self._uncached_ms(changes, read_ms=self._reading_ms(target, point)))
        elif target != "none":
            read_ms = self.costs.cached_ms
            factor = _UNSURE if read_ms is not None and target == "memory" else _UNSURE_OF_CACHE
            behind_ms = self._reading_ms(target, point) + self.costs.rest_ms if read_ms is None else read_ms
            later_ms = self._paced(changes, behind_ms)
        per_example_ms = uncached_ms + (self.scene.epochs - 1) * later_ms
        likely_s = per_example_ms * self.scene.examples / 1000
        return max(likely_s / factor, min(self.scene.ideal_s, likely_s)), likely_s, likely_s * factor

    def cache_bytes(self, plan: Plan) -> int | None:
        """Return the bytes of the caches of the whole run; None without a cache, or if their size is not known."""
        if not plan.spec.cache.keeps:
            return None
        dataset = plan.spec.dataset
        validation = on_disk(dataset).examples(dataset.eval_split) if dataset.eval_split is not None else None
        number = self.scene.examples + (validation.count if validation is not None else 0)
        size = cached_bytes(plan, "train", number)
        return int(number * self.costs.cached_bytes) if size is None and self.costs.cached_bytes else size

    def unfit(self, changes: Mapping[str, Any], plan: Plan, free_disk_bytes: int) -> str:
        """Return why the caches of a config don't fit; empty if they do, or if their size is not known."""
        size, target = self.cache_bytes(plan), self._value(changes, CACHE)
        free, where = machine.free_memory_bytes(), "in memory"
        if CACHES[target].outlives_run:
            free, where = free_disk_bytes, "on the disk"
        if size is None or size <= CACHES[target].share * free:
            return ""
        return f"its cache takes {megabytes(size)}, with {megabytes(free)} free {where}"

    def _value(self, changes: Mapping[str, Any], key: str) -> Any:
        return changes[key] if key in changes else value_of(self._config, key)

    def _reading_ms(self, target: str, point: str) -> float:
        size = self.costs.source_bytes if point == "source" else self.costs.cached_bytes
        return 1000 * (size or 0.0) / CACHES[target].read_bytes_per_s

    def _threads(self, changes: Mapping[str, Any], key: str) -> int | None:
        """Return the threads of a stage; None for none of its own."""
        value = self._value(changes, key)
        if isinstance(value, str):
            return {"autotune": 4 * self.cores}.get(value, self.cores)
        return None if value is None else int(value)

    def _uncached_ms(self, changes: Mapping[str, Any], read_ms: float | None = None) -> float:
        """Return the period of the pipeline alone: its slowest thread, and never less than all threads together."""
        of = self.costs
        read = of.read_ms if read_ms is None else read_ms
        calls = self._threads(changes, EXTRACT_CALLS) if read_ms is None else None
        threads = self._threads(changes, TRANSFORM_CALLS)
        asking, behind = of.rest_ms, [of.fastest_ms if read_ms is None else min(of.fastest_ms, of.map_ms / self.cores)]
        if threads is None:
            asking += of.map_ms
        else:
            behind.append(of.map_ms / threads)
        if calls is None:
            behind.append(read) if threads is not None else behind.append(read + asking)
        else:
            behind.append(read / calls)
        return max(asking, *behind)

    def _paced(self, changes: Mapping[str, Any], pipeline_ms: float) -> float:
        """Return the period with the steps of the model: beside the pipeline with a prefetch, else after it."""
        step_ms = self.scene.step_ms / self.scene.batch_size
        beside = self._value(changes, PREFETCH) not in (0, None)
        behind = self._threads(changes, TRANSFORM_CALLS) is not None
        shared_ms = pipeline_ms + step_ms * self.scene.step_cores / self.cores if self.scene.step_cores else 0.0
        if beside:
            return max(step_ms, pipeline_ms, shared_ms)
        return max(step_ms + (self.costs.rest_ms if behind else pipeline_ms), pipeline_ms, shared_ms)
