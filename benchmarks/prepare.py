"""Preparations of own photos that are killed with SIGKILL at random moments, and whether they end the same.

python -m benchmarks.prepare [--kills N] [--output FILE]

Photos of cats and dogs (drawn images where they are missing), each four times with other bytes, are prepared in a
child process: first undisturbed, which gives the rate, then killed again and again until it ends by itself, N kills in
all. The files have to be those of the undisturbed run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import etlrun.sweep.preload  # noqa: F401 - imported once, before any child is made
from benchmarks.kills import child
from etlrun.datasets.prepare.check import opened
from etlrun.datasets.prepare.options import parsed
from etlrun.datasets.prepare.prepare import prepare
from etlrun.sources.sample.draw import jpeg

PHOTOS = Path(os.environ.get("ETLRUN_SHARED", Path(__file__).parents[2] / "shared")) / "data/tfds/cats_vs_dogs/4.0.1"
COPIES = 4
SHARDS = 24


def images() -> Iterator[tuple[str, bytes]]:
    """Encoded images with their classes."""
    import tensorflow as tf

    shards = sorted(map(str, PHOTOS.glob("*.tfrecord-*")))
    if not shards:
        yield from ((("disc", "cross")[number % 2], jpeg(number)) for number in range(400))
    for record in tf.data.TFRecordDataset(shards) if shards else ():
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        yield str(feature["label"].int64_list.value[0]), feature["image"].bytes_list.value[0]


def write_source(folder: Path) -> None:
    """Write all images, each several times with other bytes at its end."""
    for number, (label, data) in enumerate(images()):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for copy in range(COPIES):
            (folder / label / f"{number}-{copy}.jpg").write_bytes(data + bytes([copy]) * copy)


def run(source: Path, data_dir: Path) -> float:
    """Prepare the images; the seconds that it took without the imports."""
    given = {"source": source, "name": "own", "version": "1.0.0", "data_dir": data_dir, "shards": SHARDS, "seed": 0}
    given |= {"on_corrupt": "raise", "features": None, "split": "train=80,validation=20"}
    options = parsed({name: None if value is None else str(value) for name, value in given.items()})
    began = time.perf_counter()
    prepare(options, opened(options))
    return time.perf_counter() - began


def content(data_dir: Path) -> dict[str, bytes]:
    """The files of a dataset."""
    return {of.name: of.read_bytes() for of in (data_dir / "own").rglob("*") if of.is_file()}


def killed(source: Path, data_dir: Path, scratch: Path, longest_s: float) -> tuple[bool, str]:
    """Kill a preparation at a random moment; whether it was killed, and where."""
    pid = child(partial(run, source, data_dir), scratch / "child.json")
    time.sleep(random.uniform(0, longest_s))  # noqa: S311 - a moment, not a secret
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    reached = "in the shards" if [*data_dir.rglob("*.tfrecord-*")] else "in the check or before"
    return status != 0, "it had ended" if status == 0 else reached


def main() -> None:
    """Kill, compare, print, and write the table where asked; status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        table, wrong = measured(Path(name), known.kills)
    print(table)
    if known.output:
        known.output.write_text(f"`python -m benchmarks.prepare --kills {known.kills}` on 2 cores\n\n{table}")
    sys.exit(bool(wrong))


def measured(scratch: Path, kills: int) -> tuple[str, list[str]]:
    """Return the table, and what was wrong."""
    source, whole = scratch / "photos", scratch / "whole"
    done = child(partial(write_source, source), scratch / "child.json")
    os.waitpid(done, 0)
    done = child(partial(run, source, whole), scratch / "seconds.json")
    os.waitpid(done, 0)
    took_s, wanted = float((scratch / "seconds.json").read_text()), content(whole)
    sizes = [of.stat().st_size for of in source.rglob("*.jpg")]
    moments: dict[str, int] = {}
    wrong: list[str] = []
    left, turn = kills, 0
    while left:
        data_dir, was_killed, turn = scratch / f"killed-{turn}", True, turn + 1
        while left and was_killed:
            was_killed, reached = killed(source, data_dir, scratch, 1.5 * took_s)
            moments[reached] = moments.get(reached, 0) + was_killed
            left -= was_killed
        if was_killed:
            os.waitpid(child(partial(run, source, data_dir), scratch / "child.json"), 0)
        if content(data_dir) != wanted:
            wrong.append(f"other bytes after {kills - left} kills")
    rate = f"{len(sizes) / took_s:,.0f} images/s, {sum(sizes) / took_s / 1e6:,.1f} MB/s"
    lines = ["| killed | kills | wrong afterwards |", "|---|---|---|"]
    lines += [f"| {reached} | {count} | |" for reached, count in sorted(moments.items()) if count]
    lines += [f"| all, of {turn} datasets | {kills} | {len(wrong)} |", "", *wrong]
    lines += [f"Undisturbed, {len(sizes):,} photos in {took_s:.1f} s: {rate}, decoded once to check them.", ""]
    return "\n".join(lines), wrong


if __name__ == "__main__":
    main()
