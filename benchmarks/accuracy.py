"""What other pixels cost: their differences, and the accuracy of a model that is trained and validated on them.

python -m benchmarks.accuracy --data-dir DIR --weights FILE [--seeds 20] [--output benchmarks/results/accuracy.md]

Each side reads all photos of cats_vs_dogs at 224x224 as a run does. The frozen base of MobileNetV2 makes features of
them, on whose first 80 % a head is trained for five epochs, and validated on the rest. A seed gives all sides the same
first weights and the same order; the interval is Student's, of the differences by seed, in percentage points.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
from scipy import stats

from benchmarks.decoding import TENSORFLOW
from benchmarks.ladder import base_of, built
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.run.session import opened
from etlrun.stages import STAGES
from etlrun.system.machine import cores

SIDES: Mapping[str, tuple[str, ...]] = {
    "tensorflow": (TENSORFLOW,),
    "turbo": (),
    "turbo, fast": ("transform.decode.fast=true",),
    "jpeg95": ("cache=disk", "cache.codec=jpeg95", TENSORFLOW),
    "jpeg90": ("cache=disk", "cache.codec=jpeg90", TENSORFLOW),
    "jpeg90, turbo": ("cache=disk", "cache.codec=jpeg90"),
}
EPOCHS, BATCH_SIZE, TRAINED = 5, 32, 0.8

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


def words_of(data_dir: str, weights: str) -> list[str]:
    """Overrides that all sides have: all photos in the order of the files."""
    words = ["experiment=cats_vs_dogs", "cache=none", f"dataset.data_dir={data_dir}", "dataset.download=false"]
    words += ["dataset.split=train", "dataset.eval_split=null", "load.shuffle_buffer=0", f"model.weights={weights}"]
    return [*words, "model.trainable=false"]


def pixels_of(words: list[str]) -> tuple[Pixels, Labels]:
    """All photos and their classes, as the passes of a run have them."""
    with ExitStack() as stack:
        batches = [(images.numpy(), labels.numpy()) for images, labels in built(words, stack).dataset]
    images, labels = (np.concatenate(column) for column in zip(*batches, strict=True))
    return images, labels


def accuracy(features: npt.NDArray[np.float32], labels: Labels, seed: int) -> float:
    """Validation accuracy of a head after its last epoch, in percent."""
    keras.utils.set_random_seed(seed)
    head = keras.Sequential([keras.Input(features.shape[1:]), keras.layers.Dense(2, activation="softmax")])
    head.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    count = int(TRAINED * len(labels))
    train, validation = (features[:count], labels[:count]), (features[count:], labels[count:])
    head.fit(*train, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
    return 100 * float(head.evaluate(*validation, verbose=0)[1])


def row(name: str, images: Pixels, first: Pixels, found: Sequence[float], base: Sequence[float]) -> str:
    """Line of the table."""
    off = np.abs(images.astype(np.int16) - first)
    differences = np.subtract(found, base)
    half = stats.t.ppf(0.975, len(found) - 1) * differences.std(ddof=1) / math.sqrt(len(found))
    low, high = differences.mean() - half, differences.mean() + half
    interval = "" if name == next(iter(SIDES)) else f"{differences.mean():+.2f} ({low:+.2f} to {high:+.2f})"
    return f"| {name} | {off.mean():.2f} | {off.max()} | {np.mean(found):.2f} | {interval} |"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--weights", required=True, help="Keras's ImageNet weights of MobileNetV2 without its top")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    common = words_of(known.data_dir, known.weights)
    plan = resolve(Request(overrides=common), STAGES).plan
    base = base_of(plan, opened(plan)).features
    lines = [
        "| pixels | mean difference in levels | largest | val accuracy % | difference, 95 % interval |",
        "|---|---|---|---|---|",
    ]
    first, accuracies = None, {}
    for name, overrides in SIDES.items():
        with tempfile.TemporaryDirectory() as folder:
            images, labels = pixels_of([*common, *overrides, f"cache.dir={folder}"])
        first = images if first is None else first
        features = np.concatenate([base(images[at : at + 64]) for at in range(0, len(images), 64)])
        accuracies[name] = [accuracy(features, labels, seed) for seed in range(known.seeds)]
        lines.append(row(name, images, first, accuracies[name], accuracies[next(iter(SIDES))]))
        print(lines[-1], flush=True)
    command = f"python -m benchmarks.accuracy --data-dir DIR --weights FILE --seeds {known.seeds}"
    text = "\n".join([f"`{command}` on {cores()} cores, {len(labels):,} photos", "", *lines, ""])
    if known.output:
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
