"""Reading of examples by number, in a random order of all of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.graph.context import Context
from etlrun.sources.base import Records
from etlrun.sources.corrupt import raise_first
from etlrun.sources.labels import labels_of
from etlrun.sources.rows.numbers import RowNumbers
from etlrun.stages.lazy import tf
from etlrun.stages.load import AT_ONCE, TO_SKIP, FullShuffle, drawn, drawn_with_index


def in_random_order(
    count: Any, stage: FullShuffle, context: Context, rows: npt.NDArray[np.int64] | None = None
) -> tf.data.Dataset:
    """Return the numbers of examples (int64 scalars) in the order of the pass; there are `count` examples.

    With `rows`, they are the rows of these numbers.

    Where examples carry numbers, each comes with that of the draw, which differs for each time that one is drawn.
    """
    seed = context.pass_seed(context.pass_number)
    drawn_from = count
    if stage.is_by_class:
        with tf.init_scope():  # labels are read now, even where a graph is traced
            drawn_from = labels_of(context.source, context.split, by_number=True)

    def of_pass(_: tf.Tensor) -> tf.data.Dataset:
        draw = stage.op if rows is None else partial(rows_drawn, rows, stage)
        return (drawn if context.numbered_to is None else drawn_with_index)(draw, drawn_from, seed)

    return tf.data.Dataset.from_tensors(0).flat_map(tf.autograph.experimental.do_not_convert(of_pass))


def rows_drawn(rows: npt.NDArray[np.int64], stage: FullShuffle, of: Any, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows whose numbers `stage` draws."""
    if stage.is_by_class:
        return rows.take(stage.op(of, seed))
    return np.random.default_rng(int(seed)).permutation(rows)  # the same rows, in half of the time


def full_shuffle(_in_order: tf.data.Dataset, stage: FullShuffle, context: Context) -> tf.data.Dataset:
    """Return the serialised examples of the split (string scalars), read by number instead of in order.

    Raises:
        WorldError: A shard is damaged or can't be read.
    """
    with tf.init_scope():  # damage is looked for now, even where a graph is traced
        records = _located(context)
    if isinstance(records, RowNumbers):
        return in_random_order(np.int64(records.count), stage, context, records.rows)

    def read(numbers: tf.Tensor, *draws: tf.Tensor) -> Any:
        found = tf.ensure_shape(tf.numpy_function(records.read, [numbers], tf.string), (None,))
        return (found, *draws) if draws else found

    numbers = in_random_order(np.int64(records.count), stage, context).batch(AT_ONCE)
    as_is = tf.autograph.experimental.do_not_convert
    return numbers.map(as_is(read), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).unbatch()


def _located(context: Context) -> Records:
    source, split = context.source, context.split
    try:
        return split.numbered
    except OSError as error:
        raise source.unreadable(str(error.filename), error.strerror or str(error)) from error
    except ValueError as error:
        raise_first(error, source, split, TO_SKIP)
        raise
