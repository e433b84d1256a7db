"""The ladder of input pipelines: the exercise's two as a person writes them, and what comes after them.

python -m benchmarks.ladder --data-dir DIR --weights FILE [--turns 9] [--output benchmarks/results/ladder.md]

Each side reads all photos in batches of 32: by hand to float32, by etlrun to uint8, which the model scales, or to
features of MobileNetV2. A turn reads a whole pass of each, in random order, as an epoch of a training does after the
first one, which has filled the caches; a turn is thrown away before. The sides:

naive         `tfds.load`, resize and scale in a serial map, batch; nothing is shuffled or prefetched
parallel      interleaved files, a parallel map, shuffle, batch, prefetch; without a cache
uncached      `cache=none`, and with `transform.decode.library=tensorflow`
JPEG cache    `cache=disk cache.codec=jpeg90`
raw cache     `cache=disk`
features      `cache=disk cache.at=features`
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.decoding import BATCH_SIZE, SIDE, TENSORFLOW, by_hand, in_turns, read, table
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.graph.context import FrozenBase
from etlrun.graph.disk import keepers_of
from etlrun.planning.plan import Plan
from etlrun.run.model import backbone, training_data, whole_model
from etlrun.run.session import contexts_of, opened
from etlrun.sources.base import Source
from etlrun.stages import STAGES
from etlrun.system.machine import cores

SIDES: Mapping[str, tuple[str, ...]] = {
    "uncached, tensorflow": ("cache=none", TENSORFLOW),
    "uncached, turbo": ("cache=none",),
    "JPEG cache, turbo": ("cache=disk", "cache.codec=jpeg90"),
    "raw cache": ("cache=disk",),
    "features": ("cache=disk", "cache.at=features"),
}


def scaled(image: tf.Tensor) -> tf.Tensor:
    """Scaled to [0, 1], and resized."""
    return tf.image.resize(tf.cast(image, tf.float32) / 255.0, (SIDE, SIDE))


def naive(data_dir: str) -> tf.data.Dataset:
    """The exercise's first pipeline."""
    serial = tfds.ReadConfig(try_autocache=False, interleave_cycle_length=1)
    dataset = tfds.load("cats_vs_dogs", split="train", data_dir=data_dir, as_supervised=True, read_config=serial)
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    return dataset.map(lambda image, label: (scaled(image), label)).batch(BATCH_SIZE).with_options(options)


def base_of(plan: Plan, source: Source) -> FrozenBase:
    """The frozen base of the model of a plan."""
    assert plan.spec.fit is not None
    return backbone(whole_model(plan, training_data(plan, contexts_of(plan, source)["train"])))


def built(words: list[str], stack: ExitStack) -> Pipeline:
    """The training pipeline of a config, its cache filled."""
    plan = resolve(Request(overrides=words), STAGES).plan
    source = opened(plan)
    backbone = base_of(plan, source) if plan.spec.cache.keeps_features else None
    contexts = contexts_of(plan, source, with_validation=False, backbone=backbone)
    keeper = keepers_of(plan, contexts, {}, print).get("train")
    pipeline = Pipeline(plan.train, contexts["train"], keeper)
    if keeper is not None:
        keeper.prepare()
        stack.callback(keeper.close)
        read(pipeline.dataset)
    return pipeline


def ladder(data_dir: str, weights: str, turns: int) -> str:
    """The table, as Markdown."""
    with tempfile.TemporaryDirectory() as caches, ExitStack() as stack:
        words = ["experiment=cats_vs_dogs", f"dataset.data_dir={data_dir}", "dataset.download=false"]
        words += ["dataset.split=train", "dataset.eval_split=null", f"model.weights={weights}", f"cache.dir={caches}"]
        pipelines = {name: built([*words, *overrides], stack) for name, overrides in SIDES.items()}
        examples = int(next(iter(pipelines.values())).split.num_examples)
        sides = {"exercise, naive": partial(read, naive(data_dir))}
        sides["exercise, parallel"] = partial(read, by_hand(data_dir, scaled))
        sides |= {name: partial(read, pipeline.dataset) for name, pipeline in pipelines.items()}
        found = in_turns(sides, turns)
        held = {name: of.held_bytes / examples for name, of in pipelines.items() if of.keeper is not None}
        sizes = "\n".join(f"| {name} | {size / 1000:,.1f} |" for name, size in held.items())
        return f"{table(found, examples, 'exercise, parallel')}\n| cache | kB an example |\n|---|---|\n{sizes}\n"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--weights", required=True, help="Keras's ImageNet weights of MobileNetV2 without its top")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    command = f"python -m benchmarks.ladder --data-dir DIR --weights FILE --turns {arguments.turns}"
    rows = ladder(arguments.data_dir, arguments.weights, arguments.turns)
    text = f"`{command}` on {cores()} cores, TensorFlow {tf.__version__}\n\n{rows}"
    print(text)
    if arguments.output:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
