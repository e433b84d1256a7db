"""Uncached pipelines: their rate, CPU time and first batch, beside the exercise's pipeline as a person writes it.

python -m benchmarks.decoding --data-dir DIR [--pairs 15] [--output benchmarks/results/decoding.md]

All pipelines read the photos to batches of 32 images of uint8. A turn reads a whole pass of each, in random order, as
an epoch of a training does; a turn is thrown away before. By hand: interleaved files, `decode_jpeg` and `resize` in a
parallel map, a shuffle buffer of 1,024 images, batches, prefetching; tf.data's graph rewrites are on. A ratio above 1
means more images per second, or more CPU time (user and system, of all threads), than by hand.

The first batch is that of a pass that begins. Large photos are the same ones, enlarged to 12 megapixels.
"""

from __future__ import annotations

import argparse
import io
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES
from etlrun.system.machine import cores

BATCH_SIZE, SHUFFLE_BUFFER, SIDE = 32, 1024, 224
SKIP = "dataset.on_corrupt=skip"
TENSORFLOW = "transform.decode.library=tensorflow"
LATE = "load.shuffle_at=before_batch"
SIDES: Mapping[str, tuple[str, ...]] = {
    "etlrun, tensorflow": (TENSORFLOW,),
    "etlrun, turbo": (),
    "etlrun, turbo, random_flip": ("transform.steps=[decode,resize,random_flip,scale_minus_one_one]",),
}
SKIPPING: Mapping[str, tuple[str, ...]] = {"tensorflow": (TENSORFLOW, SKIP), "turbo": (SKIP,)}
LARGE, LARGE_SIDES = 64, (4000, 3000)
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "tensorflow": (TENSORFLOW,),
    "turbo": (),
    "turbo, fast": ("transform.decode.fast=true",),
}

Measured = tuple[float, float]
"""Seconds of wall and of CPU."""


def as_uint8(image: tf.Tensor) -> tf.Tensor:
    """Resized to pixels of uint8."""
    return tf.cast(tf.image.resize(image, (SIDE, SIDE)), tf.uint8)


def by_hand(data_dir: str, transform: Callable[[tf.Tensor], tf.Tensor]) -> tf.data.Dataset:
    """The exercise's parallel pipeline without its cache, as a person writes it; `transform` takes a decoded image."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    files = [item.filename for item in builder.info.splits["train"].file_instructions]
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def prepare(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, features)
        return transform(tf.io.decode_jpeg(example["image"], channels=3)), example["label"]

    dataset = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE
    )
    dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.shuffle(SHUFFLE_BUFFER, seed=0).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def pipeline_of(data_dir: str, *overrides: str) -> Pipeline:
    """The uncached training pipeline of all photos."""
    words = ["experiment=cats_vs_dogs", "cache=none", "dataset.split=train", "dataset.eval_split=null", *overrides]
    plan = resolve(Request(overrides=[*words, "dataset.download=false", f"dataset.data_dir={data_dir}"]), STAGES).plan
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    return Pipeline(plan.train, contexts["train"])


def now() -> Measured:
    """Seconds so far, of wall and of CPU."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def timed(work: Callable[[], object]) -> Measured:
    """Seconds of `work`."""
    before = now()
    work()
    after = now()
    return after[0] - before[0], after[1] - before[1]


def read(dataset: tf.data.Dataset) -> None:
    """Read a pass."""
    batches = iter(dataset)
    _READ.append(batches)
    for _batch in batches:
        pass


_READ: list[Iterator[Any]] = []
"""Iterators that have been read: tf.data takes up to half a second to delete one, whoever has written it."""


