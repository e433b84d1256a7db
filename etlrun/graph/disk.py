"""A cache on disk in a graph: one pass fills it, others read it. What a pass does is decided when it begins."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from etlrun.cache.keeper import READ, Keeper
from etlrun.stages.flow import Flow


def decided(keeper: Keeper) -> tuple[tf.Tensor, tf.Tensor]:
    """What a pass does, and how many examples it can read; int64 scalars."""

    def begin() -> tuple[Any, Any]:
        mode = keeper.begin()
        return mode, mode * 0 + keeper.count

    mode, count = tf.numpy_function(begin, [], (tf.int64, tf.int64))
    return tf.ensure_shape(mode, ()), tf.ensure_shape(count, ())


def either(mode: tf.Tensor, filling: tf.data.Dataset, reading: tf.data.Dataset) -> tf.data.Dataset:
    """`reading` where `mode` is to read, `filling` otherwise; the other one is not begun."""
    everything, nothing = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    reads = tf.equal(mode, READ)
    return filling.take(tf.where(reads, nothing, everything)).concatenate(
        reading.take(tf.where(reads, everything, nothing))
    )


def written(dataset: tf.data.Dataset, keeper: Keeper, mode: tf.Tensor) -> tf.data.Dataset:
    """The examples of `dataset`, written to the cache where `mode` is to fill it, which is complete at their end."""

    def write(picture: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        done = tf.cond(
            mode > READ,
            lambda: tf.ensure_shape(tf.numpy_function(keeper.add, [mode, picture, label], tf.int64), ()),
            lambda: tf.constant(0, tf.int64),
        )
        with tf.control_dependencies([done]):
            return tf.identity(picture), label

    def publish(_: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(keeper.publish, [mode], tf.int64), ())

    as_is = tf.autograph.experimental.do_not_convert
    end = tf.data.Dataset.from_tensors(0).map(as_is(publish)).flat_map(as_is(dataset.take))
    return dataset.map(as_is(write)).concatenate(end)


def read_each(numbers: tf.data.Dataset, keeper: Keeper, kept: Flow) -> tf.data.Dataset:
    """(picture, label) for each number (int64 scalar)."""
    dtype = tf.string if kept.content == "encoded" else tf.as_dtype(kept.dtype)

    def read(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        picture, label = tf.numpy_function(keeper.one, [number], (dtype, tf.int64))
        return tf.ensure_shape(picture, shape_of(kept)), tf.ensure_shape(label, ())

    return numbers.map(tf.autograph.experimental.do_not_convert(read), num_parallel_calls=tf.data.AUTOTUNE)


def read_batches(numbers: tf.data.Dataset, keeper: Keeper, kept: Flow) -> tf.data.Dataset:
    """(pictures, labels) for each batch of numbers (int64 vector), each picture copied once."""

    def read(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pictures, labels = tf.numpy_function(keeper.batch, [numbers], (tf.as_dtype(kept.dtype), tf.int64))
        return tf.ensure_shape(pictures, (None, *shape_of(kept))), tf.ensure_shape(labels, (None,))

    return numbers.map(tf.autograph.experimental.do_not_convert(read), num_parallel_calls=tf.data.AUTOTUNE)


def shape_of(kept: Flow) -> tuple[int | None, ...]:
    """Of one picture, or of its features."""
    if kept.content == "encoded":
        return ()
    return (kept.features,) if kept.content == "features" else (kept.height, kept.width, 3)
