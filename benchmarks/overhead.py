"""What the runner costs: the pipeline of `experiment=parallel` against the same one written by hand, in turns.

    python benchmarks/overhead.py --data-dir DIR [--pairs 150] [--output benchmarks/results/overhead.md]

A turn builds a pipeline anew and drains its first epoch, which fills the cache, and five later ones, which read it.
Which of the two goes first alternates; a turn of each is thrown away before. A ratio above 1 means that etlrun was
faster (wall) or needed less (CPU seconds of all threads, which a busy machine disturbs less). Short turns over a
quarter of the photos, and many of them: on a shared machine single turns differ by a factor of two.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.compose import Request, planned
from etlrun.graph.build import Pipeline
from etlrun.graph.source import Source
from etlrun.stages import STAGES

BATCH_SIZE, SHUFFLE_BUFFER, SIDE = 32, 1024, 224
LATER_EPOCHS = 5
SPLIT = "train[:25%]"

Epochs = Callable[[], Iterator[tf.data.Dataset]]


def by_hand(data_dir: str) -> Epochs:
    """The exercise's parallel pipeline as a person writes it."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    files = [item.filename for item in builder.info.splits[SPLIT].file_instructions]
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def prepare(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_image(example["image"], channels=3, expand_animations=False)
        image = tf.image.resize(image, (SIDE, SIDE))
        return image / 127.5 - 1.0, example["label"]

    def epochs() -> Iterator[tf.data.Dataset]:
        dataset = tf.data.Dataset.from_tensor_slices(files)
        dataset = dataset.interleave(
            tf.data.TFRecordDataset, cycle_length=4, block_length=1, num_parallel_calls=tf.data.AUTOTUNE
        )
        dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.cache().shuffle(SHUFFLE_BUFFER, seed=0).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
        for _number in range(1 + LATER_EPOCHS):
            yield dataset

    return epochs


def by_etlrun(data_dir: str, folder: Path) -> Epochs:
    """The pipeline that `experiment=parallel` builds."""
    words = ["experiment=parallel", f"dataset.data_dir={data_dir}", f"dataset.split='{SPLIT}'"]
    plan = planned(Request(overrides=words), STAGES)
    source = Source(plan.spec.dataset)
    split = source.split(plan.spec.dataset.split, "dataset.split")

    def epochs() -> Iterator[tf.data.Dataset]:
        pipeline = Pipeline(plan.train, source=source, split=split, seed=0, folder=folder)
        for _number in range(1 + LATER_EPOCHS):
            yield pipeline.dataset

    return epochs


def costs(epochs: Epochs) -> list[float]:
    """Seconds of a turn: wall and CPU of the first epoch, building the pipeline included, and of all later ones."""
    gc.collect()
    marks = [(time.perf_counter(), time.process_time())]
    for dataset in epochs():
        for _batch in dataset:
            pass
        marks.append((time.perf_counter(), time.process_time()))
    first, later = marks[1], marks[-1]
    return [first[0] - marks[0][0], first[1] - marks[0][1], later[0] - first[0], later[1] - first[1]]


def compare(data_dir: str, pairs: int) -> str:
    """The table of `pairs` turns, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = by_etlrun(data_dir, Path(folder)), by_hand(data_dir)
        costs(theirs), costs(ours)
        measured = []
        for turn in range(pairs):
            order = (ours, theirs) if turn % 2 else (theirs, ours)
            of = {epochs: costs(epochs) for epochs in order}
            measured.append((of[ours], of[theirs]))
    lines = ["| epochs | measure | etlrun s | by hand s | ratio, median | quartiles |", "|---|---|---|---|---|---|"]
    for column, name in enumerate(("first | wall", "first | CPU", "later | wall", "later | CPU")):
        pairs_of = [(mine[column], other[column]) for mine, other in measured]
        medians = [statistics.median(values) for values in zip(*pairs_of, strict=True)]
        low, middle, high = statistics.quantiles([other / mine for mine, other in pairs_of], n=4)
        lines.append(f"| {name} | {medians[0]:.3f} | {medians[1]:.3f} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    table = compare(arguments.data_dir, arguments.pairs)
    print(table)
    if arguments.output:
        command = f"python benchmarks/overhead.py --data-dir DIR --pairs {arguments.pairs}"
        arguments.output.write_text(f"`{command}` on 2 cores, TensorFlow {tf.__version__}\n\n{table}")


if __name__ == "__main__":
    main()
