"""Parsing of several examples in one call: where does it pay?

python -m benchmarks.parsing --data-dir DIR [--turns 9] [--output benchmarks/results/parsing.md]

Uncached passes of two datasets: the photos, and 20,000 images of 32x32 pixels (PNG, in 8 TFRecord files), with
`transform.parse_batch` null, 32 and 256, read in turns; a turn is thrown away before. Images of 32x32 are not resized
to another size, so that a pass has little else to do.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.decoding import in_turns, read, table
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES

SIDES = {"one at a time": "null", "32 in a call": "32", "256 in a call": "256"}
SMALL, FILES, SIDE = 20_000, 8, 32


def written(folder: Path) -> str:
    """Write small images to TFRecord files; their pattern."""
    random = np.random.default_rng(0)
    for file in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"train-{file}.tfrecord")) as writer:
            for label in random.integers(10, size=SMALL // FILES):
                pixels = np.repeat(np.repeat(random.integers(256, size=(8, 8, 3), dtype=np.uint8), 4, 0), 4, 1)
                image = tf.io.encode_png(pixels).numpy()
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    return f"{folder}/train-*.tfrecord"


def pipeline_of(*overrides: str) -> Pipeline:
    """The uncached training pipeline of a config."""
    words = ["cache=none", "trainer=drain", "dataset.split=train", "dataset.eval_split=null", *overrides]
    plan = resolve(Request(overrides=words), STAGES).plan
    return Pipeline(plan.train, contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"])


def measured(turns: int, *overrides: str) -> str:
    """The table of a dataset."""
    pipelines = {name: pipeline_of(*overrides, f"transform.parse_batch={of}") for name, of in SIDES.items()}
    examples = next(iter(pipelines.values())).split.num_examples
    sides = {name: partial(read, pipeline.dataset) for name, pipeline in pipelines.items()}
    return table(in_turns(sides, turns), examples, "one at a time")


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = ("dataset=tfrecord", f"dataset.files={written(Path(folder))}", "dataset.num_classes=10")
        tables = {
            "20,000 images of 32x32": measured(known.turns, *small, "transform.resize.size=[32,32]"),
            "The photos, to 224x224": measured(
                known.turns, "dataset=cats_vs_dogs", f"dataset.data_dir={known.data_dir}", "transform=imagenet_224"
            ),
        }
    text = "\n".join(f"{title}:\n\n{found}" for title, found in tables.items())
    print(text)
    if known.output:
        head = f"`python -m benchmarks.parsing --data-dir DIR --turns {known.turns}` on 2 cores"
        known.output.write_text(f"{head}, TensorFlow {tf.__version__}\n\n{text}")


if __name__ == "__main__":
    main()
