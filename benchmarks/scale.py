"""Large datasets: rate, memory, start and disk of whole runs, and the time to find their caches.

python -m benchmarks.scale --data-dir DIR [--records 1600 16000 128000] [--output benchmarks/results/scale.md]

A dataset of so many records is made of the photos of cats_vs_dogs, which repeat, in shards of about 2,000, and read by
processes of their own, in batches of 32 images of uint8 without a model, for two epochs. `rate` is that of the second
one, which reads the cache where there is one, `start` the time from the start of the process to its first batch, and
`memory` the peak of its own memory, without the pages of files that the system keeps. The disk holds the dataset and
the cache, whose pages are dropped from memory before a run. Each cache is removed before the next one is filled.

The second table has the seconds that a process needs to find the key of a cache, without its imports: of a dataset that
nobody has read yet, and again in another process, which reads no record; and those of a whole `etlrun diff`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.decoding import TENSORFLOW
from benchmarks.processes import summary_of
from etlrun.sources.content import Shard, starts_of
from etlrun.system.machine import cores

NAME, VERSION = "cats_vs_dogs", "4.0.1"
SIDES: Mapping[str, tuple[str, ...]] = {
    "uncached": ("cache=none", TENSORFLOW),
    "uncached, turbo": ("cache=none",),
    "uncached, turbo, full shuffle": ("cache=none", "extract=sequential", "load.shuffle=full"),
    "JPEG cache, turbo": ("cache=disk", "cache.codec=jpeg90"),
    "raw cache": ("cache=disk",),
    "raw cache, full shuffle": ("cache=disk", "extract=sequential", "load.shuffle=full"),
}
_PER_SHARD = 2_000
_FIND = """
import sys, time
from etlrun.run.readings import keepers_for
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
plan = grid.resolve(Request(overrides=sys.argv[1:]), STAGES).plan
began_s = time.perf_counter()
keys = [keeper.key for keeper in keepers_for(plan).values()]
print(time.perf_counter() - began_s, *keys)
"""


def records(shards: Sequence[Shard]) -> Iterator[bytes]:
    """The records of these files as they contain them, again and again."""
    found = []
    for shard, starts in zip(shards, starts_of(shards), strict=True):
        content = Path(shard.path).read_bytes()
        found += [content[start:end] for start, end in itertools.pairwise(starts)]
    return itertools.cycle(found)


def made(photos: Path, folder: Path, count: int, shards: int) -> int:
    """Write a dataset of `count` records in so many shards; its bytes."""
    source, target = photos / NAME / VERSION, folder / NAME / VERSION
    target.mkdir(parents=True)
    info = json.loads((source / "dataset_info.json").read_text(encoding="utf-8"))
    files, takes = sorted(source.glob("*.tfrecord-*")), map(int, info["splits"][0]["shardLengths"])
    endless = records([Shard(path=str(path), skip=0, take=take) for path, take in zip(files, takes, strict=True)])
    lengths = [count * (number + 1) // shards - count * number // shards for number in range(shards)]
    for number, length in enumerate(lengths):
        with (target / f"{NAME}-train.tfrecord-{number:05}-of-{shards:05}").open("wb") as file:
            file.writelines(itertools.islice(endless, length))
    info["splits"][0]["shardLengths"] = [str(length) for length in lengths]
    size = sum(file.stat().st_size for file in target.iterdir())
    info["splits"][0]["numBytes"] = str(size)
    (target / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    for name in ("features.json", "label.labels.txt"):
        shutil.copyfile(source / name, target / name)
    return size


def uncached_pages(folder: Path) -> None:
    """Write what waits to be written, and drop the pages of these files from memory."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def of_run(words: Sequence[str], folder: Path) -> dict[str, Any]:
    """The summary of a run in a process of its own, and the seconds to its first batch."""
    began_s = time.time()
    summary = summary_of(words, folder)
    first = summary["epochs"][0]
    ended = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    epoch_end_s = summary["created_s"] + next(of["elapsed_s"] for of in ended if of["event"] == "epoch")
    summary["start_s"] = epoch_end_s - began_s - first["wall_s"] + first["startup_s"] + first["fill_wait_s"]
    return summary


def rows(photos: Path, folder: Path, count: int, sides: Sequence[str]) -> Iterator[str]:
    """Lines of the first table."""
    shards = max(16, count // _PER_SHARD)
    size = made(photos, folder / "data", count, shards)
    common = [f"experiment={NAME}", f"dataset.data_dir={folder / 'data'}", f"cache.dir={folder / 'caches'}"]
    common += ["dataset.split=train", "dataset.eval_split=null", "dataset.download=false"]
    common += ["trainer=drain", "trainer.epochs=2", "trainer.seconds=null"]
    for number, name in enumerate(sides):
        if "cache=disk" in SIDES[name]:  # filled by another run: the next one reads it from the disk
            of_run([*common, *SIDES[name], "trainer.epochs=1"], folder / f"fills_{number}")
        uncached_pages(folder)
        summary = of_run([*common, *SIDES[name]], folder / f"reads_{number}")
        held = sum(file.stat().st_size for file in (folder / "caches").rglob("*") if file.is_file())
        shutil.rmtree(folder / "caches", ignore_errors=True)
        first, second = (epoch["examples_per_s"] for epoch in summary["epochs"])
        memory, start, disk = summary["resources"]["peak_rss_bytes"] / 1e6, summary["start_s"], (size + held) / 1e9
        yield f"| {count:,} | {name} | {first:,.0f} | {second:,.0f} | {memory:,.0f} | {start:.1f} | {disk:.2f} |"


def finding(photos: Path, folder: Path, count: int, shards: int) -> str:
    """Line of the second table."""
    made(photos, folder / "data", count, shards)
    time.sleep(3)  # files of the last two seconds may still change
    words = [f"experiment={NAME}", f"dataset.data_dir={folder / 'data'}", f"cache.dir={folder / 'caches'}"]
    words += ["cache=disk", "dataset.download=false"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "home")}
    found = []
    for _process in range(2):
        uncached_pages(folder / "data")
        command = [sys.executable, "-c", _FIND, *words]
        answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
        found.append((float(answer[0]), answer[1:]))
    assert found[0][1] == found[1][1]
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "etlrun", "diff", " ".join(words), " ".join([*words, "load.batch_size=64"])]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    diff_s = time.perf_counter() - began_s
    return f"| {count:,} | {shards:,} | {found[0][0]:.2f} | {found[1][0]:.2f} | {diff_s:.2f} |"


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, type=Path, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--records", type=int, nargs="+", default=[1_600, 16_000, 128_000])
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument(
        "--shards", type=int, nargs="*", default=[16, 1_000], help="of the datasets whose keys are found"
    )
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    lines = [
        "| records | pipeline | images/s, first epoch | second | memory MB | start s | disk GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for count in known.records:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(known.data_dir, Path(folder), count, known.sides):
                lines.append(row)
                print(row, flush=True)
    if known.shards:
        lines += ["", "| records | shards | key s | key s, again | `diff` s |", "|---|---|---|---|---|"]
    for shards in known.shards:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(finding(known.data_dir, Path(folder), 16_000, shards))
            print(lines[-1], flush=True)
    command = f"python -m benchmarks.scale --data-dir DIR --records {' '.join(map(str, known.records))}"
    text = "\n".join([f"`{command}` on {cores()} cores", "", *lines, ""])
    if known.output:
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
