"""Text: tokens a second beside Keras's TextVectorization, padding of buckets, and the accuracy of `experiment=text`.

python -m benchmarks.text --tables DIR [--copies 5] [--turns 5] [--texts 1000000] [--output benchmarks/results/text.md]

Tokens: passes over shuffled batches of the reviews in DIR, several times over, with zeros up to the longest text of
each batch. All sides strip punctuation, split at blanks and look up the same vocabulary, with the same result; by Keras
in a parallel map of its layer behind `from_tensor_slices` and `shuffle` of all texts, for one text at a time before
`padded_batch`, or for batches. A turn reads a pass of each, in random order. A ratio of rates is that of the same turn,
and above 1 where etlrun is faster. CPU time is that of all threads.

Many texts are the reviews again and again, with their words in random order: they are read, kept and fitted in a
process of its own, and planned again in another one. Memory is that of the first.

Padding: the share of zeros in the batches of a pass of `experiment=text`, in buckets and without. Accuracy: that of the
reviews for tests after the last epoch, of five seeds; its interval is Student's. Epochs, dropout, learning rate
and the average of weights were chosen on parts of the reviews for training alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.decoding import in_turns, read
from benchmarks.rows import by_etlrun, sections
from benchmarks.tables import compared
from benchmarks.tables_models import SEEDS, of_seeds
from benchmarks.text_many import many, plan_of
from etlrun.graph.datasets import keep_sequences
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.column_categories import Lookup
from etlrun.stages.columns import Columns
from etlrun.system.machine import cores

TRAIN, TEST = "reviews-train.jsonl", "reviews-test.jsonl"
BATCH_SIZES, TOP = (64, 256), 20_000
STEPS = (
    f"[{{standardize_text: lower_and_strip_punctuation}}, {{tokenize: whitespace}}, {{lookup: {{top: {TOP}}}}}, embed]"
)
KEPT = "etlrun, of kept indices, as all epochs of a run of several"
ONE, BATCHED = "TextVectorization, one text at a time", "TextVectorization, batched"


def by_keras(texts: list[str], targets: list[int], vocabulary: list[str], size: int) -> dict[str, tf.data.Dataset]:
    """The same batches by Keras's layer."""
    layer, calls = keras.layers.TextVectorization(vocabulary=vocabulary), tf.data.AUTOTUNE
    shuffled = tf.data.Dataset.from_tensor_slices((texts, targets)).shuffle(len(texts), seed=0)

    def vectors(text: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return layer(text), target

    one = shuffled.map(vectors, num_parallel_calls=calls).padded_batch(size)
    batched = shuffled.batch(size).map(vectors, num_parallel_calls=calls)
    return {ONE: one.prefetch(calls), BATCHED: batched.prefetch(calls)}


def tokens_in(dataset: tf.data.Dataset) -> tuple[int, int]:
    """The number of tokens in a pass, and the sum of their identifiers."""
    batches = [np.asarray(tokens) for tokens, _ in dataset]
    return sum(int(np.count_nonzero(batch)) for batch in batches), sum(int(batch.sum()) for batch in batches)


def tokens(folder: Path, tables: Path, copies: int, turns: int) -> str:
    """The tables of passes."""
    lines = (tables / TRAIN).read_text().splitlines() * copies
    (folder / TRAIN).write_text("\n".join(lines))
    reviews = [json.loads(line) for line in lines]
    texts, targets = [of["review"] for of in reviews], [int(of["score"] == "other") for of in reviews]
    text = ""
    for size in BATCH_SIZES:
        columns = f"transform.columns={{review: {{of: review, steps: {STEPS}}}}}"
        words = (columns, "load=padded", f"load.batch_size={size}", "trainer.epochs=2")
        plan = plan_of(folder / TRAIN, folder / f"kept{size}", *words)
        made = next(step for step in plan.spec.transform.steps if isinstance(step, Columns))
        values: Any = next(step.values for step in made.outputs[0].steps if isinstance(step, Lookup))
        sides = {"etlrun": by_etlrun(plan), **by_keras(texts, targets, [*values], size)}
        keep_sequences(plan, contexts_of(plan, open_source(plan.spec.dataset), with_validation=False))
        sides[KEPT] = by_etlrun(plan)
        counts = {tokens_in(dataset) for dataset in sides.values()}
        assert len(counts) == 1, counts
        found = in_turns({name: partial(read, dataset) for name, dataset in sides.items()}, turns)
        bars = {ONE: "at least 1.5", BATCHED: "at least 1.0"}
        text += f"In batches of {size}:\n\n{compared(found, next(iter(counts))[0], bars, 'token')}\n"
    return text.rstrip() + "\n"


def padding(folder: Path, tables: Path) -> str:
    """The table of padding."""
    shares = {}
    for load in ("padded", "bucketed"):
        plan = plan_of(tables / TRAIN, folder / "kept", f"load={load}", "load.batch_size=64")
        batches = [np.asarray(items) for items, _ in by_etlrun(plan)]
        held, shapes = sum(batch.size for batch in batches), len({batch.shape for batch in batches})
        shares[load] = 1 - sum(np.count_nonzero(batch) for batch in batches) / held, len(batches), shapes
    lines = ["| load | batches | shapes | padding | to that of load=padded | bar |", "|---|---|---|---|---|---|"]
    for load, (share, count, shapes) in shares.items():
        bar = "at most 0.4" if load == "bucketed" else ""
        lines.append(f"| {load} | {count} | {shapes} | {share:.1%} | {share / shares['padded'][0]:.2f} | {bar} |")
    return "\n".join(lines) + "\n"


def accuracy(folder: Path, tables: Path) -> str:
    """The table of runs."""
    found, seconds = [], []
    for seed in range(SEEDS):
        files = f"{{train: {tables / TRAIN}, validation: {tables / TEST}}}"
        words = ["experiment=text", f"dataset.files={files}", "dataset.split=train", "dataset.eval_split=validation"]
        words += ["dataset.target={score: class}", f"dataset.dir={folder / 'kept'}", f"trainer.seed={seed}"]
        run, began_s = folder / str(seed), time.perf_counter()
        command = [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={run}"]
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began_s)
        found.append(json.loads((run / "summary.json").read_text())["epochs"][-1]["val_accuracy"])
    mean, half = of_seeds(found)
    lines = ["| accuracy, mean of 5 seeds | 95% interval | bar | s a run, at most | bar |", "|---|---|---|---|---|"]
    interval = f"{mean - half:.4f} to {mean + half:.4f}"
    lines.append(f"| {mean:.4f} | {interval} | at least 0.80 | {max(seconds):.0f} | at most 180 |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help=f"folder with {TRAIN} and {TEST}")
    parser.add_argument("--copies", type=int, default=5)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    tf.config.set_visible_devices([], "GPU")
    made = {
        f"Shuffled batches of the reviews, {known.copies} times over": partial(
            tokens, tables=known.tables, copies=known.copies, turns=known.turns
        ),
        f"{known.texts:,} texts": partial(many, reviews=known.tables / TRAIN, texts=known.texts),
        "Padding in batches of 64": partial(padding, tables=known.tables),
        "Accuracy of `experiment=text`": partial(accuracy, tables=known.tables),
    }
    text = sections(made)
    if known.output:
        command = f"python -m benchmarks.text --tables DIR --copies {known.copies} --turns {known.turns}"
        command += f" --texts {known.texts}"
        head = f"`{command}` on {cores()} cores, whose load was {os.getloadavg()[2]:.1f} in the mean of 15 minutes"
        known.output.write_text(f"{head}; TensorFlow {tf.__version__}\n\n{text.rstrip()}\n")


if __name__ == "__main__":
    main()
