"""Rows with lists of numbers in programs: ragged tensors."""

from __future__ import annotations

from etlrun.eject.printed.given import FEATURES, TYPES
from etlrun.eject.printed.rows import column
from etlrun.stages.lazy import np, tf


def flat(values: np.ndarray, kind: str) -> list[np.ndarray]:
    """Return the items of lists, and how many each has; other values as they are."""
    if not kind.endswith(" list"):
        return [values]
    items = np.concatenate([np.empty(0, kind.removesuffix(" list")), *values])
    return [items, np.array([*map(len, values)], np.int64)]


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the columns of a batch of rows by their numbers; lists are ragged."""

    def take(numbers: np.ndarray) -> list[np.ndarray]:
        """Return the values of the columns in rows."""
        return [part for name in FEATURES for part in flat(column(name)[numbers], TYPES[name])]

    dtypes = [part.dtype for name in FEATURES for part in flat(column(name)[:0], TYPES[name])]
    parts, found = iter(tf.numpy_function(take, [record], dtypes)), {}
    for name in FEATURES:
        found[name] = tf.ensure_shape(next(parts), (None, *column(name).shape[1:]))
        if TYPES[name].endswith(" list"):
            lengths = tf.ensure_shape(next(parts), (None,))
            found[name] = tf.RaggedTensor.from_row_lengths(found[name], lengths)
    return found
