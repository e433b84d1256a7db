"""What a cache will take, before it is filled; what does not fit is refused, with what would."""

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
from etlrun.plan.plan import at_cache
from etlrun.stages.cache import DISK_SHARE, MEMORY_SHARE, Cache, kept_bytes
from etlrun.stages.step import Map

_SAMPLE = 64
"""Examples from which the mean size is taken where sizes differ."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """Of one kind of cache.

    Attributes:
        free_bytes: Now.
        share: Of these that caches may take.
        where: For a message.
    """

    free_bytes: int
    share: float
    where: str

    def takes(self, size: int) -> bool:
        """Whether that fits."""
        return size <= self.share * self.free_bytes


def fits(pipelines: Mapping[str, Pipeline], cache: Cache, folder: Any) -> int:
    """The bytes that the caches of `pipelines` are going to take; `WorldError` where there is no space for them."""
    size = sum(_bytes_at(pipeline, None) for pipeline in pipelines.values())
    spaces = {
        "memory": Space(free_bytes=machine.free_memory_bytes(), share=MEMORY_SHARE, where="memory"),
        "disk": Space(free_bytes=machine.free_disk_bytes(folder), share=DISK_SHARE, where=str(folder)),
    }
    space = spaces[cache.path.removeprefix("cache.")]
    if space.takes(size):
        return size
    others = list(_that_fit(pipelines, cache, size, spaces))
    share = f"{space.share:.0%}" + (" (the training needs some, too)" if not cache.outlives_run else "")
    raise WorldError(
        where=f"{cache.path} at {cache.at}",
        found=f"{megabytes(size)} to keep, with {megabytes(space.free_bytes)} free in {space.where}",
        expected=f"at most {share} of what is free",
        remedy=f"these fit: {'; '.join(others)}" if others else "set cache=none",
    )


def _that_fit(pipelines: Mapping[str, Pipeline], cache: Cache, size: int, spaces: Mapping[str, Space]) -> Iterator[str]:
    """Other targets and points, with their sizes."""
    points = {cache.at: size}
    for point in ("source", "decoded", "transformed"):
        if point not in points and all(_has(pipeline, point) for pipeline in pipelines.values()):
            points[point] = sum(_bytes_at(pipeline, point) for pipeline in pipelines.values())
    for target, space in spaces.items():
        for point, bytes_there in points.items():
            if space.takes(bytes_there):
                free = f"{megabytes(bytes_there)} of {megabytes(space.free_bytes)} free"
                yield f"cache={target} cache.at={point} ({free})"


def _steps(pipeline: Pipeline) -> list[Any]:
    return [step for planned in pipeline.stages for step in planned.steps]


def _has(pipeline: Pipeline, point: str) -> bool:
    """Whether a cache may stand there: the point exists, and nothing random comes before it."""
    steps = _steps(pipeline)[: _count(pipeline, point)]
    if point == "source" and any(planned.stage.leaves_out for planned in pipeline.stages):
        return False
    is_there = point == "transformed" or any(point in step.stage.points for step in steps)
    return is_there and not any(step.is_random for step in steps)


def _count(pipeline: Pipeline, point: str) -> int:
    """Steps before a point."""
    steps = _steps(pipeline)
    return next((place for place, step in enumerate(steps, 1) if point in step.stage.points), len(steps))


def _bytes_at(pipeline: Pipeline, point: str | None) -> int:
    """Of all examples at a point of that name, or where the cache is."""
    if point is None:
        before, _, _ = at_cache(pipeline.stages)
        count, flow = sum(len(planned.steps) for planned in before), before[-1].gives
    else:
        count = _count(pipeline, point)
        flow = _steps(pipeline)[count - 1].gives
    each = flow.example_bytes
    return kept_bytes(pipeline.split.num_examples, _sampled_bytes(pipeline, count) if each is None else each)


def _sampled_bytes(pipeline: Pipeline, count: int) -> float:
    """The mean of the first examples, `count` steps applied."""
    stage: Any = next(planned.stage for planned in pipeline.stages if planned.stage.path == Map.path)
    steps = tuple(step.stage for step in _steps(pipeline)[:count])
    sample = map_steps(
        pipeline.before(Map.path),
        Map(num_parallel_calls=2, deterministic=stage.deterministic, steps=steps),
        pipeline.context,
    )
    tries = tf.data.Dataset.range(_SAMPLE)  # a file that can't be opened raises whenever it is asked
    examples = tf.data.Dataset.zip((tries, sample)).ignore_errors().as_numpy_iterator()
    sizes = [sum(map(_size, tf.nest.flatten(example))) for _, example in examples]
    return sum(sizes) / max(len(sizes), 1)


def _size(feature: Any) -> int:
    return len(feature) if isinstance(feature, bytes) else int(feature.nbytes)
