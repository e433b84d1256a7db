"""Perceptual hashes of the doctor: which versions of a photo they miss, and which photos they take for alike.

python -m benchmarks.doctor --data-dir DIR [--photos 400] [--scale 100000] [--table CSV] [--before CHECKOUT]
    [--output benchmarks/results/doctor.md]

Versions of the first photos are searched for among all photos; a version that does not find its photo is missed. All
pairs of photos are compared for those that are taken for alike. The time is that of a whole `etlrun doctor` of them,
and, with --scale, of one in a process of its own on that many files: each photo many times, with another comment.

With --table, the command examines 300 photos and that table (Titanic's) before a first run, each in three processes of
its own, in turns with that of another checkout, if one is given: the median of their CPU seconds and of the wall clock.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow_datasets as tfds
from PIL import Image

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.datasets.examine.doctor import diagnosed
from etlrun.datasets.examine.images import LOOKED, look_at, near
from etlrun.stages import STAGES
from etlrun.system.machine import cores


def jpeg(image: Image.Image, quality: int = 90) -> bytes:
    """An image as a JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def cropped(image: Image.Image, share: float) -> Image.Image:
    """An image without a share of its sides at each side."""
    width, height = image.size
    return image.crop((int(width * share), int(height * share), int(width * (1 - share)), int(height * (1 - share))))


def resized(image: Image.Image, factor: float) -> Image.Image:
    """An image of another size."""
    return image.resize((max(1, int(image.width * factor)), max(1, int(image.height * factor))))


VERSIONS: dict[str, Callable[[Image.Image], bytes]] = {
    "JPEG quality 70": lambda image: jpeg(image, 70),
    "JPEG quality 20": lambda image: jpeg(image, 20),
    "half the size": lambda image: jpeg(resized(image, 0.5)),
    "twice the size": lambda image: jpeg(resized(image, 2.0)),
    "1 % cut off each side": lambda image: jpeg(cropped(image, 0.01)),
    "3 % cut off each side": lambda image: jpeg(cropped(image, 0.03)),
    "5 % cut off each side": lambda image: jpeg(cropped(image, 0.05)),
    "mirrored": lambda image: jpeg(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
}


def looked(images: list[bytes]) -> npt.NDArray[np.void]:
    """What the doctor keeps of these images."""
    found = np.zeros(len(images), LOOKED)
    for row, look in zip(found, map(look_at, images), strict=True):
        row["digest"], row["hash"], row["is_flat"] = look.digest, look.hash, look.is_flat
    return found


def at_scale(photos: list[bytes], count: int) -> str:
    """Examine a folder of `count` files, a fifth of the photos in its validation split; the time and the memory."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            photo = photos[number % len(photos)]
            split = "validation" if number % len(photos) < len(photos) // 5 else "train"
            target = Path(folder, split, f"class_{number % 10}", f"{number}.jpg")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(photo[:2] + b"\xff\xfe\x00\x0a" + f"{number:08}".encode() + photo[2:])
        own = ["dataset=folder", f"dataset.dir={folder}", "dataset.split=train", "dataset.eval_split=validation"]
        own += ["--format", "json"]
        began_s = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "etlrun", "doctor", *own], check=False, capture_output=True)
        wall_s = time.perf_counter() - began_s
        if done.returncode not in {0, 1}:
            raise SystemExit(done.stderr.decode())
        found = [finding["text"] for finding in json.loads(done.stdout)["findings"]]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return (
        f"{count:,} files in a process of its own: {wall_s:.0f} s, {count / wall_s:,.0f} images/s, "
        f"{peak / 1e6:,.0f} MB at most; findings: {'; '.join(found) or 'none'}."
    )


def seconds(checkout: Path, words: list[str]) -> tuple[float, float]:
    """Return the CPU seconds and those of the wall clock of the command of a checkout, which keeps nothing."""
    with tempfile.TemporaryDirectory() as cache:
        before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command, env = [sys.executable, "-m", "etlrun", "doctor", *words], {**os.environ, "XDG_CACHE_HOME": cache}
        subprocess.run(command, check=True, cwd=checkout, env=env, capture_output=True)
        wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def before_a_run(photos: list[bytes], table: Path, before: Path | None) -> list[str]:
    """Return the table of what the command takes on 300 photos and on a small table, now and in another checkout."""
    checkouts = {"now": Path.cwd()} | ({"before": before} if before else {})
    lines = ["", "| before a first run | checkout | CPU s | wall s |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for number, photo in enumerate(photos[:300]):
            target = Path(folder, f"class_{number % 2}", f"{number}.jpg")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(photo)
        of_table = ["experiment=table", f"dataset.files={table.resolve()}", "dataset.target={survived: binary}"]
        for name, words in (
            ("300 photos", ["experiment=own", f"dataset.dir={folder}"]),
            (table.name, of_table),
        ):
            rounds = [{of: seconds(path, words) for of, path in checkouts.items()} for _ in range(3)]
            for of in checkouts:
                cpu_s, wall_s = (statistics.median(each[of][place] for each in rounds) for place in (0, 1))
                lines.append(f"| {name} | {of} | {cpu_s:.1f} | {wall_s:.1f} |")
    return lines


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--scale", type=int, default=0)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    builder = tfds.builder("cats_vs_dogs", data_dir=known.data_dir)
    raw = builder.as_dataset(split="train", decoders={"image": tfds.decode.SkipDecoding()})
    photos = [example["image"] for example in raw.as_numpy_iterator()]
    everything = looked(photos)
    lines = ["| version of a photo | missed |", "|---|---|"]
    for name, version in VERSIONS.items():
        rows = looked([version(Image.open(io.BytesIO(photo)).convert("RGB")) for photo in photos[: known.photos]])
        hits = sum(number == other for number, other, _ in near(everything, rows, lambda _: None))
        lines.append(f"| {name} | {1 - hits / known.photos:.1%} |")
    halves = [everything[: len(photos) // 2], everything[len(photos) // 2 :]]
    pairs = len(halves[0]) * len(halves[1])
    lines += [
        "",
        f"Of {pairs:,} pairs of photos, {len(near(halves[0], halves[1], lambda _: None))} were taken for alike.",
    ]
    words = ["dataset=cats_vs_dogs", f"dataset.data_dir={known.data_dir}"]
    began_s = time.perf_counter()
    diagnosed(resolve(Request(overrides=words), STAGES).plan, lambda *_: lambda _: None)
    rate = len(photos) / (time.perf_counter() - began_s)
    lines += ["", f"A whole diagnosis of {len(photos):,} photos: {rate:,.0f} images/s."]
    if known.scale:
        lines += ["", at_scale(photos, known.scale)]
    lines += before_a_run(photos, known.table, known.before) if known.table else []
    text = "\n".join(lines) + "\n"
    print(text)
    if known.output:
        head = f"`python -m benchmarks.doctor --data-dir DIR --photos {known.photos}` on {cores()} cores"
        known.output.write_text(f"{head}\n\n{text}")


if __name__ == "__main__":
    main()
