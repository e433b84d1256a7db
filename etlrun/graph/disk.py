"""Cache on disk of a plan, in a graph: one pass fills it, others read it; each pass decides when it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from etlrun.cache.keeper import READ, Keeper
from etlrun.cache.parts import CachedColumn, Manifest
from etlrun.cache.store import CacheStore
from etlrun.graph.context import Reading, as_is, computed, ended
from etlrun.graph.identity import identity
from etlrun.planning.plan import Plan, at_cache
from etlrun.stages.flow import NUMBER, Flow, numbered
from etlrun.stages.lazy import tf


def decided(keeper: Keeper) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what a pass does, and how many examples it can read; int64 scalars."""
    found = computed(lambda: np.array([keeper.begin(), keeper.count], np.int64), shape=(2,))
    return found[0], found[1]


def either(mode: tf.Tensor, filling: tf.data.Dataset, reading: tf.data.Dataset) -> tf.data.Dataset:
    """Return `reading` if `mode` is to read, else `filling`; the other one is not started."""
    everything, nothing = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    reads = tf.equal(mode, READ)
    return filling.take(tf.where(reads, nothing, everything)).concatenate(
        reading.take(tf.where(reads, everything, nothing))
    )


def written(
    dataset: tf.data.Dataset, keeper: Keeper, kept: Flow, mode: tf.Tensor, *, carries: bool = False
) -> tf.data.Dataset:
    """Return the examples of `dataset`, of `kept`; if `mode` is to fill the cache, write them, publish it at their end.

    Their numbers are written beside them, and go on if the examples are to carry them.
    """

    def add(mode: Any, number: Any, *features: Any) -> Any:
        return keeper.add(mode, *features, number=None if number < 0 else number)

    def write(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        number = example.get(NUMBER, tf.constant(-1, tf.int64))
        values = [mode, number, *(example[name] for name in kept.columns)]
        with tf.control_dependencies([_if_filling(mode, add, *values)]):
            return {name: tf.identity(of) for name, of in example.items() if name != NUMBER or carries}

    return ended(dataset.map(as_is(write)), lambda: computed(keeper.publish, mode))


def compared(keeper: Keeper, mode: tf.Tensor, place: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
    """Return `data`, which a pass reads at a `place`, compared with the key of the cache if `mode` is to fill it."""
    with tf.control_dependencies([_if_filling(mode, keeper.compare, mode, place, data)]):
        return tf.identity(data)


def _if_filling(mode: tf.Tensor, function: Callable[..., Any], *values: Any) -> tf.Tensor:
    return tf.cond(mode > READ, lambda: computed(function, *values), lambda: tf.constant(0, tf.int64))


def columns(kept: Flow) -> list[CachedColumn]:
    """Return the features that a cache holds, in the order of the components of an example."""
    found = []
    for name in kept.columns:
        feature = kept.features[name]
        sides = None if feature.bytes is None else [side for side in feature.shape if side is not None]
        found.append(CachedColumn(name=name, dtype=feature.dtype.replace("string", "bytes"), shape=sides))
    return found


def read(numbers: tf.data.Dataset, keeper: Keeper, kept: Flow, *, at_once: bool, carries: bool) -> tf.data.Dataset:
    """Return the features by name for each number (int64 scalar) of a row; with the numbers of the examples if wanted.

    A row may come with the number of its draw, which counts then. If the rows of a batch (int64 vector) are to be read
    `at_once`, each feature is copied once.
    """
    features = [kept.features[name] for name in kept.columns]
    dtypes = [tf.as_dtype(feature.dtype) for feature in features] + [tf.int64] * carries

    def drawn(row: Any, draw: Any) -> tuple[Any, ...]:
        return *keeper.one(row), keeper.numbers[row] + draw - row

    def read(row: tf.Tensor, *draw: tf.Tensor) -> dict[str, Any]:
        if carries:
            found = tf.numpy_function(drawn, [row, *(draw or (row,))], dtypes)
        else:
            found = tf.numpy_function(keeper.batch if at_once else keeper.one, [row], dtypes)
        batch = (None,) * at_once
        shaped = [tf.ensure_shape(of, (*batch, *feature.shape)) for of, feature in zip(found, features, strict=False)]
        number = [tf.ensure_shape(of, ()) for of in found[len(features) :]]
        return numbered(dict(zip(kept.columns, shaped, strict=True)), *number)

    return numbers.map(as_is(read), num_parallel_calls=tf.data.AUTOTUNE)


def keepers_of(
    plan: Plan, readings: Mapping[str, Reading], made_by: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Keeper]:
    """Return the keepers of the disk caches, by pipeline; they are neither opened nor claimed."""
    cache, keepers = plan.spec.cache, {}
    if not cache.outlives_run:
        return {}
    for name, reading in readings.items():
        before, _, _ = at_cache(plan.pipelines[name])
        kept = Manifest(
            identity=identity(before, reading),
            columns=columns(before[-1].gives),
            made_by={**made_by, "dataset": reading.source.full_name, "split": reading.split.name},
        )
        count = None if plan.spec.dataset.on_corrupt == "skip" else reading.split.num_examples
        keepers[name] = Keeper(CacheStore(cache.dir), kept, count=count, content=reading.split.content, say=say)
    return keepers
