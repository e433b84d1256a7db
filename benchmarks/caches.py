"""What caches bring: etlrun beside the exercise's pipelines and beside tf.data's own caches, in turns.

python -m benchmarks.caches PART --data-dir DIR [--weights FILE] [--repeats N] [--output FILE]; PART is one of

features  `experiment=naive` against `cache=memory cache.at=features`, whole processes, five epochs each.
memory    The pipeline alone, later epochs: uint8 in memory against float32 in `Dataset.cache()`.
disk      The pipeline alone: a cache on disk against `Dataset.cache(filename)` of the same tensors; filling, reading.
read      Later epochs of the raw cache beside copies of the same bytes from memory, more of them than the cores' caches
          hold: by NumPy alone into arrays that are all kept, so that each takes memory that is new, into pages of 4 kB
          that are new, and into one array; and by tf.data, from a tensor and from a file that is mapped.
start     From the start of a process to the end of its first step: a cache on disk that is there, against arrays in
          memory (whose loading does not count).
rss       The memory of a process after each epoch, with a tenth of the data and with all of it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.decoding import in_turns
from benchmarks.decoding import read as read_pass
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.graph.datasets import applied
from etlrun.graph.disk import keepers_of
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages import STAGES

BATCH, BUFFER, LATER_EPOCHS = 32, 1024, 5
Side = Callable[[], list[float]]


@contextmanager
def by_etlrun(data_dir: str, *overrides: str) -> Iterator[tuple[Pipeline, tf.data.Dataset]]:
    """The training pipeline of the photos, and its passes."""
    words = ["experiment=cats_vs_dogs", f"dataset.data_dir={data_dir}", "dataset.version=null", "dataset.split=train"]
    words += overrides
    plan = resolve(Request(overrides=words), STAGES).plan
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    keeper = keepers_of(plan, contexts, {"folder": "-", "overrides": []}, print).get("train")
    pipeline = Pipeline(plan.train, contexts["train"], keeper)
    yield pipeline, pipeline.dataset
    if keeper is not None:
        keeper.close()


def by_hand(
    pipeline: Pipeline, cache: Callable[[tf.data.Dataset], tf.data.Dataset], *, scaled: bool
) -> tf.data.Dataset:
    """The exercise's pipeline: interleave, one parallel map, cache, shuffle, batch, prefetch."""
    shards = [shard.path for shard in pipeline.split.shards]
    skips = [(shard.skip, shard.take) for shard in pipeline.split.shards]
    steps = [
        applied(step, pipeline.context) for planned in pipeline.stages for step in getattr(planned.stage, "steps", ())
    ]

    def transform(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example: Any = record
        for step in steps:
            example = step(example)
        picture = example["image"]
        return (tf.cast(picture, tf.float32) / 127.5 - 1.0 if scaled else picture), example["label"]

    files = tf.data.Dataset.from_tensor_slices((shards, tf.constant(skips, tf.int64)))
    records = files.interleave(
        lambda path, part: tf.data.TFRecordDataset(path).skip(part[0]).take(part[1]),
        cycle_length=4,
        block_length=1,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    kept = cache(records.map(transform, num_parallel_calls=tf.data.AUTOTUNE))
    return kept.shuffle(BUFFER).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def rate(dataset: tf.data.Dataset, epochs: int = 1) -> float:
    """Examples a second of some passes."""
    began, examples = time.perf_counter(), 0
    for _ in range(epochs):
        for _, labels in dataset:
            examples += int(labels.shape[0])
    return examples / (time.perf_counter() - began)


def table(head: str, sides: tuple[Side, Side], rows: tuple[str, ...], repeats: int) -> str:
    """Both sides in turns, in random order; the ratio is that of the first to the second, by pairs."""
    pairs = []
    for _ in range(repeats):
        order = random.sample(sides, 2)
        of = {side: side() for side in order}
        pairs.append((of[sides[0]], of[sides[1]]))
    lines = [f"| {head} | ratio, median | quartiles |", "|---|---|---|---|---|"]
    for column, row in enumerate(rows):
        ours, theirs = ([pair[side][column] for pair in pairs] for side in (0, 1))
        low, middle, high = statistics.quantiles([a / b for a, b in zip(ours, theirs, strict=True)], n=4)
        medians = f"{statistics.median(ours):,.1f} | {statistics.median(theirs):,.1f}"
        lines.append(f"| {row} | {medians} | {middle:.2f} | {low:.2f} to {high:.2f} |")
    return "\n".join(lines) + "\n"


def run(folder: Path, *words: str) -> dict[str, Any]:
    """`python -m etlrun` as a process; its summary, with `process_s` of the whole."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return {**summary, "process_s": time.perf_counter() - began}


def features(data_dir: str, weights: str, repeats: int) -> str:
    """Whole processes, five epochs each, and the losses of one run with and one without the cache."""
    common = [f"dataset.data_dir={data_dir}", "dataset.version=null", f"model.weights={weights}"]
    cached = ["experiment=cats_vs_dogs", "cache=memory", "cache.at=features", *common]
    with tempfile.TemporaryDirectory() as scratch:
        folders = (Path(scratch) / str(number) for number in range(10**6))

        def seconds(*words: str) -> list[float]:
            summary = run(next(folders), *words)
            return [summary["process_s"], sum(epoch["wall_s"] for epoch in summary["epochs"])]

        whole = ("dataset.split=train", "dataset.eval_split=null")  # as `naive` does
        sides = (lambda: seconds("experiment=naive", *common), lambda: seconds(*cached, *whole))
        text = table("part | naive s | features s", sides, ("process", "epochs"), repeats)
        losses = [
            [(epoch["loss"], epoch["val_loss"]) for epoch in run(next(folders), *words)["epochs"]]
            for words in (cached, ["experiment=cats_vs_dogs", "cache=none", *common])
        ]
    largest = max(abs(a / b - 1) for one, other in zip(*losses, strict=True) for a, b in zip(one, other, strict=True))
    return f"{text}\nLosses of five epochs, against a run without a cache: {largest:.1e} apart at most, relatively.\n"


def memory(data_dir: str, repeats: int) -> str:
    """Later epochs, and the bytes that are kept."""
    with by_etlrun(data_dir, "cache=memory") as (pipeline, ours):
        theirs = by_hand(pipeline, lambda dataset: dataset.cache(), scaled=True)
        rate(ours), rate(theirs)
        sides = (lambda: [rate(ours, LATER_EPOCHS)], lambda: [rate(theirs, LATER_EPOCHS)])
        text = table(
            "part | uint8, etlrun | float32, Dataset.cache() |".removesuffix(" |"), sides, ("examples/s",), repeats
        )
        floats = pipeline.split.num_examples * (224 * 224 * 3 * 4 + 8)
        share = pipeline.held_bytes / floats
    return f"{text}\nKept: {pipeline.held_bytes / 1e6:,.1f} MB against {floats / 1e6:,.1f} MB, {share:.3f} of it.\n"


def disk(data_dir: str, repeats: int) -> str:
    """Filling anew in each turn, and a later epoch."""
    parts = []
    for dtype in ("uint8", "float32"):

        def ours(dtype: str = dtype) -> list[float]:
            with (
                tempfile.TemporaryDirectory() as folder,
                by_etlrun(data_dir, "cache=disk", f"cache.dir={folder}", f"transform.resize.dtype={dtype}") as (
                    _,
                    dataset,
                ),
            ):
                return [rate(dataset), rate(dataset, LATER_EPOCHS)]

        def theirs(dtype: str = dtype) -> list[float]:
            with (
                tempfile.TemporaryDirectory() as folder,
                by_etlrun(data_dir, "cache=none", f"transform.resize.dtype={dtype}") as (pipeline, _),
            ):
                dataset = by_hand(pipeline, lambda kept: kept.cache(f"{folder}/kept"), scaled=False)
                return [rate(dataset), rate(dataset, LATER_EPOCHS)]

        head = f"{dtype} | etlrun | Dataset.cache(filename)"
        parts.append(table(head, (ours, theirs), ("filling, examples/s", "later epochs, examples/s"), repeats))
    return "\n".join(parts)


def read(data_dir: str, repeats: int) -> str:
    """Later epochs of the raw cache, and copies of the same photos."""
    with (
        tempfile.TemporaryDirectory() as folder,
        by_etlrun(data_dir, "cache=disk", f"cache.dir={folder}") as (_, ours),
    ):
        read_pass(ours)
        photos, labels = (np.concatenate(of) for of in zip(*ours.as_numpy_iterator(), strict=True))
        path = Path(folder, "photos.bin")
        photos.tofile(path)
        again = np.empty((BATCH, *photos.shape[1:]), photos.dtype)
        sides = {
            "etlrun, raw cache": partial(read_pass, ours),
            "np.memmap in tf.data": partial(
                read_pass, mapped(np.memmap(path, photos.dtype, "r", 0, photos.shape), labels)
            ),
            "tf.gather in tf.data": partial(read_pass, gathered(tf.constant(photos), tf.constant(labels))),
            "NumPy, arrays that are kept": partial(copied, photos, lambda shape: np.empty(shape, photos.dtype)),
            "NumPy, one array": partial(copied, photos, lambda shape: again[: shape[0]]),
            "NumPy, pages of 4 kB": partial(copied, photos, lambda shape: pages(shape, photos.dtype)),
        }
        found = in_turns(sides, repeats)
    head = "reader | GB/s | CPU ms a batch | etlrun's rate to its, median | quartiles | CPU time, median"
    lines = [f"| {head} |", f"|{'---|' * 6}"]
    own = found["etlrun, raw cache"]
    for name, costs in found.items():
        wall_s, cpu_s = (statistics.median(clock) for clock in zip(*costs, strict=True))
        low, middle, high = statistics.quantiles([of[0] / mine[0] for of, mine in zip(costs, own, strict=True)], n=4)
        cpu = statistics.median(mine[1] / of[1] for of, mine in zip(costs, own, strict=True))
        cells = f"{photos.nbytes / wall_s / 1e9:.1f} | {cpu_s * BATCH / len(photos) * 1000:.2f} | {middle:.2f}"
        lines.append(f"| {name} | {cells} | {low:.2f} to {high:.2f} | {cpu:.2f} |")
    return "\n".join(lines) + "\n"


def numbers(count: int) -> tf.data.Dataset:
    """Batches of numbers, in random order."""
    return tf.data.Dataset.range(count).shuffle(BUFFER).batch(BATCH)


def mapped(photos: npt.NDArray[Any], labels: npt.NDArray[Any]) -> tf.data.Dataset:
    """Photos of a file, as a person reads them."""
    types = tf.as_dtype(photos.dtype), tf.as_dtype(labels.dtype)

    def of(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, targets = tf.numpy_function(lambda rows: (photos[rows], labels[rows]), [rows], types)
        return tf.ensure_shape(images, (None, *photos.shape[1:])), tf.ensure_shape(targets, (None,))

    return numbers(len(photos)).map(of, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def gathered(photos: tf.Tensor, labels: tf.Tensor) -> tf.data.Dataset:
    """Photos of a tensor, without Python."""

    def of(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(photos, rows), tf.gather(labels, rows)

    return numbers(len(photos)).map(of, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def copied(photos: npt.NDArray[Any], new: Callable[[tuple[int, ...]], npt.NDArray[Any]]) -> None:
    """Copy photos in random order into new arrays of a batch each, which are all kept."""
    order, kept = np.random.default_rng(0).permutation(len(photos)), []
    for begin in range(0, len(photos), BATCH):
        rows = order[begin : begin + BATCH]
        kept.append(np.take(photos, rows, axis=0, out=new((len(rows), *photos.shape[1:])), mode="clip"))


def pages(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array in pages that the system hands out anew."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


def start(data_dir: str, repeats: int) -> str:
    """Processes that train one epoch of some steps."""
    words = ["experiment=cats_vs_dogs", f"dataset.data_dir={data_dir}", "dataset.version=null", "model.weights=null"]
    words += ["trainer.epochs=1", "trainer.steps_per_epoch=2", "dataset.eval_split=null"]
    with tempfile.TemporaryDirectory() as scratch:
        folders = (Path(scratch) / str(number) for number in range(10**6))
        kept = ["cache=disk", f"cache.dir={scratch}/kept"]
        run(next(folders), *words[:3], "model=emulated", "trainer.epochs=1", "dataset.eval_split=null", *kept)
        sides = (lambda: [_first_step_s(words + kept)], lambda: [_first_step_s([*words, "cache=none"], "--arrays")])
        return table("part | disk s | memory s", sides, ("start to first step",), repeats)


def _first_step_s(words: list[str], *options: str) -> float:
    command = [sys.executable, "-m", "benchmarks.first_step", *options, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def rss(data_dir: str, _repeats: int) -> str:
    """Drains of eight epochs with a tenth of the training photos and with all of them."""
    lines = ["| cache | photos | MB after epoch 1 | after epoch 4 | after epoch 8 |", "|---|---|---|---|---|"]
    for cache in ("none", "disk"):
        for split in ("train[:10%]", "train"):
            with tempfile.TemporaryDirectory() as folder:
                words = [f"cache={cache}", f"cache.dir={folder}", f"dataset.split='{split}'", "load.shuffle_buffer=64"]
                command = [sys.executable, "-m", "benchmarks.epoch_rss", f"dataset.data_dir={data_dir}", *words]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                count, *sizes = json.loads(done.stdout.splitlines()[-1])
            lines.append(f"| {cache} | {count} | " + " | ".join(f"{sizes[at] / 1e6:,.0f}" for at in (0, 3, 7)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and add the table to a file where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("features", "memory", "disk", "read", "start", "rss"))
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    if known.part == "features":
        text = features(known.data_dir, known.weights, known.repeats)
    else:
        parts = {"memory": memory, "disk": disk, "read": read, "start": start, "rss": rss}
        text = parts[known.part](known.data_dir, known.repeats)
    print(text)
    if known.output:
        before = known.output.read_text() if known.output.exists() else ""
        command = f"`python -m benchmarks.caches {known.part} --repeats {known.repeats}`"
        head = f"{command} on 2 cores, TensorFlow {tf.__version__}"
        known.output.write_text(f"{before}{head}\n\n{text}\n")


if __name__ == "__main__":
    main()
