"""What to change where the input bounds a run: overrides that can be pasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etlrun.cache.limits import MEMORY_SHARE, free_memory_bytes, megabytes
from etlrun.machine import CORES, calls_here
from etlrun.plan.plan import Plan, name_of_point, stage_of
from etlrun.record.findings import StageCost
from etlrun.stages.cache import DiskCache
from etlrun.stages.extract import Interleave
from etlrun.stages.load import Prefetch, Shuffle
from etlrun.stages.model import Backbone
from etlrun.stages.step import Map

_MOST_FILES = 16
"""Files that are read at once at most; tf.data's own default for autotuned cycles is of this order."""


def advice(stage: str | None, plan: Plan, rows: Sequence[StageCost], conditions: Mapping[str, Any]) -> str | None:
    """One sentence with overrides, or with what no override can do; None where nothing bounds the run.

    `conditions` are `cores`, `shards` of the split, `cached_bytes` (what a cache would hold) and `epochs`.
    """
    if stage is None:
        return None
    last = f"No override helps: {stage} needs less work, a faster storage, or more cores."
    return _own(stage, plan, rows, conditions) or _cache(plan, conditions) or last


def _own(stage: str, plan: Plan, rows: Sequence[StageCost], conditions: Mapping[str, Any]) -> str | None:
    """What the stage's own parameters can do."""
    parallelism = {row.stage: row.parallelism or 1 for row in rows}
    if stage == Prefetch.path:
        return "Try load.prefetch=autotune: batches are then prepared while the model works."
    if stage.startswith("extract."):
        return _extract(plan, conditions)
    if stage.startswith("transform.") and parallelism.get(stage, parallelism.get(Map.path, 1)) < conditions["cores"]:
        return f"Try transform.num_parallel_calls={conditions['cores']}: the transform leaves cores unused."
    if stage in {Backbone.path, plan.spec.cache.path}:
        return _target(stage, plan, conditions)
    if stage == Shuffle.path:
        smaller = max(plan.spec.load.batch_size, plan.spec.load.shuffle_buffer // 8)
        if smaller < plan.spec.load.shuffle_buffer:
            return f"Try load.shuffle_buffer={smaller}: a smaller buffer is full sooner."
    return None


def _target(stage: str, plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """Another place for the cache."""
    if stage == Backbone.path and not plan.spec.cache.outlives_run:
        return "Try cache=disk: later runs on the same data then read the features."
    if stage == DiskCache.path and _fits(conditions):
        return f"Try cache=memory: the examples take {megabytes(conditions['cached_bytes'])}, and memory has the space."
    return None


def _extract(plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """More files at once, where there are more."""
    extract, files = stage_of(plan.train, Interleave), min(conditions["shards"], _MOST_FILES)
    why = f"{files} files are then read at once."
    if files == 1 or plan.spec.extract.decodes:
        return None
    if extract is None:
        return f"Try extract=interleave extract.cycle_length={files}: {why}"
    calls, at_once = extract.num_parallel_calls, extract.at_once(conditions["shards"])
    calls = calls_here(str(calls), conditions["cores"]) if calls in CORES else calls
    if at_once < files or calls is None or (isinstance(calls, int) and calls < files):
        cycle_length = extract.cycle_length if at_once >= files else files
        return f"Try extract.cycle_length={cycle_length} extract.num_parallel_calls={files}: {why}"
    return None


def _cache(plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """A cache, where there is none, one may stand, and later epochs would read it."""
    if plan.spec.cache.keeps or conditions["epochs"] == 1:
        return None
    steps = plan.spec.transform.steps
    first = next((place for place, step in enumerate(steps) if step.random), None)
    if first is not None:
        return f"Try cache=disk cache.at={name_of_point(steps[:first])}: later epochs then begin there."
    target = "memory" if _fits(conditions) else "disk"
    return f"Try cache={target}: later epochs then read {megabytes(conditions['cached_bytes'])} that are ready."


def _fits(conditions: Mapping[str, Any]) -> bool:
    return bool(conditions["cached_bytes"] < MEMORY_SHARE * free_memory_bytes())
