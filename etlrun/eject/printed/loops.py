"""Shards, batches of sequences, features, caches, and loops without a model, in programs."""

from __future__ import annotations

import atexit
import functools
import itertools
import math
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

from etlrun.eject.printed.given import BATCH_SIZES, BOUNDARIES, records_of
from etlrun.eject.printed.tfds import parts_of
from etlrun.stages.lazy import keras, np, tf
from etlrun.stages.sequences import cut_batches


def features_of(base: keras.Model, dataset: tf.data.Dataset, image: str, batch_size: int) -> tf.data.Dataset:
    """Return the examples with features in place of the `image`: the output of the frozen `base`, kept in memory."""
    compute = tf.function(base, reduce_retracing=True)
    batches = [{**batch, image: compute(batch[image], training=False)} for batch in dataset.batch(batch_size)]
    whole = {name: tf.concat([batch[name] for batch in batches], axis=0) for name in batches[0]}
    return tf.data.Dataset.from_tensor_slices({**whole, image: tf.cast(whole[image], tf.float32)})


@functools.cache
def cache_folder(parent: str | None = None) -> str:
    """Make a folder for this process alone: tf.data can't tell if a cache is stale, broken or in use."""
    if parent is not None:
        pathlib.Path(parent).mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="pipeline_", dir=parent)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def read_passes(
    dataset: tf.data.Dataset,
    steps: int,
    passes: int | None,
    seconds: float = math.inf,
    step_s: tuple[float, float] = (0.0, 0.0),
    validation: tf.data.Dataset | None = None,
) -> None:
    """Read the batches of so many passes, or for so many seconds, and print the throughput.

    Each batch is held for as long as an accelerator would: one of training, and one of validation.
    """
    batches, end_s = iter(dataset), time.perf_counter() + seconds
    for number in itertools.count(1) if passes is None else range(1, passes + 1):
        began_s, examples = time.perf_counter(), 0
        for batch in itertools.islice(batches, steps):
            time.sleep(step_s[0])
            examples += len(tf.nest.flatten(batch)[0])
            if time.perf_counter() > end_s:
                break
        wall_s = time.perf_counter() - began_s
        for _ in validation or ():
            time.sleep(step_s[1])
        print(f"pass {number}: {wall_s:.2f} s, {examples / wall_s:.1f} examples/s")
        if time.perf_counter() > end_s:
            break


def shards(split: str, seed: int | tf.Tensor | None = None, *, numbered: bool = False) -> tf.data.Dataset:
    """Return the path of each shard of `split`, with the records to skip and to take; a `seed` shuffles them.

    If they are `numbered`, the number of the first of these records in the split is behind them.
    """
    parts = parts_of(split)
    takes = [part.take for part in parts]
    firsts = [*itertools.accumulate(takes, initial=0)][:-1]
    columns = [[part.skip for part in parts], takes, *([firsts] if numbered else [])]
    paths = [part.filename for part in parts]
    dataset = tf.data.Dataset.from_tensor_slices((paths, *(tf.constant(column, tf.int64) for column in columns)))
    return dataset if seed is None else dataset.shuffle(len(parts), seed=seed, reshuffle_each_iteration=False)


def records(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset:
    """Read `take` records of a shard, after the first `skip`."""
    return tf.data.TFRecordDataset(path).skip(skip).take(take)


def with_number(read: Callable[..., tf.data.Dataset]) -> Callable[..., tf.data.Dataset]:
    """Return the function that also gives the number of each record in the split, which differs for equal examples."""

    def of_shard(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.zip((read(path, skip, take), tf.data.Dataset.range(first, first + take)))

    return of_shard


@functools.cache
def lengths_of(split: str, transform: Callable[[tf.Tensor], dict[str, Any]]) -> np.ndarray:
    """Return the number of items of the longest sequence of each row of `split`, by the numbers of the rows."""
    rows: Any = records_of(split)
    found = np.zeros(max(rows) + 1, np.int64)
    for some in np.array_split(rows, len(rows) // 1_024 + 1):
        with tf.init_scope():  # also where the graph of a pass is traced
            example = transform(tf.constant(some))
            sequences = [values for values in example.values() if isinstance(values, tf.RaggedTensor)]
            found[some] = np.max([values.row_lengths().numpy() for values in sequences], axis=0)
    return found


def num_batches(split: str, transform: Callable[[tf.Tensor], dict[str, Any]], *, drop_remainder: bool) -> int:
    """Return the number of batches of a pass over `split`."""
    rows: Any = records_of(split)
    lengths = lengths_of(split, transform)[rows]
    return len(cut_batches(lengths, BOUNDARIES, BATCH_SIZES, drop_remainder=drop_remainder)[1]) - 1
