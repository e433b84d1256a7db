"""Batches of the rows of sequences of like lengths, in programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from etlrun.eject.printed.given import BATCH_SIZES, BOUNDARIES, records_of
from etlrun.stages.lazy import np, tf
from etlrun.stages.sequences import cut_batches


@functools.cache
def lengths_of(split: str, transform: Callable[[tf.Tensor], Any]) -> np.ndarray:
    """Return the number of items of the longest sequence of each row of `split`, by the numbers of the rows."""
    rows: Any = records_of(split)
    found = np.zeros(max(rows) + 1, np.int64)
    for some in np.array_split(rows, len(rows) // 1_024 + 1):
        with tf.init_scope():  # also where the graph of a pass is traced
            inputs, *_ = transform(tf.constant(some))
            sequences = [values for values in tf.nest.flatten(inputs) if isinstance(values, tf.RaggedTensor)]
            found[some] = np.max([values.row_lengths().numpy() for values in sequences], axis=0)
    return found


def in_buckets(
    numbers: tf.data.Dataset, split: str, transform: Callable[[tf.Tensor], Any], *, drop_remainder: bool
) -> tf.data.Dataset:
    """Return batches of the numbers of rows with sequences of like lengths, of all numbers of a pass."""
    lengths = lengths_of(split, transform)

    def batches(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of rows, batch after batch, and where each batch ends."""
        places, ends = cut_batches(lengths[rows], BOUNDARIES, BATCH_SIZES, drop_remainder=drop_remainder)
        return rows[places], ends

    def of_pass(rows: tf.Tensor) -> tf.data.Dataset:
        found, ends = tf.numpy_function(batches, [rows], [tf.int64, tf.int64])
        whole = tf.RaggedTensor.from_row_splits(tf.ensure_shape(found, (None,)), tf.ensure_shape(ends, (None,)))
        return tf.data.Dataset.from_tensor_slices(whole)

    return numbers.batch(len(records_of(split))).flat_map(of_pass)


def num_batches(split: str, transform: Callable[[tf.Tensor], Any], *, drop_remainder: bool) -> int:
    """Return the number of batches of a pass over `split`."""
    rows: Any = records_of(split)
    lengths = lengths_of(split, transform)[rows]
    return len(cut_batches(lengths, BOUNDARIES, BATCH_SIZES, drop_remainder=drop_remainder)[1]) - 1
