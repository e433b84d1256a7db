"""CPU time of each random step, and of those of a config together, beside that of decoding and resizing an image.

python -m benchmarks.augmentation --data-dir DIR [--turns 9] [--output benchmarks/results/augmentation.md]

A turn maps photos to each step alone, in one thread, and to nothing, whose time is taken off. The steps work on images
of 224x224 pixels of uint8, with the values of the configs that have them. The colours of `augmented_224` are computed
in one pass, too, which could replace them: with one draw, in float32 throughout, and rounded once. Whole passes over
photos are uncached, and behind a cache of the resized images.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from pathlib import Path

import tensorflow as tf

from benchmarks.decoding import as_uint8, in_turns, pipeline_of, read, table
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import as_written
from etlrun.stages import STAGES
from etlrun.stages.augment import clipped, drawn, rounded
from etlrun.stages.colour import brightened, contrasted, recoloured, saturated
from etlrun.stages.step import Step
from etlrun.system.machine import cores

OPTIONS = ("cropped_224", "augmented_224", "randaugment_224")
PLAIN = "imagenet_224"
WHOLE = ("cropped_224", "augmented_224")
NOTHING, DECODED = "nothing", "decode and resize"
TIMES = 400
MOVED = (
    "transform.steps=[decode,resize,random_rotation,scale_minus_one_one]",
    "++transform.random_rotation.degrees=20",
    "++transform.random_rotation.fill_mode=reflect",
)


def random_steps(*overrides: str) -> dict[str, Step]:
    """Return the random steps of a config by name, in order."""
    planned = resolve(Request(overrides=["cache=none", "model=emulated", *overrides]), STAGES).plan.spec.transform.steps
    return {step.path.partition(".")[2]: step for step in planned if step.random}


def chained(steps: Iterable[Step]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the function that applies steps one after the other."""
    seed = tf.constant(7, tf.int64)
    functions = [partial(step.op, **step.arguments, seed=seed) for step in steps]
    return lambda image: reduce(lambda pixels, function: function(pixels), functions, image)


def sides() -> dict[str, Callable[[tf.Tensor], tf.Tensor]]:
    """Return what is measured by name: steps, those of a config together, and its colours in two ways."""
    lists = {name: random_steps(f"transform={name}") for name in OPTIONS}
    each: dict[str, Step] = {}
    for steps in (random_steps(*MOVED), *lists.values()):
        each = steps | each  # a step of two configs has the values of the first one
    found = {f"`{name}`": chained([step]) for name, step in each.items()}
    found |= {f"all of `{name}`": chained(lists[name].values()) for name in WHOLE}
    colours = chained(step for step in lists["augmented_224"].values() if clipped in step.calls)
    return found | {"its four colours": colours, "its four colours in one pass": in_one_pass}


def in_one_pass(image: tf.Tensor) -> tf.Tensor:
    """Return a uint8 image in other colours, as `augmented_224` changes them."""
    draws = drawn(image, tf.constant(7, tf.int64), "colours", 4)
    pixels = brightened(tf.cast(image, tf.float32), 0.2 * draws[0] - 0.1)
    pixels = contrasted(saturated(pixels, 0.75 * draws[1] + 0.75), 0.75 * draws[2] + 0.75)
    return rounded(recoloured(pixels, 0.3 * draws[3] - 0.15), tf.uint8)


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
    datasets = {NOTHING: mapped(images, lambda image: image)}
    datasets[DECODED] = mapped(encoded, lambda data: as_uint8(tf.io.decode_jpeg(data, channels=3)))
    datasets |= {name: mapped(images, function) for name, function in sides().items()}
    costs: dict[str, list[float]] = {name: [] for name in datasets}
    for turn in range(turns + 1):
        for name, dataset in datasets.items():
            begun_s = time.process_time()
            for _ in dataset:
                pass
            if turn:
                costs[name].append(1000 * (time.process_time() - begun_s) / TIMES)
    medians = {name: statistics.median(found) for name, found in costs.items()}
    nothing = medians.pop(NOTHING)
    return {name: cost - nothing for name, cost in medians.items()}


def passes(data_dir: str, turns: int, *overrides: str) -> str:
    """Return the table of whole passes over all photos, without augmentation and with that of two configs."""
    pipelines = {name: pipeline_of(data_dir, f"transform={name}", *overrides) for name in (PLAIN, *WHOLE)}
    examples = int(pipelines[PLAIN].split.num_examples)
    found = in_turns({name: partial(read, pipeline.dataset) for name, pipeline in pipelines.items()}, turns)
    return table(found, examples, PLAIN)


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
    lines += [f"| {name} | {cost:.2f} | {cost / costs[DECODED]:.2f} |" for name, cost in costs.items()]
    lines += ["", "Passes over all photos, uncached:", "", passes(arguments.data_dir, arguments.turns)]
    lines += ["Behind a cache:", "", passes(arguments.data_dir, arguments.turns, "cache=memory", "cache.at=resize")]
    text = "\n".join(lines)
    print(text)
    if arguments.output:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
