"""Values of kept columns in a graph, which takes them from mapped files without calling Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from etlrun.sources.rows.kept import Kept
from etlrun.stages.flow import MISSING_TIME
from etlrun.stages.lazy import np, tf

Gather = Callable[["tf.Tensor"], "tf.Tensor"]


def gathered(kept: Kept, name: str) -> Gather | None:
    """Return a function from numbers of rows, a tensor of any shape, to the values of a column that `take` gives.

    Lists of several rows are a ragged tensor. None for a column that only `take` reads: an array, or texts without
    codes.
    """
    feature, of = kept.known.columns[name].feature, partial(_mapped, kept, name)
    with tf.init_scope(), tf.device("CPU"):
        ends = of("ends") if kept.has_lists(name) else None
        if feature.dtype == "string":
            if (codes := of("codes")) is None:
                return None
            words = tf.constant(kept.words(name))
            return lambda numbers: tf.gather(words, tf.gather(codes, numbers))
        values, missing = of("values"), of("missing")
    if values is None:
        return None
    if missing is None or values.dtype.is_floating:
        return partial(_in_lists, partial(tf.gather, values), ends)

    def or_instead(numbers: tf.Tensor) -> tf.Tensor:
        found = tf.cast(tf.gather(values, numbers), feature.dtype)
        instead = tf.constant(MISSING_TIME if feature.format == "timestamp" else np.nan, found.dtype)
        return tf.where(tf.gather(missing, numbers), instead, found)

    return partial(_in_lists, or_instead, ends)


def _in_lists(gather: Gather, ends: Any, numbers: tf.Tensor) -> Any:
    """Return the values at `numbers`; if a column has lists, with these `ends`, those of one, or of several, ragged."""
    if ends is None:
        return gather(numbers)
    starts, stops = tf.gather(ends, numbers), tf.gather(ends, numbers + 1)
    if not numbers.shape.rank:
        return gather(tf.range(starts, stops))
    return tf.ragged.map_flat_values(gather, tf.ragged.range(starts, stops))


def as_tensor(values: Any) -> Any:
    """Return values of a column, as `take` gives those of at least one row, as a tensor: lists as a ragged one."""
    if values.dtype == object and isinstance(values[0], np.ndarray):
        return tf.RaggedTensor.from_row_lengths(np.concatenate(values), [*map(len, values)])
    return tf.constant(values)


def _mapped(kept: Kept, name: str, kind: str) -> Any:
    """Return a file of a column as a tensor that is mapped into memory; None if there is none."""
    if (found := kept.file(name, kind)) is None:
        return None
    if not found[0].stat().st_size:  # which can't be mapped: all lists are empty
        return tf.constant([], found[1])
    values = np.memmap(*found, "c")  # since TensorFlow shares no memory that is read-only; nothing writes to it
    return tf.experimental.dlpack.from_dlpack(values.__dlpack__())
