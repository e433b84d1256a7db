"""CPU time of each random step, beside that of decoding and resizing an image.

python -m benchmarks.augmentation --data-dir DIR [--turns 9] [--output benchmarks/results/augmentation.md]

A turn maps photos to each step alone, in one thread, and to nothing, whose time is taken off. The steps work on images
of 224x224 pixels of uint8, with the values of the configs that have them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.decoding import as_uint8, pipeline_of
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import as_written
from etlrun.stages import STAGES
from etlrun.stages.step import Step
from etlrun.system.machine import cores

OPTIONS = ("cropped_224", "augmented_224", "randaugment_224")
TIMES = 400
GREY = ("transform.steps=[decode,resize,random_grey,scale_minus_one_one]", "++transform.random_grey.probability=0.5")
MOVED = (
    "transform.steps=[decode,resize,random_rotation,scale_minus_one_one]",
    "++transform.random_rotation.degrees=20",
    "++transform.random_rotation.fill_mode=reflect",
)


def steps() -> dict[str, Step]:
    """Return the random steps of the configs, and of two lists of their own, by name."""
    lists: list[tuple[str, ...]] = [*((f"transform={name}",) for name in OPTIONS), GREY, MOVED]
    found: dict[str, Step] = {}
    for words in lists:
        planned = resolve(Request(overrides=["cache=none", "model=emulated", *words]), STAGES).plan.spec.transform.steps
        found = {step.path.partition(".")[2]: step for step in planned if step.random} | found
    return found


def mapped(inputs: tf.Tensor, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.data.Dataset:
    """Return a dataset that computes `function` again and again, in one thread."""
    options = as_written()
    options.threading.max_intra_op_parallelism = 1
    images = tf.data.Dataset.from_tensor_slices(inputs).repeat().take(TIMES).map(function, num_parallel_calls=1)
    return images.map(lambda image: tf.shape(image)[0]).batch(TIMES).with_options(options)


def measured(data_dir: str, turns: int) -> Mapping[str, float]:
    """Return the CPU milliseconds of an image, by step; of decoding and resizing first."""
    images = next(iter(pipeline_of(data_dir).dataset))[0]
    encoded = tf.stack([tf.io.encode_jpeg(image, quality=90) for image in images])
    seed: dict[str, Any] = {"seed": tf.constant(7, tf.int64)}
    sides = {"nothing": mapped(images, lambda image: image)}
    sides["decode, resize"] = mapped(encoded, lambda data: as_uint8(tf.io.decode_jpeg(data, channels=3)))
    sides |= {name: mapped(images, partial(step.op, **step.values, **seed)) for name, step in steps().items()}
    costs: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, dataset in sides.items():
            begun_s = time.process_time()
            for _ in dataset:
                pass
            if turn:
                costs[name].append(1000 * (time.process_time() - begun_s) / TIMES)
    medians = {name: statistics.median(found) for name, found in costs.items()}
    nothing = medians.pop("nothing")
    return {name: cost - nothing for name, cost in medians.items()}


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    costs = measured(arguments.data_dir, arguments.turns)
    command = f"python -m benchmarks.augmentation --data-dir DIR --turns {arguments.turns}"
    lines = [f"`{command}` on {cores()} cores, TensorFlow {tf.__version__}", ""]
    lines += ["| step | CPU ms an image | of decoding and resizing |", "|---|---|---|"]
    lines += [f"| `{name}` | {cost:.2f} | {cost / costs['decode, resize']:.2f} |" for name, cost in costs.items()]
    text = "\n".join(lines).replace("`decode, resize`", "decode and resize") + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
