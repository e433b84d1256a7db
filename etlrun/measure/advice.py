"""Advice for input-bound runs: overrides to try."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from etlrun.cache.store import folder_of
from etlrun.planning.plan import Plan, kinds_in, name_of_point, stage_of
from etlrun.planning.planner import NO_CACHE
from etlrun.planning.spec import RunSpec
from etlrun.record.summary import StageCost
from etlrun.stages.base import ORDER, SPEED, parameters
from etlrun.stages.cache import MEMORY_SHARE, DiskCache, outlives_run
from etlrun.stages.dataset import Declared, Fetch
from etlrun.stages.extract import Interleave
from etlrun.stages.load import Prefetch, Shuffle
from etlrun.stages.mix import Mix
from etlrun.stages.model import Backbone
from etlrun.stages.rows import Rows
from etlrun.stages.step import Map
from etlrun.system.machine import CORES, calls_here, free_memory_bytes, megabytes

_MOST_FILES = 16
"""Upper bound on the files to read concurrently; of the order of tf.data's default for autotuned cycles."""


def advice(stage: str | None, plan: Plan, rows: Sequence[StageCost], conditions: Mapping[str, Any]) -> str | None:
    """Return one sentence with overrides to try, or one that no override helps; None if the run is not input-bound.

    `conditions` holds `cores`, `shards` of the split, `cached_bytes` (the size of a cache) and `epochs`; of shards
    that are fetched `fetched_bytes`.
    """
    if stage is None:
        return None
    last = f"No override helps: {stage} needs less work, faster storage, or more cores."
    if plan.spec.load.service is not None and stage != Prefetch.path:
        return "Start a dispatcher with a worker on another machine, and add it to load.service.address."
    if stage == Fetch.path:
        return _fetch(plan, conditions)
    return _own(stage, plan, rows, conditions) or _cache(plan, conditions) or last


def told(text: str | None, spec: RunSpec) -> str | None:
    """Return advice that begins with what its overrides change in a run beside the speed."""
    stages = [spec.trainer, spec.load, spec.extract]
    kinds_of = {stage.key(of.name): kinds_in(spec, stage, of) for stage in stages for of in parameters(stage)}
    kinds_of["extract"] = kinds_of["extract.cycle_length"] = (ORDER,)
    keys = re.findall(r"[\w.]+(?==)", text or "")
    kinds = dict.fromkeys(kind for key in keys for kind in kinds_of.get(key, ()) if kind != SPEED)
    return f"Changes the {next(iter(kinds))}: t{text[1:]}" if text and kinds else text


def _fetch(plan: Plan, conditions: Mapping[str, Any]) -> str:
    """Return advice on shards that arrive too slowly."""
    dataset, at_once = cast("Declared", plan.spec.dataset), cast("Fetch", stage_of(plan.train, Fetch)).at_once
    if dataset.keep != "all" and conditions["epochs"] > 1:
        folder = folder_of(dataset.copies)
        if DiskCache.space(folder).takes(conditions["fetched_bytes"]):
            size = megabytes(conditions["fetched_bytes"])
            return f"Try dataset.keep=all: later epochs then read {size} from {folder}, where they fit."
        if cached := _cache(plan, conditions):
            return cached
    later = "; later epochs and runs read the copies" if dataset.keep == "all" else ""
    if conditions["shards"] < 2 * at_once:
        return f"No override helps: {Fetch.path} needs a nearer or faster store{later}."
    how = f"{at_once} of {conditions['shards']} shards were fetched at once"
    if dataset.storage:
        add = "+" * ("at_once" not in dataset.storage)
        return f"Try {add}dataset.storage.at_once={2 * at_once}: {how}{later}."
    return f"Try dataset.storage='{{at_once: {2 * at_once}}}': {how}{later}."


def _own(stage: str, plan: Plan, rows: Sequence[StageCost], conditions: Mapping[str, Any]) -> str | None:
    """Return advice on the parameters of the stage itself."""
    parallelism = {row.stage: row.parallelism or 1 for row in rows}
    if stage == Prefetch.path and not plan.spec.load.prefetch:
        return "Try load.prefetch=autotune: batches are then prepared while the model runs."
    if stage.startswith("extract."):
        return _extract(plan, conditions)
    is_map = stage.startswith("transform.") or stage == Mix.path
    if is_map and parallelism.get(stage, parallelism.get(Map.path, 1)) < conditions["cores"]:
        return f"Try transform.num_parallel_calls={conditions['cores']}: the transform does not use all cores."
    if stage in {Backbone.path, plan.spec.cache.path}:
        return _target(stage, plan, conditions)
    if stage == Shuffle.path:
        smaller = max(plan.spec.load.batch_size, plan.spec.load.shuffle_buffer // 8)
        if smaller < plan.spec.load.shuffle_buffer:
            return f"Try load.shuffle_buffer={smaller}: a smaller buffer fills faster."
    return None


def _target(stage: str, plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """Return advice on another target for the cache."""
    if stage == Backbone.path and not plan.spec.cache.outlives_run:
        return "Try cache=disk: later runs on the same data then read the features."
    if outlives_run(stage) and _fits_memory(plan, conditions):
        return f"Try cache=memory: the examples take {megabytes(conditions['cached_bytes'])}, which fits in memory."
    return None


def _extract(plan: Plan, conditions: Mapping[str, Any]) -> str | None:
    """Return advice to read more files concurrently, if there are more."""
    extract, files = stage_of(plan.train, Interleave), min(conditions["shards"], _MOST_FILES)
    why = f"{files} files are then read concurrently."
    if files == 1 or plan.spec.extract.decodes or plan.spec.load.is_by_number:  # which reads concurrently, too
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
    """Return advice to add a cache, if there is none and later epochs would read it."""
    cache = plan.spec.cache
    if cache.keeps or cache is NO_CACHE or conditions["epochs"] == 1 or isinstance(plan.spec.dataset, Rows):
        return None  # phases behind those of cached features have none; the columns of rows are kept already
    if plan.train[-1].gives.sequences:  # which no cache holds
        return None
    steps = plan.spec.transform.steps
    first = next((place for place, step in enumerate(steps) if step.random), None)
    if first is not None:
        return f"Try cache=disk cache.at={name_of_point(steps[:first])}: later epochs then start there."
    target = "memory" if _fits_memory(plan, conditions) else "disk"
    return f"Try cache={target}: later epochs then read {megabytes(conditions['cached_bytes'])} from it."


def _fits_memory(plan: Plan, conditions: Mapping[str, Any]) -> bool:
    """Return whether memory can hold the cache; it can't be read by number there."""
    return not plan.spec.load.is_by_number and bool(conditions["cached_bytes"] < MEMORY_SHARE * free_memory_bytes())
