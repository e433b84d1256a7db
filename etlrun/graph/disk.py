"""Cache on disk in a graph: one pass fills it, others read it; each pass decides when it begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.cache.keeper import READ, Keeper
from etlrun.cache.parts import CachedColumn
from etlrun.graph.context import as_is, computed, ended
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

    Their numbers are written beside them, and go on if the examples are to carry them. `dataset` may have batches of
    examples, all with numbers, which are written at once.
    """
    is_batched = NUMBER in dataset.element_spec and dataset.element_spec[NUMBER].shape.rank == 1

    def add(mode: Any, number: Any, *features: Any) -> Any:
        if not is_batched:
            return keeper.add(mode, *features, number=None if number < 0 else number)
        for place, each in enumerate(number.tolist()):
            keeper.add(mode, *(of[place] for of in features), number=each)
        return mode

    def write(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        number = example.get(NUMBER, tf.constant(-1, tf.int64))
        values = [mode, number, *(example[name] for name in kept.columns)]
        with tf.control_dependencies([_if_filling(mode, add, *values)]):
            return {name: tf.identity(of) for name, of in example.items() if name != NUMBER or carries}

    examples = dataset.map(as_is(write)).unbatch() if is_batched else dataset.map(as_is(write))
    return ended(examples, lambda: computed(keeper.publish, mode))


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


_CHANGED = "an example of the cache has changed"
_AT_ONCE = 1_024


class Mapped:
    """The examples of a cache, all of one size, by their numbers.

    A part is mapped into memory while an example is copied from it, and no longer: pages that are not in use are no
    memory of the process. Each example is compared with its fingerprint (FarmHash64, which TensorFlow computes itself)
    of the time when the reader was made; `changed` tells which one an error is about.

    Attributes:
        count: Number of examples.
    """

    def __init__(self, parts: Sequence[tuple[Path, int]], kept: Flow, numbers: npt.NDArray[np.int64]) -> None:
        """Make a reader of examples of `kept` from these parts, paths with sizes in bytes; read all of them once.

        `numbers` are those of the examples in the data.
        """
        self._kept, self._numbers, size = kept, numbers, kept.example_bytes
        assert size is not None  # noqa: S101 - a rule of the plan
        self._parts = [(str(path.absolute()), size_bytes // size) for path, size_bytes in parts]
        self.count = sum(count for _, count in self._parts)
        each = tf.function(lambda number: tf.fingerprint(self._row(number))[0], autograph=False)
        found = self.numbers().map(each, num_parallel_calls=tf.data.AUTOTUNE).batch(_AT_ONCE)
        self._fingerprints = np.concatenate([np.empty((0, 8), np.uint8), *found.as_numpy_iterator()])
        self._traced = tf.function(self._one, autograph=False)

    def numbers(self) -> tf.data.Dataset:
        """Return the numbers of all examples (int64 scalars), in the order of the data."""
        return tf.data.Dataset.range(self.count)

    def read(self, numbers: tf.data.Dataset, *, carries: bool = False) -> tf.data.Dataset:
        """Return the features by name for each number (int64 scalar), with its number in the data if wanted."""

        def with_number(number: tf.Tensor) -> dict[str, Any]:
            return numbered(self._traced(number), tf.gather(self._numbers, number))

        return numbers.map(with_number if carries else self._traced, num_parallel_calls=tf.data.AUTOTUNE)

    @staticmethod
    def changed(error: tf.errors.OpError) -> int | None:
        """Return the number of the example that has changed, if an error of a reader says so."""
        found = re.search(re.escape(_CHANGED) + r"\D*(\d+)", error.message)
        return None if found is None else int(found[1])

    def _one(self, number: tf.Tensor) -> dict[str, Any]:
        row = self._row(number)
        is_same = tf.reduce_all(tf.fingerprint(row)[0] == tf.gather(self._fingerprints, number))
        with tf.control_dependencies([tf.debugging.Assert(is_same, [_CHANGED, number])]):
            row = tf.identity(row)
        features = [self._kept.features[name] for name in self._kept.columns]
        columns = tf.split(row, [feature.bytes or 0 for feature in features], axis=1)
        found = {}
        for name, data, feature in zip(self._kept.columns, columns, features, strict=True):
            dtype = tf.as_dtype(feature.dtype)
            shaped = tf.reshape(data, (*feature.shape, *(() if dtype.size == 1 else (dtype.size,))))
            found[name] = tf.cast(shaped, dtype) if dtype == tf.bool else tf.bitcast(shaped, dtype)
        return found

    def _row(self, number: tf.Tensor) -> tf.Tensor:
        """Return the bytes of an example, uint8 (1, bytes)."""
        each = self._parts[0][1]  # all parts but the last have as many examples
        of_parts = [partial(self._of_part, path, count, number % each) for path, count in self._parts]
        return tf.switch_case(tf.cast(number // each, tf.int32), of_parts)

    def _of_part(self, path: str, count: int, row: tf.Tensor) -> tf.Tensor:
        size = self._kept.example_bytes or 0
        whole = tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=(count, size), memory_region_name=path)
        return tf.slice(whole, [row, 0], [1, size])
