"""What the runner costs: the pipeline of `experiment=parallel` beside the exercise's as a person writes it, in turns.

    python -m benchmarks.overhead --data-dir DIR [--records N] [--pairs 61] [--output benchmarks/results/overhead.md]

A turn builds a pipeline anew and drains its first epoch, which fills the cache in memory, and three later ones, which
read it; or one without a cache, and all four. By hand, tf.data's graph rewrites are on, as they are by default. Chance
decides which of the two goes first; a turn of each is thrown away before. A ratio above 1 means that etlrun was faster
(wall) or needed less (CPU seconds of all threads, which a busy machine disturbs less). glibc is told to keep freed
memory: to be handed new pages costs more than all that is compared here, and falls on whoever is first. With
`--records`, the photos are repeated up to that number: the exercise has 23,262.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.scale import made
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.graph.context import Context
from etlrun.sources.base import open_source
from etlrun.stages import STAGES

BATCH_SIZE, SHUFFLE_BUFFER, SIDE = 32, 1024, 224
LATER_EPOCHS = 3
PARTS = ("build", "first epoch", "later epochs", "all of it")
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**35), "MALLOC_TOP_PAD_": str(2**28)}
SPLIT = "train"

Epochs = Callable[[], Iterator[tf.data.Dataset]]


def by_hand(data_dir: str, cache: str) -> Epochs:
    """The exercise's parallel pipeline as a person writes it, with a cache in memory or without."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    files = [item.filename for item in builder.info.splits[SPLIT].file_instructions]
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def prepare(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_image(example["image"], channels=3, expand_animations=False)
        image = tf.image.resize(tf.cast(image, tf.float32) / 255.0, (SIDE, SIDE))
        return image, example["label"]

    def epochs() -> Iterator[tf.data.Dataset]:
        dataset = tf.data.Dataset.from_tensor_slices(files)
        dataset = dataset.interleave(
            tf.data.TFRecordDataset, cycle_length=4, block_length=1, num_parallel_calls=tf.data.AUTOTUNE
        )
        dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.cache() if cache == "memory" else dataset
        dataset = dataset.shuffle(SHUFFLE_BUFFER, seed=0).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
        for _number in range(1 + LATER_EPOCHS):
            yield dataset

    return epochs


def by_etlrun(data_dir: str, cache: str) -> Epochs:
    """The pipeline that `experiment=parallel` builds with this cache."""
    words = ["experiment=parallel", f"cache={cache}", f"dataset.data_dir={data_dir}", f"dataset.split='{SPLIT}'"]
    plan = resolve(Request(overrides=words), STAGES).plan
    source = open_source(plan.spec.dataset)
    split = source.split(plan.spec.dataset.split, "dataset.split")

    def epochs() -> Iterator[tf.data.Dataset]:
        pipeline = Pipeline(plan.train, Context(split=split, seed=0))
        for _number in range(1 + LATER_EPOCHS):
            yield pipeline.dataset

    return epochs


def costs(epochs: Epochs) -> list[float]:
    """Seconds of a turn, wall and CPU of each part; without deleting iterators, which waits for threads of tf.data."""
    gc.collect()
    kept = []
    marks = [(time.perf_counter(), time.process_time())]
    for dataset in epochs():
        if len(marks) == 1:
            marks.append((time.perf_counter(), time.process_time()))
        kept.append(iter(dataset))
        for _batch in kept[-1]:
            pass
        marks.append((time.perf_counter(), time.process_time()))
    parts = [*pairwise([marks[0], marks[1], marks[2], marks[-1]]), (marks[0], marks[-1])]
    return [after[clock] - before[clock] for before, after in parts for clock in range(2)]


def compared(data_dir: str, pairs: int, cache: str) -> Iterator[str]:
    """Lines of the table, of `pairs` turns."""
    ours, theirs = by_etlrun(data_dir, cache), by_hand(data_dir, cache)
    costs(theirs), costs(ours)
    measured = []
    for _turn in range(pairs):
        order = random.sample((ours, theirs), 2)
        of = {epochs: costs(epochs) for epochs in order}
        measured.append((of[ours], of[theirs]))
    for column, (part, clock) in enumerate(product(PARTS, ("wall", "CPU"))):
        pairs_of = [(mine[column], other[column]) for mine, other in measured]
        medians = [statistics.median(values) for values in zip(*pairs_of, strict=True)]
        low, middle, high = statistics.quantiles([other / mine for mine, other in pairs_of], n=4)
        numbers = f"{medians[0]:.3f} | {medians[1]:.3f} | {middle:.3f} | {low:.3f} to {high:.3f}"
        yield f"| {cache} | {part} | {clock} | {numbers} |"


def table(data_dir: str, pairs: int) -> list[str]:
    """Lines of the table, of pipelines with a cache in memory and without one."""
    lines = [
        "| cache | part | clock | etlrun s | by hand s | ratio, median | quartiles |",
        "|---|---|---|---|---|---|---|",
    ]
    for cache in ("memory", "none"):
        lines += compared(data_dir, pairs, cache)
        print("\n".join(lines), flush=True)
    return lines


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, type=Path, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--records", type=int, help="number of records to which the photos are repeated")
    parser.add_argument("--pairs", type=int, default=61)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if not KEEP_MEMORY.items() <= os.environ.items():
        command = [sys.executable, "-m", "benchmarks.overhead", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **KEEP_MEMORY})  # noqa: S606
    with tempfile.TemporaryDirectory() as folder:
        if arguments.records:
            made(arguments.data_dir, Path(folder), arguments.records, shards=16)
        lines = table(folder if arguments.records else str(arguments.data_dir), arguments.pairs)
    if arguments.output:
        records = f" --records {arguments.records}" if arguments.records else ""
        command_of = f"python -m benchmarks.overhead --data-dir DIR{records} --pairs {arguments.pairs}"
        of = f"`{command_of}` on 2 cores, TensorFlow {tf.__version__}"
        arguments.output.write_text("\n".join([of, "", *lines, ""]))


if __name__ == "__main__":
    main()
