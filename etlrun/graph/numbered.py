"""Reading of examples by number, in a random order of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.graph.context import Context, as_is
from etlrun.planning.plan import PlannedStage, stage_of
from etlrun.sources.base import Source, Split
from etlrun.sources.corrupt import labels_of, raise_first
from etlrun.sources.rows.dividing import RowNumbers
from etlrun.sources.rows.reader import lengths_of
from etlrun.stages.extract import Sequential
from etlrun.stages.lazy import tf
from etlrun.stages.load import TO_SKIP, Batch, FullShuffle, batches_in, drawn, drawn_with_index, read_by_number
from etlrun.stages.rows import Rows
from etlrun.stages.sequences import Bucket, in_buckets


def in_random_order(
    count: Any,
    stage: FullShuffle,
    context: Context,
    rows: npt.NDArray[np.int64] | None = None,
    made: Callable[..., tf.data.Dataset] = drawn,
) -> tf.data.Dataset:
    """Return the numbers of examples (int64 scalars) in the order of the pass; there are `count` examples.

    With `rows`, they are the rows of these numbers. `made` makes the dataset of a pass, as `drawn` does.

    Where examples carry numbers, each comes with that of the draw, which differs for each time that one is drawn.
    """
    seed = context.pass_seed(context.pass_number)
    drawn_from = count
    if stage.is_by_class:
        with tf.init_scope():  # labels are read now, even where a graph is traced
            drawn_from = labels_of(context.source, context.split, by_number=True)

    def of_pass(_: tf.Tensor) -> tf.data.Dataset:
        draw = stage.op if rows is None else partial(rows_drawn, rows, stage)
        return (made if context.numbered_to is None else drawn_with_index)(draw, drawn_from, seed)

    return tf.data.Dataset.from_tensors(0).flat_map(as_is(of_pass))


def rows_drawn(rows: npt.NDArray[np.int64], stage: FullShuffle, of: Any, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows whose numbers `stage` draws."""
    if stage.is_by_class:
        return rows.take(stage.op(of, seed))
    return np.random.default_rng(int(seed)).permutation(rows)  # the same rows, in half of the time


def count_of_batched(stages: Sequence[PlannedStage], context: Context) -> int:
    """Return how many of the first stages `batches_of_rows` does at once: those up to `load.batch`; 0 for none."""
    kinds = [type(planned.stage) for planned in stages[:3]]
    count = next((place for place, kind in enumerate(kinds, 1) if issubclass(kind, Batch)), 0)
    is_read = kinds[:1] == [Sequential] and all(issubclass(kind, FullShuffle) for kind in kinds[1 : count - 1])
    return count if is_read and isinstance(context.source.dataset, Rows) and context.numbered_to is None else 0


def batches_of_rows(stages: Sequence[PlannedStage], context: Context) -> tf.data.Dataset:
    """Return the batches of numbers (int64 vectors) of these stages, cut from the whole order of the pass."""
    *before, batch = (planned.stage for planned in stages)
    rows = context.split.numbered.rows  # type: ignore[attr-defined] # which are `RowNumbers`
    if len(before) > 1:
        order = in_random_order(np.int64(len(rows)), before[1], context, rows, _whole)  # type: ignore[arg-type]
    else:
        nothing = tf.data.Dataset.from_tensors(0)
        order = nothing.flat_map(lambda _: _whole(rows.copy))  # TensorFlow may write to what a function returns
    if not isinstance(batch, Bucket):
        return order.rebatch(batch.batch_size, drop_remainder=batch.drop_remainder)  # type: ignore[attr-defined]
    lengths = np.zeros(rows.max() + 1, np.int64)
    with tf.init_scope():  # they are counted now, even where a graph is traced
        lengths[rows] = lengths_of(context.source, context.split, batch.columns)  # type: ignore[arg-type] # of rows
    return in_buckets(order, lengths, batch.boundaries, batch.batch_sizes, drop_remainder=batch.drop_remainder)


def count_of_batches(stages: Sequence[PlannedStage], source: Source, split: Split, hosts: int = 1) -> int:
    """Return the number of batches in a pass over the part of a split that a host reads, if no record is skipped."""
    batch = stage_of(stages, Batch)
    if isinstance(batch, Bucket):
        return batch.batches_in(lengths_of(source, split, batch.columns))  # type: ignore[arg-type] # those of rows
    return batches_in(batch, split.num_examples // hosts)  # type: ignore[arg-type] # all plans have it


def _whole(draw: Callable[..., npt.NDArray[np.int64]], *arguments: Any) -> tf.data.Dataset:
    """Return what `draw` gives as one element."""
    order = tf.ensure_shape(tf.numpy_function(draw, arguments, tf.int64), (None,))
    return tf.data.Dataset.from_tensors(order)


def full_shuffle(_in_order: tf.data.Dataset, stage: FullShuffle, context: Context) -> tf.data.Dataset:
    """Return the serialised examples of the split (string scalars), read by number instead of in order.

    Raises:
        WorldError: A shard is damaged or can't be read.
    """
    source, split = context.source, context.split
    try:
        with tf.init_scope():  # damage is looked for now, even where a graph is traced
            records = split.numbered
    except OSError as error:
        raise source.unreadable(str(error.filename), error.strerror or str(error)) from error
    except ValueError as error:
        raise_first(error, source, split, TO_SKIP)
        raise
    count = np.int64(records.count)
    if isinstance(records, RowNumbers):
        return in_random_order(count, stage, context, records.rows)
    return read_by_number(in_random_order(count, stage, context), records.read)
