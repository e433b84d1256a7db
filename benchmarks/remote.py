"""Data that lie in a store: rates, waits and first batches, beside local files and other readers of stores.

python -m benchmarks.remote --data-dir DIR [--turns 5] [--mosaicml-streaming PYTHON] [--litdata PYTHON] [--peers]
    [--output benchmarks/results/remote.md]

The store is `limited_server`, in a process of its own: 100 MB/s for all connections together, and 30 ms before each
answer. In it are the photos of cats_vs_dogs, eight times, in 64 shards of some MB, as TFDS writes them, and the same in
the formats of mosaicml-streaming and litdata, which are read by the Pythons given. Each reader runs in a process of its
own with nothing on this machine, for three epochs of shuffled batches of 32 encoded images, which nothing decodes: the
cores could not keep up with the store. A turn runs all of them, in random order.

The first epoch is from its beginning to its last batch; `behind the first batch` leaves out what comes before that,
where other readers start their processes. Requests are those of a whole run. A step holds a batch as an accelerator
does. The first batch is that of a pass without a shuffle buffer, whose first shard it needs. `--peers` runs etlrun and
those given alone, and adds their table to the file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import tensorflow as tf

from benchmarks.limited_server import limited, plain_reads
from benchmarks.remote_runs import (
    EPOCHS,
    GENERATORS,
    MB_PER_S,
    REQUEST_MS,
    SHARDS,
    STEP_MS,
    Bench,
    Disk,
    Found,
    in_turns,
    middle,
    written,
)
from etlrun.system.machine import cores

HERE = "etlrun, files on this machine"


def limit(bench: Bench) -> str:
    """The table of plain requests."""
    store = bench.folder / "store"
    names = [path.relative_to(store).as_posix() for path in sorted(store.glob("tfds/**/*.tfrecord-*"))]
    lines = ["| connections | MB/s | cores of the server |", "|---|---|---|"]
    for at_once in (1, 8):
        counted: Found = {}
        with bench.store.counting(counted):
            rate = plain_reads(bench.store, names, at_once)
        lines.append(f"| {at_once} | {rate:.1f} | {counted['cpu_s'] / (bench.bytes / rate / 1e6):.2f} |")
    return "\n".join(lines) + "\n"


def readers(bench: Bench, turns: int) -> str:
    """The table of all readers."""
    sides: dict[str, Callable[[], Found]] = {"etlrun": bench.run, HERE: partial(bench.run, is_remote=False)}
    sides |= {GENERATORS.get(name, name): partial(bench.read, name) for name in bench.pythons}
    found = in_turns(bench, sides, turns)
    spent = {name: costs(of) for name, of in found.items()}
    ratios = {
        name: [[its / ours for its, ours in zip(*pair, strict=True)] for pair in zip(of, spent["etlrun"], strict=True)]
        for name, of in spent.items()
    }
    head = "reader | first epoch MB/s | behind the first batch | later epochs MB/s"
    lines = [f"| {head} | etlrun's rate to its: first epoch | later epochs | all epochs | requests |"]
    lines.append(f"|{'---|' * lines[0].count(' |')}")
    for name, of in spent.items():
        first, _, later, whole = ratios[name]
        cells = [name, *(middle([bench.bytes / 1e6 / cost for cost in column], 0) for column in of[:3])]
        requests = statistics.median(turn["requests"] for turn in found[name])
        lines.append(f"| {' | '.join([*cells, *map(middle, (first, later, whole))])} | {requests:.0f} |")
    of_limit = [bench.bytes / 1e6 / cost / bench.store.mb_per_s for cost in spent["etlrun"][0]]
    if GENERATORS["fsspec"] not in ratios:
        return "\n".join(lines) + "\n"
    of_generator = ratios[GENERATORS["fsspec"]]
    text = f"\nThe first epoch of etlrun has {middle(of_limit)} of the limit (bar: at least 0.9). Its rate to that of "
    text += f"{GENERATORS['fsspec']} is {middle(of_generator[0])} in the first epoch, {middle(of_generator[3])} in all "
    return "\n".join(lines) + f"\n{text}(bar: at least 1.2).\n"


def costs(found: Sequence[Found]) -> list[list[float]]:
    """Seconds of each turn: of the first epoch, of it behind its first batch, and of one of the later and of all."""
    columns: list[list[float]] = [[], [], [], []]
    for turn in found:
        first, *later = turn["epochs"]
        later_s = [of["s"] for of in later]
        values = (
            first["s"],
            first["s"] - first["first_s"],
            statistics.mean(later_s),
            (first["s"] + sum(later_s)) / EPOCHS,
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return columns


def waits(bench: Bench, turns: int) -> str:
    """The table of waits beside steps."""
    step = f"trainer.step_ms={STEP_MS}"
    sides = {"the store": partial(bench.run, step), "this machine": partial(bench.run, step, is_remote=False)}
    found = in_turns(bench, sides, turns)
    lines = ["| files at | epoch | s | input wait s | first batch s |", "|---|---|---|---|---|"]
    for name, of in found.items():
        for number in range(EPOCHS):
            epochs = [turn["epochs"][number] for turn in of]
            cells = [middle([epoch[key] for epoch in epochs], 3) for key in ("s", "wait_s", "first_s")]
            lines.append(f"| {name} | {number + 1} | {' | '.join(cells)} |")
    later = [
        [sum(epoch["wait_s"] + epoch["first_s"] for epoch in turn["epochs"][1:]) / (EPOCHS - 1) for turn in of]
        for of in found.values()
    ]
    more = [there - here for there, here in zip(*later, strict=True)]
    text = f"\nA later epoch waits {middle(more, 3)} s longer than from this machine (bar: as from disk).\n"
    return "\n".join(lines) + "\n" + text


def first_batches(bench: Bench, turns: int) -> str:
    """The table of first batches."""
    words = ("extract=sequential", "load=plain", "trainer.epochs=1")
    sides = {"the store": partial(bench.run, *words), "this machine": partial(bench.run, *words, is_remote=False)}
    found = in_turns(bench, sides, turns)
    lines = ["| files at | first batch s |", "|---|---|"]
    firsts = {name: [turn["epochs"][0]["first_s"] for turn in of] for name, of in found.items()}
    lines += [f"| {name} | {middle(of, 3)} |" for name, of in firsts.items()]
    more = [there - here for there, here in zip(*firsts.values(), strict=True)]
    bar_s = 2 * REQUEST_MS / 1e3 + bench.shard_s
    text = f"\nThe store adds {middle(more, 3)} s (bar: two requests and a shard, {bar_s:.3f} s).\n"
    return "\n".join(lines) + "\n" + text


def kept(bench: Bench) -> str:
    """The table of a dataset that is larger than what may stay of it."""
    lines = [
        "| `dataset.keep` | first epoch MB/s | later epochs MB/s | MB fetched | most on disk MB |",
        "|---|---|---|---|---|",
    ]
    for keep in ("all", "100MB"):
        shutil.rmtree(bench.folder / "copies", ignore_errors=True)
        with Disk(bench.folder / "copies") as disk:
            found = bench.run(f"dataset.keep={keep}")
        first, _, later, _ = (bench.bytes / 1e6 / of[0] for of in costs([found]))
        lines.append(f"| {keep} | {first:.0f} | {later:.0f} | {found['bytes'] / 1e6:,.0f} | {disk.most / 1e6:,.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the tables where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, type=Path, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--mosaicml-streaming", help="Python of an environment with it")
    parser.add_argument("--litdata", help="Python of an environment with it, and without obstore, which refuses HTTP")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    pythons = {} if known.peers else dict.fromkeys(GENERATORS, sys.executable)
    pythons |= {"mosaicml-streaming": known.mosaicml_streaming} if known.mosaicml_streaming else {}
    pythons |= {"litdata": known.litdata} if known.litdata else {}
    command = f"`python -m benchmarks.remote --data-dir DIR --turns {known.turns}{' --peers' * known.peers}`"
    before = f"{known.output.read_text()}\n" if known.peers and known.output and known.output.exists() else ""
    with tempfile.TemporaryDirectory() as name:
        size = written(known.data_dir, Path(name), pythons)
        with limited(Path(name, "store"), MB_PER_S, REQUEST_MS) as store:
            bench = Bench(store, Path(name), size, pythons)
            text = f"{size / 1e6:,.0f} MB in {SHARDS} shards of {size / SHARDS / 1e6:.1f} MB.\n"
            for title, table in {
                "Plain requests for all shards": partial(limit, bench),
                "Readers": partial(readers, bench, known.turns),
                f"Waits beside steps of {STEP_MS:g} ms": partial(waits, bench, known.turns),
                "The first batch": partial(first_batches, bench, known.turns),
                "A part of the dataset on this machine": partial(kept, bench),
            }.items():
                if known.peers and title != "Readers":
                    continue
                text += f"\n{title}:\n\n{table()}"
                print(text[text.rindex(f"\n{title}:") :], flush=True)
                if known.output:
                    load = f"load was {os.getloadavg()[2]:.1f} in the mean of 15 minutes; TensorFlow {tf.__version__}"
                    known.output.write_text(f"{before}{command} on {cores()} cores, whose {load}. {text}")


if __name__ == "__main__":
    main()
