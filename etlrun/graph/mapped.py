"""Reading of a cache by operations of TensorFlow alone, in any process that sees its files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from etlrun.stages.flow import Feature, Flow


class Mapped:
    """The examples of a cache, all of one size, by their numbers.

    A part is mapped into memory while an example is copied from it, and no longer: pages that are not in use are no
    memory of the process. Nothing is compared with a checksum.

    Attributes:
        count: Number of examples.
    """

    def __init__(self, parts: Sequence[tuple[Path, int]], kept: Flow) -> None:
        """Make a reader of examples of `kept` from these parts, paths with sizes in bytes; reads nothing yet."""
        self._kept, size = kept, kept.example_bytes
        assert size is not None  # noqa: S101 - a rule of the plan
        self._parts = [(str(path.absolute()), size_bytes // size) for path, size_bytes in parts]
        self.count = sum(count for _, count in self._parts)
        self._traced = tf.function(self._one, autograph=False)

    def numbers(self) -> tf.data.Dataset:
        """Return the numbers of all examples (int64 scalars), in the order of the data."""
        return tf.data.Dataset.range(self.count)

    def read(self, numbers: tf.data.Dataset) -> tf.data.Dataset:
        """Return (inputs, target) for each number (int64 scalar)."""
        return numbers.map(self._traced, num_parallel_calls=tf.data.AUTOTUNE)

    def _one(self, number: tf.Tensor) -> tuple[Any, tf.Tensor]:
        each = self._parts[0][1]  # all parts but the last have as many examples
        row = number % each
        of_parts = [partial(self._columns, path, count, row) for path, count in self._parts]
        columns = tf.switch_case(tf.cast(number // each, tf.int32), of_parts)
        features = [self._kept.features[name] for name in self._kept.columns]
        shaped = [_shaped(data, feature) for data, feature in zip(columns, features, strict=True)]
        return self._kept.handed(dict(zip(self._kept.columns, shaped, strict=True)))

    def _columns(self, path: str, count: int, row: tf.Tensor) -> list[tf.Tensor]:
        """Return the bytes of each feature of an example, uint8 (1, bytes)."""
        sizes = [self._kept.features[name].bytes or 0 for name in self._kept.columns]
        whole = tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=(count, sum(sizes)), memory_region_name=path)
        begins = np.cumsum([0, *sizes[:-1]])
        return [tf.slice(whole, [row, begin], [1, size]) for begin, size in zip(begins, sizes, strict=True)]


def _shaped(data: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Return a feature from its bytes."""
    dtype = tf.as_dtype(feature.dtype)
    bytes_each = (dtype.size,) if dtype.size > 1 else ()
    shaped = tf.reshape(data, (*feature.shape, *bytes_each))
    return tf.cast(shaped, dtype) if dtype == tf.bool else tf.bitcast(shaped, dtype)
