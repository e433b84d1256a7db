"""Forecast of the size of a cache before it is filled; one that doesn't fit is refused, with alternatives that do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan, PlannedStage, at_cache
from etlrun.planning.planner import plan as planned
from etlrun.planning.spec import RunSpec
from etlrun.stages.cache import CACHES, Space, cache_bytes
from etlrun.system.errors import ConfigError, WorldError
from etlrun.system.machine import megabytes

_SAMPLE = 64
"""Number of examples that are sampled for the mean size if sizes differ."""


def fits(plan: Plan, pipelines: Mapping[str, Pipeline], folder: Any) -> int:
    """Return the size of the caches of `pipelines` in bytes; raise `WorldError` if there is no space for them."""
    cache, size = plan.spec.cache, _bytes_of(plan, pipelines)
    spaces = {target: of.space(folder) for target, of in CACHES.items() if of.keeps}
    space = cache.space(folder)
    if space.takes(size):
        return size
    others = list(_that_fit(plan, pipelines, size, spaces))
    share = f"{space.share:.0%}" + (" (the training needs memory, too)" if not cache.outlives_run else "")
    raise WorldError(
        where=f"{cache.path} at {cache.at}",
        found=f"{megabytes(size)} to cache, with {megabytes(space.free_bytes)} free in {space.where}",
        expected=f"at most {share} of the free space",
        remedy=f"these fit: {'; '.join(others)}" if others else "set cache=none",
    )


def _that_fit(plan: Plan, pipelines: Mapping[str, Pipeline], size: int, spaces: Mapping[str, Space]) -> Iterator[str]:
    """Yield other targets and points that fit, with their sizes, of those that the run may have."""
    sizes = {plan.spec.cache.at: size}
    for (target, space), point in product(spaces.items(), dict.fromkeys((*sizes, "source", "decoded", "transformed"))):
        other = _with(plan.spec, target, point)
        if other is None:
            continue
        if point not in sizes:
            sizes[point] = _bytes_of(other, pipelines)
        if space.takes(sizes[point]):
            free = f"{megabytes(sizes[point])} of {megabytes(space.free_bytes)} free"
            yield f"cache={target} cache.at={point} ({free})"


def _with(spec: RunSpec, target: str, point: str) -> Plan | None:
    """Return the plan of the same run with another cache; None if it can't have one."""
    values = {item.name: getattr(spec.cache, item.name) for item in dataclasses.fields(spec.cache)}
    cache: Any = CACHES[target](**values | {"at": point, "dtype": "auto"})
    try:
        return planned(dataclasses.replace(spec, cache=cache))
    except ConfigError:
        return None


def _bytes_of(plan: Plan, pipelines: Mapping[str, Pipeline]) -> int:
    """Return the size of the caches of a plan, of these pipelines."""
    size = 0
    for name, pipeline in pipelines.items():
        before, _, _ = at_cache(plan.pipelines[name])
        flow, count = before[-1].gives, pipeline.split.num_examples
        known = cache_bytes(flow, count)
        size += cache_bytes(flow, count, _varying_bytes(pipeline, before)) or 0 if known is None else known
    return size


def _varying_bytes(pipeline: Pipeline, before: Sequence[PlannedStage]) -> float:
    """Return the mean size of what differs in size between examples after these stages, of the first examples."""
    tries = tf.data.Dataset.range(_SAMPLE)  # a file that can't be opened raises on every read
    sample = tf.data.Dataset.zip((tries, pipeline.uncached(before)))
    sizes = [sum(map(_size, tf.nest.flatten(example))) for _, example in sample.ignore_errors().as_numpy_iterator()]
    return sum(sizes) / len(sizes) - before[-1].gives.fixed_bytes if sizes else 0.0


def _size(feature: Any) -> int:
    return len(feature) if isinstance(feature, bytes) else int(feature.nbytes)
