"""Reading of shards in programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from etlrun.eject.printed.given import decode
from etlrun.eject.printed.tfds import parts_of
from etlrun.stages.lazy import tf, tfds


def shards(split: str, seed: int | tf.Tensor | None = None) -> tf.data.Dataset:
    """Return the path of each shard of `split`, with the records to skip and to take; a `seed` shuffles them."""
    parts = parts_of(split)
    paths = [str(part.filename) for part in parts]
    skips, takes = [part.skip for part in parts], [part.take for part in parts]
    dataset = tf.data.Dataset.from_tensor_slices((paths, tf.constant(skips, tf.int64), tf.constant(takes, tf.int64)))
    return dataset if seed is None else dataset.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)


def shards_with_index(split: str, seed: int | tf.Tensor | None = None) -> tf.data.Dataset:
    """Return the shards of `split`, each with the index of its first record in the split; a `seed` shuffles them."""
    parts = parts_of(split)
    takes = [part.examples_in_shard - part.skip if part.take == -1 else part.take for part in parts]
    firsts = tf.data.Dataset.from_tensor_slices(tf.constant([*itertools.accumulate(takes, initial=0)][:-1], tf.int64))
    dataset = tf.data.Dataset.zip((shards(split), firsts)).map(lambda shard, first: (*shard, first))
    return dataset if seed is None else dataset.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)


def records(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset:
    """Read `take` records of a shard, after the first `skip`; a `take` of -1 means all."""
    return tf.data.TFRecordDataset(path).skip(skip).take(take)


def with_index(read: Callable[..., tf.data.Dataset]) -> Callable[..., tf.data.Dataset]:
    """Return the function that also gives the index of each record in the split, which differs for equal examples."""

    def of_shard(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        return read(path, skip, take).enumerate(first).map(lambda index, record: (record, index))

    return of_shard


def decoded(image: tf.Tensor, _feature: tfds.features.Image) -> tf.Tensor:
    """Decode to three channels of uint8, whatever the feature declares."""
    return decode(image)
