"""Features, caches, and loops without a model, in programs."""

from __future__ import annotations

import atexit
import functools
import itertools
import math
import pathlib
import shutil
import tempfile
import time

from etlrun.stages.lazy import keras, tf


def features_of(base: keras.Model, dataset: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Return (features, label) of each image: the output of the frozen `base`, computed once and in memory."""
    compute = tf.function(base, reduce_retracing=True)
    batches = [(compute(images, training=False), labels) for images, labels in dataset.batch(batch_size)]
    features, labels = (tf.concat(column, axis=0) for column in zip(*batches, strict=True))
    return tf.data.Dataset.from_tensor_slices((tf.cast(features, tf.float32), labels))


@functools.cache
def cache_folder(parent: str | None = None) -> str:
    """Make a folder for this process alone: tf.data can't tell if a cache is stale, broken or in use."""
    if parent is not None:
        pathlib.Path(parent).mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="pipeline_", dir=parent)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def emulate(
    dataset: tf.data.Dataset,
    steps: int,
    epochs: int,
    step_s: float,
    validation: tf.data.Dataset | None = None,
    validation_step_s: float = 0.0,
) -> None:
    """Hold each batch for as long as the accelerator would, and print the throughput."""
    batches = iter(dataset)
    for epoch in range(1, epochs + 1):
        began_s, examples = time.perf_counter(), 0
        for batch in itertools.islice(batches, steps):
            time.sleep(step_s)
            examples += len(tf.nest.flatten(batch)[0])
        wall_s = time.perf_counter() - began_s
        for _ in validation or ():
            time.sleep(validation_step_s)
        print(f"epoch {epoch}: {wall_s:.2f} s, {examples / wall_s:.1f} examples/s")


def read_passes(dataset: tf.data.Dataset, steps: int, passes: int | None, seconds: float = math.inf) -> None:
    """Read the batches of so many passes, or for so many seconds, and print the throughput."""
    batches, end_s = iter(dataset), time.perf_counter() + seconds
    for number in itertools.count(1) if passes is None else range(1, passes + 1):
        began_s, examples = time.perf_counter(), 0
        for batch in itertools.islice(batches, steps):
            examples += len(tf.nest.flatten(batch)[0])
            if time.perf_counter() > end_s:
                break
        wall_s = time.perf_counter() - began_s
        print(f"pass {number}: {wall_s:.2f} s, {examples / wall_s:.1f} examples/s")
        if time.perf_counter() > end_s:
            break
