"""Where the CPU time of an image goes: pipelines that do one thing more each, from records to batches of pixels.

python -m benchmarks.image_cost --data-dir DIR [--turns 15] [--output benchmarks/results/image_cost.md]

The pipeline is that of a config without a cache, built up stage by stage; a turn reads a whole pass of each in random
order, and one is thrown away before. The CPU time is user and system, of all threads; what a stage adds is the median
of its differences to the one before. What threads of Python share on many cores is in benchmarks.cores.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.decoding import BATCH_SIZE, SHUFFLE_BUFFER, SIDE, Measured, in_turns, of_photos, read
from etlrun.graph.build import as_written
from etlrun.stages.image import Turbo
from etlrun.system.machine import cores

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


TURBO = partial(Turbo.op, center_crop=False, size=(SIDE, SIDE), fast=False)


def files_of(data_dir: str) -> list[str]:
    """Paths of the files of photos."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    return [item.filename for item in builder.info.splits["train"].file_instructions]


def records_of(files: Sequence[str], times: int | None = 1) -> tf.data.Dataset:
    """Records of files that are read so many `times`, None for ever."""
    return (
        tf.data.Dataset.from_tensor_slices([*files])
        .repeat(times)
        .interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    )


def parsed_of(records: tf.data.Dataset) -> tf.data.Dataset:
    """Batches of encoded photos."""
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}
    return records.batch(BATCH_SIZE, num_parallel_calls=tf.data.AUTOTUNE).map(
        partial(tf.io.parse_example, features=features), num_parallel_calls=tf.data.AUTOTUNE
    )


def stages(data_dir: str) -> dict[str, tf.data.Dataset]:
    """Datasets by what each does more than the one before."""
    records = records_of(files_of(data_dir))
    shuffled = records.shuffle(SHUFFLE_BUFFER, seed=0)
    parsed = parsed_of(shuffled)
    return {
        "records, checked and in batches": records.batch(BATCH_SIZE, num_parallel_calls=tf.data.AUTOTUNE),
        "shuffle of 1,024": shuffled.batch(BATCH_SIZE, num_parallel_calls=tf.data.AUTOTUNE),
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


def in_turn(datasets: Mapping[str, tf.data.Dataset], turns: int) -> dict[str, list[Measured]]:
    """Seconds of passes over these datasets, as etlrun runs them."""
    ahead = {name: dataset.prefetch(tf.data.AUTOTUNE).with_options(as_written()) for name, dataset in datasets.items()}
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


def main() -> None:
    """Measure, print, and write the tables where asked."""
    known = of_photos(__doc__)
    datasets = stages(known.data_dir)
    images = sum(len(batch) for batch in datasets["records, checked and in batches"])
    lines = [f"`python -m benchmarks.image_cost --data-dir DIR --turns {known.turns}` on {cores()} cores", ""]
    lines += [*costs(in_turn(datasets, known.turns), images), ""]
    print("\n".join(lines))
    if known.output:
        known.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
