"""Reading of records: those of shards in the order of a pass, fetched ahead where they are URLs, or by number."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.graph.context import Context, as_is, autotuned, blank_like, computed, ended
from etlrun.planning.plan import PlannedStage, stage_of
from etlrun.remote.copies import Ahead, Copies
from etlrun.remote.objects import interrupted
from etlrun.sources.base import Split
from etlrun.sources.corrupt import Losses, labels_of, raise_first
from etlrun.sources.rows.reader import lengths_of
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.extract import Interleave, Sequential, Shards, shards
from etlrun.stages.lazy import tf
from etlrun.stages.load import (
    TO_SKIP,
    Batch,
    Bucket,
    FullShuffle,
    batches_in,
    draw_numbers,
    draw_numbers_with_index,
    in_buckets,
    read_by_number,
)
from etlrun.stages.rows import Rows
from etlrun.system.errors import EtlrunError
from etlrun.system.loading import call_when_interrupted


def in_random_order(
    count: Any,
    stage: FullShuffle,
    context: Context,
    rows: npt.NDArray[np.int64] | None = None,
    made: Callable[..., tf.data.Dataset] = draw_numbers,
) -> tf.data.Dataset:
    """Return the numbers of examples (int64 scalars) in the order of the pass; there are `count` examples.

    With `rows`, they are the rows of these numbers. `made` makes the dataset of a pass, as `draw_numbers` does.

    Where examples carry numbers, each comes with that of the draw, which differs for each time that one is drawn.
    """
    seed = context.pass_seed(context.pass_number)
    drawn_from = count
    if stage.is_by_class:
        with tf.init_scope():  # labels are read now, even where a graph is traced
            drawn_from = labels_of(context.split, by_number=True)

    def draw(of: Any, seed: int) -> npt.NDArray[np.int64]:
        return stage.op(of, seed) if rows is None else rows.take(stage.op(of, seed))

    def of_pass(_: tf.Tensor) -> tf.data.Dataset:
        return (made if context.numbered_to is None else draw_numbers_with_index)(draw, drawn_from, seed)

    return tf.data.Dataset.from_tensors(0).flat_map(as_is(of_pass))


def count_of_batched(stages: Sequence[PlannedStage], context: Context) -> int:
    """Return how many of the first stages `batches_of_rows` does at once: those up to `load.batch`; 0 for none."""
    kinds = [type(planned.stage) for planned in stages[:3]]
    count = next((place for place, kind in enumerate(kinds, 1) if issubclass(kind, Batch)), 0)
    is_read = kinds[:1] == [Sequential] and all(issubclass(kind, FullShuffle) for kind in kinds[1 : count - 1])
    return count if is_read and isinstance(context.source.dataset, Rows) and context.numbered_to is None else 0


def batches_of_rows(stages: Sequence[PlannedStage], context: Context) -> tf.data.Dataset:
    """Return the batches of numbers (int64 vectors) of these stages, cut from the whole order of the pass."""
    *before, batch = (planned.stage for planned in stages)
    rows = context.split.numbers
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


def count_of_batches(stages: Sequence[PlannedStage], split: Split, hosts: int = 1) -> int:
    """Return the number of batches in a pass over the part of a split that a host reads, if no record is skipped."""
    batch = stage_of(stages, Batch)
    if isinstance(batch, Bucket):
        return batch.batches_in(lengths_of(split.source, split, batch.columns))  # type: ignore[arg-type] # of rows
    return batches_in(batch, split.num_examples // hosts)  # type: ignore[arg-type] # all plans have it


def _whole(draw: Callable[..., npt.NDArray[np.int64]], *arguments: Any) -> tf.data.Dataset:
    """Return what `draw` gives as one element."""
    order = tf.ensure_shape(tf.numpy_function(draw, arguments, tf.int64), (None,))
    return tf.data.Dataset.from_tensors(order)


def full_shuffle(_in_order: tf.data.Dataset, stage: FullShuffle, context: Context) -> tf.data.Dataset:
    """Return the serialised examples of the split (string scalars), by number; `WorldError` for an unreadable shard."""
    source, split = context.source, context.split
    with tf.init_scope():  # damage is looked for now, even where a graph is traced
        try:
            records = split.numbered
        except OSError as error:
            raise source.unreadable(str(error.filename), error.strerror or str(error)) from error
        except ValueError as error:
            raise_first(error, split, TO_SKIP)
            raise
    count = np.int64(split.num_examples)
    if isinstance(source, RowsSource):
        return in_random_order(count, stage, context, split.numbers)
    return read_by_number(in_random_order(count, stage, context), records)


_FAILED = "a shard that can't be fetched"
Numbers = npt.NDArray[np.int64]


class Fetching:
    """The fetching of a split by one pass after the other. TensorFlow's threads call it.

    A pass that begins ends the fetching of the one before it, which may have been left before its end.
    """

    def __init__(self, split: Split, copies: Copies, losses: Losses, num_open: int) -> None:
        """Fetch nothing yet; raise `WorldError` if the shards that are open at once take more space than they may."""
        self._copies, self._losses, self._num_open = copies, losses, num_open
        self._objects = [split.source.objects[shard.path] for shard in split.shards]
        copies.require(self._objects, num_open)
        self._ahead: list[Ahead] = []  # none or one
        weakref.finalize(self, _close, self._ahead)
        _ALL.add(self)
        call_when_interrupted(_end_waits)

    def begin(self, order: Numbers) -> Numbers:
        """Begin to fetch the shards of these numbers in their order; return them."""
        _close(self._ahead)
        self._ahead.append(self._copies.ahead([self._objects[number] for number in order], self._num_open))
        return np.array(order)

    def take(self, number: np.int64) -> np.int64:
        """Wait for the copy of the shard of this number, which then stays until `leave`; return the number.

        It is -1 if that has failed, here or before, so that the pass ends with an error, in the place of which that of
        the fetch is reported: TensorFlow would print it with all calls that have led to it.
        """
        if self._losses.failure is None:
            try:
                self._current().take(self._objects[number])
            except EtlrunError as error:
                self._losses.failure = error
        return np.int64(number if self._losses.failure is None else -1)

    def leave(self, number: np.int64) -> np.int64:
        """End the use of the copy of the shard of this number, whose records are read; return 0."""
        self._current().leave(self._objects[number])
        return np.int64(0)

    def interrupt(self) -> None:
        """End the wait for a shard with an error."""
        _close(self._ahead)

    def _current(self) -> Ahead:
        for ahead in self._ahead:
            return ahead
        raise interrupted(self._objects[0].url)

    def fetched(self, shards: tf.data.Dataset) -> tf.data.Dataset:
        """Return the same elements, the last of which is the number of each shard, once it is there."""

        def begin(*shard: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return *shard[:-1], computed(self.begin, shard[-1], shape=(None,))

        def take(*shard: tf.Tensor) -> tuple[tf.Tensor, ...]:
            number = computed(self.take, shard[-1])
            with tf.control_dependencies([tf.debugging.Assert(number >= 0, [_FAILED])]):
                return *shard[:-1], tf.identity(number)

        each = tf.data.Dataset.from_tensor_slices
        whole = shards.batch(len(self._objects)).map(as_is(begin))
        return whole.flat_map(as_is(lambda *columns: each(columns))).map(as_is(take))

    def left(self, records: tf.data.Dataset, number: tf.Tensor) -> tf.data.Dataset:
        """Return the records of the shard of this number, which is left behind the last one."""
        return ended(records, lambda: computed(self.leave, number))


_ALL: weakref.WeakSet[Fetching] = weakref.WeakSet()


def _end_waits() -> None:
    """Let the main thread, which may wait for a shard, come to the handler of a signal."""
    for fetching in list(_ALL):
        fetching.interrupt()


def _close(aheads: list[Ahead]) -> None:
    while aheads:
        aheads.pop().close()


_OPENED_AHEAD = 3
"""Shards that a parallel interleave opens, for each of those that it reads."""


def _shards(stage: Shards, context: Context) -> tf.data.Dataset:
    """Return what `shards` does, in the order of the pass."""
    parts = [(shard.path, shard.skip, shard.take) for shard in context.split.shards]

    def of_pass(_: tf.Tensor) -> tf.data.Dataset:
        return shards(parts, context.pass_seed(context.passes_begun))

    if not stage.shuffle_files:
        return shards(parts)
    if tf.inside_function() or not isinstance(context.passes_begun, tf.Variable):
        return of_pass(tf.constant(0))  # built anew for each pass, or the same in all of them
    return tf.data.Dataset.from_tensors(0).flat_map(as_is(of_pass))


def _read(stage: Shards, context: Context, num_open: int) -> tuple[tf.data.Dataset, Callable[..., tf.data.Dataset]]:
    """Return the shards in the order of the pass, and the function that reads the records of each.

    They come with their numbers in the split if they carry these. Shards of URLs are waited for, of which up to
    `num_open` are open at once.
    """
    found, split, copies = _shards(stage, context), context.split, context.source.copies
    fetching = None if copies is None else Fetching(split, copies, context.losses, num_open)

    def read(path: Any, skip: Any, take: Any, first: Any, number: Any) -> tf.data.Dataset:
        records = whole(split.read(path, skip, take), take, context)
        records = records if fetching is None else fetching.left(records, number)
        if context.compare is not None and not context.source.is_read_by_parser:
            records = records.map(partial(as_is(context.compare), number))
        if context.numbered_to is None:
            return records
        return tf.data.Dataset.zip((records, tf.data.Dataset.range(first, first + take)))

    return found if fetching is None else fetching.fetched(found), as_is(read)


def whole(examples: tf.data.Dataset, count: Any, context: Context) -> tf.data.Dataset:
    """Return the same dataset, which fails if it has fewer than `count` examples: the cause is then looked for.

    Where corrupt records are skipped, what is missing is counted at the end of a pass.
    """
    if context.source.dataset.on_corrupt == "skip":
        return examples

    def fail(_: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), ["too few records"])]):  # noqa: FBT003
            return blank_like(examples)

    failing = tf.data.Dataset.from_tensors(0).map(as_is(fail))
    return examples.concatenate(failing).take(count)


def sequential(_nothing: None, stage: Sequential, context: Context) -> tf.data.Dataset:
    """Return serialised examples (string scalars), one shard after the other."""
    found, read = _read(stage, context, 1)
    return found.flat_map(read)


def interleave(_nothing: None, stage: Interleave, context: Context) -> tf.data.Dataset:
    """Return serialised examples (string scalars) of several shards in turn.

    After an error, tf.data continues with a different shard if it has no parallel calls. Those of URLs are read without
    them, so that the first record needs the first shard alone.
    """
    skips, is_remote = context.source.dataset.on_corrupt == "skip", context.source.copies is not None
    calls = None if is_remote else autotuned(stage.num_parallel_calls)
    open_at_once = stage.at_once(len(context.split.shards))
    calls = (1 if skips else None) if calls is None else min(calls, open_at_once)  # AUTOTUNE is -1
    found, read = _read(stage, context, open_at_once * (_OPENED_AHEAD if calls else 1))
    return found.interleave(
        read,
        cycle_length=open_at_once,
        block_length=stage.block_length,
        num_parallel_calls=calls,
        deterministic=stage.deterministic if calls else None,
    )
