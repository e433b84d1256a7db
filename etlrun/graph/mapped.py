"""Reading of a cache by operations of TensorFlow alone, in any process that sees its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.stages.flow import Feature, Flow, numbered

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
        self._fingerprints = self._computed()
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

    def _computed(self) -> npt.NDArray[np.uint8]:
        """Return the fingerprint of each example, uint8 (examples, 8)."""
        each = tf.function(lambda number: tf.fingerprint(self._row(number))[0], autograph=False)
        found = self.numbers().map(each, num_parallel_calls=tf.data.AUTOTUNE).batch(_AT_ONCE)
        return np.concatenate([np.empty((0, 8), np.uint8), *found.as_numpy_iterator()])

    def _one(self, number: tf.Tensor) -> dict[str, Any]:
        row = self._row(number)
        is_same = tf.reduce_all(tf.fingerprint(row)[0] == tf.gather(self._fingerprints, number))
        with tf.control_dependencies([tf.debugging.Assert(is_same, [_CHANGED, number])]):
            row = tf.identity(row)
        features = [self._kept.features[name] for name in self._kept.columns]
        columns = tf.split(row, [feature.bytes or 0 for feature in features], axis=1)
        shaped = [_shaped(data, feature) for data, feature in zip(columns, features, strict=True)]
        return dict(zip(self._kept.columns, shaped, strict=True))

    def _row(self, number: tf.Tensor) -> tf.Tensor:
        """Return the bytes of an example, uint8 (1, bytes)."""
        each = self._parts[0][1]  # all parts but the last have as many examples
        of_parts = [partial(self._of_part, path, count, number % each) for path, count in self._parts]
        return tf.switch_case(tf.cast(number // each, tf.int32), of_parts)

    def _of_part(self, path: str, count: int, row: tf.Tensor) -> tf.Tensor:
        size = self._kept.example_bytes or 0
        whole = tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=(count, size), memory_region_name=path)
        return tf.slice(whole, [row, 0], [1, size])


def _shaped(data: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Return a feature from its bytes."""
    dtype = tf.as_dtype(feature.dtype)
    bytes_each = (dtype.size,) if dtype.size > 1 else ()
    shaped = tf.reshape(data, (*feature.shape, *bytes_each))
    return tf.cast(shaped, dtype) if dtype == tf.bool else tf.bitcast(shaped, dtype)
