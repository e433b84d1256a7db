"""Where the CPU time of an image goes: pipelines that do one thing more each, from records to batches of pixels.

python -m benchmarks.image_cost --data-dir DIR [--turns 15] [--output benchmarks/results/image_cost.md]

The first table is of the pipeline of a config without a cache, built up stage by stage; a turn reads a whole pass of
each in random order, and one is thrown away before. The CPU time is user and system, of all threads; what a stage adds
is the median of its differences to the one before.

The second has 16 threads on any number of cores: in place of decoding and resizing a call sleeps for 0.45 ms an image,
in which it leaves Python's lock to others, as decoding does. What is left is what 16 cores would share: Python's lock,
the reading of records and the start of a pass. `searched` also looks for two bytes in the whole image, with the lock
held, as etlrun did before it read the markers of JPEGs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.decoding import BATCH_SIZE, SHUFFLE_BUFFER, SIDE, Measured, in_turns, of_photos, read
from etlrun.stages.image import Turbo
from etlrun.system.machine import cores

IMAGE_S, THREADS = 0.45e-3, 16
Images = npt.NDArray[np.uint8]


def nothing(encoded: list[bytes]) -> Images:
    """A call that looks at no image."""
    return np.zeros(len(encoded), np.uint8)


def decoded(encoded: list[bytes]) -> Images:
    """Decode all images into a buffer, and drop them."""
    buffer = np.empty(0, np.uint8)
    for data in encoded:
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        if buffer.size < 3 * height * width:
            buffer = np.empty(3 * height * width, np.uint8)
        simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, fastdct=True, fastupsample=False)
    return nothing(encoded)


def asleep(encoded: list[bytes], *, is_searched: bool) -> Images:
    """Sleep in place of decoding and resizing."""
    for data in encoded:
        simplejpeg.decode_jpeg_header(data)
        if is_searched and b"\xff\xc3" in data:
            raise ValueError
        time.sleep(IMAGE_S)
    return nothing(encoded)


TURBO = partial(Turbo.op, center_crop=False, size=(SIDE, SIDE), fast=False)


def stages(data_dir: str) -> dict[str, tf.data.Dataset]:
    """Datasets by what each does more than the one before."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    files = [item.filename for item in builder.info.splits["train"].file_instructions]
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}
    records = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE
    )
    batches = records.batch(BATCH_SIZE, num_parallel_calls=tf.data.AUTOTUNE)
    shuffled = records.shuffle(SHUFFLE_BUFFER, seed=0).batch(BATCH_SIZE, num_parallel_calls=tf.data.AUTOTUNE)
    parsed = shuffled.map(partial(tf.io.parse_example, features=features), num_parallel_calls=tf.data.AUTOTUNE)
    return {
        "records, checked and in batches": batches,
        "shuffle of 1,024": shuffled,
        "parsing": parsed,
        "a call of Python for each batch": called(parsed, nothing),
        "decoding": called(parsed, decoded),
        "resizing into the batch": called(parsed, TURBO),
    }


def called(parsed: tf.data.Dataset, function: Callable[..., Images], calls: int = tf.data.AUTOTUNE) -> tf.data.Dataset:
    """Batches with what `function` makes of their encoded images."""

    def apply(example: dict[str, Any]) -> dict[str, Any]:
        return {**example, "image": tf.numpy_function(function, [example["image"]], tf.uint8)}

    return parsed.map(apply, num_parallel_calls=calls)


def in_turn(datasets: Mapping[str, tf.data.Dataset], turns: int, threads: int = 0) -> dict[str, list[Measured]]:
    """Seconds of passes over these datasets, without graph rewrites, as etlrun runs them."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    if threads:
        options.threading.private_threadpool_size = threads
    ahead = {name: dataset.prefetch(tf.data.AUTOTUNE).with_options(options) for name, dataset in datasets.items()}
    return in_turns({name: partial(read, dataset) for name, dataset in ahead.items()}, turns)


def costs(found: Mapping[str, list[Measured]], images: int) -> list[str]:
    """The table of what each stage adds."""
    lines = ["| what is done | CPU ms an image, in all | added |", "|---|---|---|"]
    before = [0.0] * len(next(iter(found.values())))
    for name, measured in found.items():
        used = [1000 * cpu_s / images for _, cpu_s in measured]
        added = statistics.median(now - then for now, then in zip(used, before, strict=True))
        lines.append(f"| {name} | {statistics.median(used):.3f} | {added:.3f} |")
        before = used
    return lines


def rates(found: Mapping[str, list[Measured]], images: int) -> list[str]:
    """The table of rates."""
    lines = [f"| {THREADS} threads that sleep in place of decoding | images/s | CPU ms an image |", "|---|---|---|"]
    for name, measured in found.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*measured, strict=True))
        lines.append(f"| {name} | {images / wall_s:,.0f} | {1000 * cpu_s / images:.3f} |")
    return lines


def main() -> None:
    """Measure, print, and write the tables where asked."""
    known = of_photos(__doc__)
    datasets = stages(known.data_dir)
    images = sum(len(batch) for batch in datasets["records, checked and in batches"])
    parsed = datasets["parsing"]
    sides = {
        "searched": called(parsed, partial(asleep, is_searched=True), THREADS),
        "not searched": called(parsed, partial(asleep, is_searched=False), THREADS),
    }
    lines = [f"`python -m benchmarks.image_cost --data-dir DIR --turns {known.turns}` on {cores()} cores", ""]
    lines += [*costs(in_turn(datasets, known.turns), images), ""]
    lines += [*rates(in_turn(sides, known.turns, THREADS), images), ""]
    print("\n".join(lines))
    if known.output:
        known.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