def of_photos(says: str | None) -> argparse.Namespace:
    """Return the arguments of a benchmark that reads photos in turns."""
    parser = argparse.ArgumentParser(description=says, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def in_turns(sides: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[Measured]]:
    """Seconds of each side in each turn, after one that is thrown away."""
    found: dict[str, list[Measured]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name in random.sample([*sides], len(sides)):
            cost = timed(sides[name])
            _READ.clear()
            if turn:
                found[name].append(cost)
    return found


def table(found: Mapping[str, list[Measured]], examples: int, base: str) -> str:
    """Rates and CPU time of each side, and their ratios to those of `base`, as Markdown."""
    lines = [
        "| pipeline | images/s | ratio, median | quartiles | CPU ms an image | ratio, median | quartiles |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, costs in found.items():
        cells = [name]
        for clock in range(2):
            median = statistics.median(cost[clock] for cost in costs)
            ratios = [mine[clock] / other[clock] for mine, other in zip(costs, found[base], strict=True)]
            ratios = [1 / ratio for ratio in ratios] if clock == 0 else ratios
            low, middle, high = statistics.quantiles(ratios, n=4)
            cells.append(f"{examples / median:,.0f}" if clock == 0 else f"{1000 * median / examples:.3f}")
            cells += [f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def passes(data_dir: str, turns: int) -> str:
    """Whole passes over the photos."""
    pipelines = {name: pipeline_of(data_dir, *overrides) for name, overrides in SIDES.items()}
    examples = int(next(iter(pipelines.values())).split.num_examples)
    sides = {"by hand": partial(read, by_hand(data_dir, as_uint8))}
    sides |= {name: partial(read, pipeline.dataset) for name, pipeline in pipelines.items()}
    return table(in_turns(sides, turns), examples, "by hand")


def skipping(data_dir: str, turns: int) -> str:
    """Whole passes that would skip broken images, by library."""
    pipelines = {name: pipeline_of(data_dir, *overrides) for name, overrides in SKIPPING.items()}
    sides = {name: partial(read, pipeline.dataset) for name, pipeline in pipelines.items()}
    examples = int(next(iter(pipelines.values())).split.num_examples)
    return table(in_turns(sides, turns), examples, "tensorflow")


def first_batches(data_dir: str, turns: int) -> str:
    """The first batch of a pass that begins, with the shuffle at its two places."""
    pipelines = {"after all steps": pipeline_of(data_dir, LATE), "as they are read": pipeline_of(data_dir)}

    def begin(pipeline: Pipeline) -> None:
        batches = iter(pipeline.dataset)
        _READ.append(batches)
        next(batches)

    costs = in_turns({name: partial(begin, pipeline) for name, pipeline in pipelines.items()}, turns)
    found = {name: [wall_s for wall_s, _ in of] for name, of in costs.items()}
    late, early = (statistics.median(walls) for walls in found.values())
    ratio = statistics.median(one / other for one, other in zip(*reversed(found.values()), strict=True))
    lines = ["| examples are shuffled | first batch s | ratio, median |", "|---|---|---|"]
    lines += [f"| after all steps | {late:.3f} | 1.00 |", f"| as they are read | {early:.3f} | {ratio:.2f} |"]
    return "\n".join(lines) + "\n"


def enlarged(data_dir: str, folder: str) -> None:
    """Have TFDS write photos of 12 megapixels, as if they were those of `data_dir`."""
    builder = tfds.builder("cats_vs_dogs", data_dir=data_dir)
    keep = {"image": tfds.decode.SkipDecoding()}
    photos = builder.as_dataset(split=f"train[:{LARGE}]", decoders=keep).as_numpy_iterator()
    examples = []
    for photo in photos:
        file = io.BytesIO()
        Image.open(io.BytesIO(photo["image"])).convert("RGB").resize(LARGE_SIDES).save(file, "JPEG", quality=90)
        examples.append({"image": file.getvalue(), "label": photo["label"]})
    tfds.dataset_builders.store_as_tfds_dataset(
        name="large_photos",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.FeaturesDict({"image": tfds.features.Image(), "label": builder.info.features["label"]}),
        split_datasets={"train": [*enumerate(examples)]},
    )


def large(data_dir: str, turns: int) -> str:
    """Photos of 12 megapixels, decoded to 224x224."""
    with tempfile.TemporaryDirectory() as folder:
        enlarged(data_dir, folder)
        named = ("dataset.name=large_photos", "dataset.version=null")
        pipelines = {name: pipeline_of(folder, *named, *of) for name, of in LIBRARIES.items()}
        sides = {name: partial(read, pipeline.dataset) for name, pipeline in pipelines.items()}
        return table(in_turns(sides, turns), LARGE, "tensorflow")


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    data_dir, pairs = arguments.data_dir, arguments.pairs
    tables = {
        "Passes over all photos": partial(passes, data_dir, pairs),
        "Passes with `dataset.on_corrupt=skip`": partial(skipping, data_dir, pairs),
        "The first batch of a pass": partial(first_batches, data_dir, pairs),
        "Photos of 12 megapixels": partial(large, data_dir, 5),
    }
    command = f"python -m benchmarks.decoding --data-dir DIR --pairs {pairs}"
    text = f"`{command}` on {cores()} cores, TensorFlow {tf.__version__}\n"
    for title, measure in tables.items():
        text += f"\n{title}:\n\n{measure()}"
        print(text, flush=True)
    if arguments.output:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
