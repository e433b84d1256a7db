"""What the runner costs: the pipeline of `experiment=parallel` against the same one written by hand, in turns.

    python benchmarks/overhead.py --data-dir DIR [--pairs 7] [--output benchmarks/results/overhead.md]

Each turn builds the pipeline anew and drains its first epoch (which fills the cache) and a second one
(which reads it). Which of the two goes first alternates. A ratio above 1 means that etlrun was faster.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.compose import Request, planned
from etlrun.graph.build import Pipeline
from etlrun.graph.source import Source
from etlrun.stages import STAGES

BATCH_SIZE, SHUFFLE_BUFFER, SIDE = 32, 1024, 224

Epochs = Callable[[], list[tf.data.Dataset]]


def by_hand(data_dir: str) -> Epochs:
    """The exercise's parallel pipeline as a person writes it."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    files = [item.filename for item in builder.info.splits["train"].file_instructions]
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def prepare(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_image(example["image"], channels=3, expand_animations=False)
        image = tf.image.resize(image, (SIDE, SIDE))
        return image / 127.5 - 1.0, example["label"]

    def epochs() -> list[tf.data.Dataset]:
        dataset = tf.data.Dataset.from_tensor_slices(files)
        dataset = dataset.interleave(
            tf.data.TFRecordDataset, cycle_length=4, block_length=1, num_parallel_calls=tf.data.AUTOTUNE
        )
        dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.cache().shuffle(SHUFFLE_BUFFER, seed=0).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
        return [dataset, dataset]

    return epochs


def by_etlrun(data_dir: str, folder: Path) -> Epochs:
    """The pipeline that `experiment=parallel` builds."""
    words = ["experiment=parallel", f"dataset.data_dir={data_dir}", "dataset.split=train"]
    plan = planned(Request(overrides=words), STAGES)
    source = Source(plan.spec.dataset)
    split = source.split(plan.spec.dataset.split, "dataset.split")

    def epochs() -> list[tf.data.Dataset]:
        pipeline = Pipeline(plan.train, source=source, split=split, seed=0, folder=folder)
        return [pipeline.one_pass(number) for number in range(2)]

    return epochs


def rates(epochs: Epochs) -> list[float]:
    """Examples a second of each epoch, building the pipeline included in the first."""
    measured, start_s = [], time.perf_counter()
    for dataset in epochs():
        examples = sum(int(labels.shape[0]) for _, labels in dataset)
        now_s = time.perf_counter()
        measured.append(examples / (now_s - start_s))
        start_s = now_s
    return measured


def compare(data_dir: str, pairs: int) -> str:
    """The table of `pairs` turns, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = by_etlrun(data_dir, Path(folder)), by_hand(data_dir)
        rates(theirs)
        measured = []
        for turn in range(pairs):
            if turn % 2:
                second, first = rates(theirs), rates(ours)
            else:
                first, second = rates(ours), rates(theirs)
            measured.append((first, second))
    header = ("epoch", "etlrun examples/s", "by hand examples/s", "ratio, median", "least", "most")
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for epoch, name in enumerate(("first, fills the cache", "second, reads it")):
        pairs_of = [(ours[epoch], theirs[epoch]) for ours, theirs in measured]
        ratios = [a / b for a, b in pairs_of]
        medians = [statistics.median(column) for column in zip(*pairs_of, strict=True)]
        lines.append(
            f"| {name} | {medians[0]:.0f} | {medians[1]:.0f} | {statistics.median(ratios):.3f} | "
            f"{min(ratios):.3f} | {max(ratios):.3f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    table = compare(arguments.data_dir, arguments.pairs)
    print(table)
    if arguments.output:
        command = f"python benchmarks/overhead.py --data-dir DIR --pairs {arguments.pairs}"
        arguments.output.write_text(f"`{command}` on 2 cores, TensorFlow {tf.__version__}\n\n{table}")


if __name__ == "__main__":
    main()
