"""How many cores the emulated accelerators of MLPerf Storage need, with real decoding of JPEGs of 110 kB.

    python -m benchmarks.sizing --data-dir DIR [--photos 4000] [--turns 2] [--output benchmarks/results/sizing.md]

MLPerf Storage's workload ResNet-50 has records of 110 kB in the mean. Here they are JPEGs, made of the photos of
cats_vs_dogs: enlarged by a half, and encoded at a quality of 97. They are decoded and resized to 224x224, uncached, by
processes that may use one core, or two. `CPU ms` are those of a pass without a model, per image, all threads together;
`images/s` the rate of such a pass. Cores are estimated: the images that an accelerator takes at an AU of 0.9, times CPU
ms. AU is measured, of two epochs with the accelerator. All in turns, medians.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import tensorflow as tf

from benchmarks.processes import summary_of
from benchmarks.scale import NAME, VERSION, records
from etlrun.sources.content import Shard
from etlrun.sources.framing import framed

SIDE, QUALITY, AU, SHARDS = 1.5, 97, 0.9, 16
ACCELERATORS = {"a100_resnet50": 400 / 0.435, "h100_resnet50": 400 / 0.224}
"""Images per second of a step whose batch is ready."""


def enlarged(record: bytes) -> bytes:
    """The same example with a larger image, as a record of a file."""
    example = tf.train.Example.FromString(record[12:-4])
    (encoded,) = example.features.feature["image"].bytes_list.value
    image = tf.io.decode_jpeg(encoded, channels=3).numpy()[..., ::-1]
    larger = cv2.resize(image, None, fx=SIDE, fy=SIDE, interpolation=cv2.INTER_CUBIC)
    found = cv2.imencode(".jpg", larger, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
    example.features.feature["image"].bytes_list.value[:] = [found.tobytes()]
    return b"".join(framed(example.SerializeToString()))


def made(photos: Path, folder: Path, count: int) -> float:
    """Write a dataset of so many larger photos, and return the mean bytes of a record."""
    source, target = photos / NAME / VERSION, folder / NAME / VERSION
    target.mkdir(parents=True)
    info = json.loads((source / "dataset_info.json").read_text(encoding="utf-8"))
    files, takes = sorted(source.glob("*.tfrecord-*")), map(int, info["splits"][0]["shardLengths"])
    endless = records([Shard(path=str(path), skip=0, take=take) for path, take in zip(files, takes, strict=True)])
    for number in range(SHARDS):
        with (target / f"{NAME}-train.tfrecord-{number:05}-of-{SHARDS:05}").open("wb") as file:
            file.writelines(map(enlarged, itertools.islice(endless, count // SHARDS)))  # photos repeat
    size = sum(path.stat().st_size for path in target.iterdir())
    info["splits"][0] |= {"shardLengths": [str(count // SHARDS)] * SHARDS, "numBytes": str(size)}
    (target / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    for name in ("features.json", "label.labels.txt"):
        shutil.copyfile(source / name, target / name)
    return size / (count // SHARDS * SHARDS)


def measured(data: Path, folder: Path, cores: int) -> dict[str, float]:
    """CPU ms of an image and images/s of the pipeline alone on so many cores, and the AU of each accelerator."""
    words = [f"dataset.data_dir={data}", "dataset.download=false", "dataset.split=train", "dataset.eval_split=null"]
    words += ["cache=none"]
    may_use = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(may_use)[:cores])  # of the processes that are started
    try:
        alone = [f"experiment={NAME}", "trainer=drain", "trainer.seconds=null", "trainer.epochs=2"]
        summary = summary_of([*words, *alone], folder / "alone")
        found = {"CPU ms": 1000 * summary["resources"]["cpu_s"] / summary["examples"]}
        found["images/s"] = summary["epochs"][-1]["examples_per_s"]
        for name in ACCELERATORS:
            given = [*words, f"experiment={name}", "measure.au_min=null", "trainer.epochs=1"]
            found[name] = summary_of(given, folder / name)["epochs"][-1]["au"]
    finally:
        os.sched_setaffinity(0, may_use)
    return found


def rows(photos: Path, count: int, turns: int) -> Iterator[str]:
    """Lines of the tables."""
    turned: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as home:
        size = made(photos, Path(home) / "data", count)
        for turn, cores in itertools.product(range(turns), turned):
            turned[cores].append(measured(Path(home) / "data", Path(home) / f"{turn}-{cores}", cores))
    found = {
        cores: {key: statistics.median(of[key] for of in each) for key in each[0]} for cores, each in turned.items()
    }
    yield f"{count:,} records of {size / 1e3:.0f} kB in the mean."
    yield ""
    yield f"| cores | CPU ms | images/s alone | {' | '.join(f'AU of {name}' for name in ACCELERATORS)} |"
    yield f"|---|---|---|{'---|' * len(ACCELERATORS)}"
    for cores, of in found.items():
        aus = " | ".join(f"{of[name]:.2f}" for name in ACCELERATORS)
        yield f"| {cores} | {of['CPU ms']:.2f} | {of['images/s']:,.0f} | {aus} |"
    yield ""
    yield f"| accelerator | images/s | at an AU of {AU} | cores, estimated by CPU ms on one core | on two |"
    yield "|---|---|---|---|---|"
    for name, per_s in ACCELERATORS.items():
        needed = " | ".join(f"{AU * per_s * of['CPU ms'] / 1000:.1f}" for of in found.values())
        yield f"| {name} | {per_s:,.0f} | {AU * per_s:,.0f} | {needed} |"


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, type=Path, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--photos", type=int, default=4_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    text = "\n".join(rows(known.data_dir, known.photos, known.turns))
    print(text)
    if known.output:
        how = f"`python -m benchmarks.sizing --data-dir DIR --photos {known.photos} --turns {known.turns}`"
        known.output.write_text(f"{how} on {os.cpu_count()} cores\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
