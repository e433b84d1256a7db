"""Shards of URLs in a graph: a pass fetches them in its order, ahead of its reading, and leaves each that it has read.

The order of a pass goes to Python once. Then one shard after the other is waited for, never two at once, since a wait
holds one of TensorFlow's few threads.
"""

from __future__ import annotations

import weakref

import numpy as np
import numpy.typing as npt

from etlrun.remote.copies import Ahead
from etlrun.remote.objects import interrupted
from etlrun.sources.corrupt import Losses
from etlrun.sources.remote import RemoteSplit
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError
from etlrun.system.signals import call_when_interrupted

_FAILED = "a shard that can't be fetched"
Numbers = npt.NDArray[np.int64]


class Fetching:
    """The fetching of a split by one pass after the other. TensorFlow's threads call it.

    A pass that begins ends the fetching of the one before it, which may have been left before its end.
    """

    def __init__(self, split: RemoteSplit, losses: Losses, num_open: int) -> None:
        """Fetch nothing yet; raise `WorldError` if the shards that are open at once take more space than they may."""
        self._copies, self._losses, self._num_open = split.copies, losses, num_open
        self._objects = [split.objects[shard.path] for shard in split.shards]
        split.copies.require(self._objects, num_open)
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
        """Return the same elements, the number and others of each shard in the order of the pass, once it is there."""

        def begin(number: tf.Tensor, *others: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tf.ensure_shape(tf.numpy_function(self.begin, [number], tf.int64), (None,)), *others

        def take(number: tf.Tensor, *others: tf.Tensor) -> tuple[tf.Tensor, ...]:
            number = tf.ensure_shape(tf.numpy_function(self.take, [number], tf.int64), ())
            with tf.control_dependencies([tf.debugging.Assert(number >= 0, [_FAILED])]):
                return tf.identity(number), *others

        as_is, each = tf.autograph.experimental.do_not_convert, tf.data.Dataset.from_tensor_slices
        whole = shards.batch(len(self._objects)).map(as_is(begin))
        return whole.flat_map(as_is(lambda *columns: each(columns))).map(as_is(take))

    def left(self, records: tf.data.Dataset, number: tf.Tensor) -> tf.data.Dataset:
        """Return the records of the shard of this number, which is left behind the last one."""

        def leave(_: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(self.leave, [number], tf.int64), ())

        as_is = tf.autograph.experimental.do_not_convert
        end = tf.data.Dataset.from_tensors(0).map(as_is(leave)).flat_map(as_is(records.take))
        return records.concatenate(end)


_ALL: weakref.WeakSet[Fetching] = weakref.WeakSet()


def _end_waits() -> None:
    """Let the main thread, which may wait for a shard, come to the handler of a signal."""
    for fetching in list(_ALL):
        fetching.interrupt()


def _close(aheads: list[Ahead]) -> None:
    while aheads:
        aheads.pop().close()
