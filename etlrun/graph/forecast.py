"""Forecast of the size of a cache before it is filled; one that doesn't fit is refused, with alternatives that do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from etlrun import machine
from etlrun.errors import WorldError
from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import map_steps
from etlrun.machine import megabytes
from etlrun.plan.plan import PlannedStep, at_cache, place_of_point
from etlrun.stages.cache import DISK_SHARE, MEMORY_SHARE, Cache, kept_bytes
from etlrun.stages.step import Map

_SAMPLE = 64
"""Number of examples that are sampled for the mean size if sizes differ."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """Space for one kind of cache.

    Attributes:
        free_bytes: Free bytes now.
        share: Fraction of them that caches may take.
        where: Description for a message.
    """

    free_bytes: int
    share: float
    where: str

    def takes(self, size: int) -> bool:
        """Return whether a cache of this size fits."""
        return size <= self.share * self.free_bytes


def fits(pipelines: Mapping[str, Pipeline], cache: Cache, folder: Any) -> int:
    """Return the size of the caches of `pipelines` in bytes; raise `WorldError` if there is no space for them."""
    size = sum(_bytes_at(pipeline, None) for pipeline in pipelines.values())
    spaces = {
        "memory": Space(free_bytes=machine.free_memory_bytes(), share=MEMORY_SHARE, where="memory"),
        "disk": Space(free_bytes=machine.free_disk_bytes(folder), share=DISK_SHARE, where=str(folder)),
    }
    space = spaces[cache.path.removeprefix("cache.")]
    if space.takes(size):
        return size
    others = list(_that_fit(pipelines, cache, size, spaces))
    share = f"{space.share:.0%}" + (" (the training needs memory, too)" if not cache.outlives_run else "")
    raise WorldError(
        where=f"{cache.path} at {cache.at}",
        found=f"{megabytes(size)} to cache, with {megabytes(space.free_bytes)} free in {space.where}",
        expected=f"at most {share} of the free space",
        remedy=f"these fit: {'; '.join(others)}" if others else "set cache=none",
    )


def _that_fit(pipelines: Mapping[str, Pipeline], cache: Cache, size: int, spaces: Mapping[str, Space]) -> Iterator[str]:
    """Yield other targets and points that fit, with their sizes."""
    points = {cache.at: size}
    for point in ("source", "decoded", "transformed"):
        if point not in points and all(_has(pipeline, point) for pipeline in pipelines.values()):
            points[point] = sum(_bytes_at(pipeline, point) for pipeline in pipelines.values())
    for target, space in spaces.items():
        for point, bytes_there in points.items():
            if space.takes(bytes_there):
                free = f"{megabytes(bytes_there)} of {megabytes(space.free_bytes)} free"
                yield f"cache={target} cache.at={point} ({free})"


def _steps(pipeline: Pipeline) -> list[PlannedStep]:
    return [step for planned in pipeline.stages for step in planned.steps]


def _has(pipeline: Pipeline, point: str) -> bool:
    """Return whether a cache is possible there: the point exists, and no random step comes before it."""
    if point == "source" and any(planned.stage.leaves_out for planned in pipeline.stages):
        return False
    count = _count(pipeline, point)
    return count is not None and not any(step.is_random for step in _steps(pipeline)[:count])


def _count(pipeline: Pipeline, point: str) -> int | None:
    """Return the number of steps before a point; None if the pipeline has no such point."""
    steps = [step.stage for step in _steps(pipeline)]
    return len(steps) if point == "transformed" else place_of_point(point, steps)


def _bytes_at(pipeline: Pipeline, point: str | None) -> int:
    """Return the size of all examples at a point of that name, or at the point of the cache."""
    count = None if point is None else _count(pipeline, point)
    if count is None:
        before, _, _ = at_cache(pipeline.stages)
        count, flow = sum(len(planned.steps) for planned in before), before[-1].gives
    else:
        flow = _steps(pipeline)[count - 1].gives
    each = flow.example_bytes
    return kept_bytes(pipeline.split.num_examples, _sampled_bytes(pipeline, count) if each is None else each)


def _sampled_bytes(pipeline: Pipeline, count: int) -> float:
    """Return the mean size of the first examples after `count` steps."""
    stage: Any = next(planned.stage for planned in pipeline.stages if planned.stage.path == Map.path)
    steps = tuple(step.stage for step in _steps(pipeline)[:count])
    sample = map_steps(
        pipeline.before(Map.path),
        Map(num_parallel_calls=2, deterministic=stage.deterministic, steps=steps),
        pipeline.context,
    )
    tries = tf.data.Dataset.range(_SAMPLE)  # a file that can't be opened raises on every read
    examples = tf.data.Dataset.zip((tries, sample)).ignore_errors().as_numpy_iterator()
    sizes = [sum(map(_size, tf.nest.flatten(example))) for _, example in examples]
    return sum(sizes) / max(len(sizes), 1)


def _size(feature: Any) -> int:
    return len(feature) if isinstance(feature, bytes) else int(feature.nbytes)
