"""Stores whose rate is known, since it was put there: does the verdict find it, and what a faster one gains?

    python -m benchmarks.planted_stores [--runs 5] [--output benchmarks/results/planted_stores.md]

Runs as those of planted.py, on the sample dataset, fetch its shards from a store of S3 on this machine that sends so
many bytes a second, and answers after 30 ms; the extra `s3` is needed. They take turns with runs that read the files.
The rate that a verdict names has to be that of the store.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.limited_server import limited
from benchmarks.planted import FIRST_EPOCH, WITHIN, Plant, found, run_once, seconds
from etlrun.stages.image import Decode

_REQUEST_MS = 30.0
SEQUENTIAL = {"extract": "sequential", "extract.num_parallel_calls": ""}
PLANTS: dict[str, tuple[float, Plant]] = {
    "slow store": (5.0, Plant("input", "extract.fetch")),
    "slow store, one file after the other": (5.0, Plant("input", "extract.fetch", config=SEQUENTIAL)),
    "slow store, a decode that nearly keeps up": (5.0, Plant("input", "extract.fetch", always_ms={Decode: 3.5})),
    "slow store, the first epoch": (
        5.0,
        Plant("input", "extract.fetch", part=FIRST_EPOCH, config={"trainer.epochs": "2"}),
    ),
    "fast store, slow decode": (200.0, Plant("input", "transform.decode", sleeps_ms={Decode: 8.0})),
}
"""MB a second of a store, and what the runs are."""


@contextmanager
def stored(mb_per_s: float) -> Iterator[dict[str, str]]:
    """The overrides of a run that fetches its shards from a store of that rate."""
    home = Path(tfds.core.constants.DATA_DIR).expanduser()
    with tempfile.TemporaryDirectory() as copies, limited(home.parent, mb_per_s, _REQUEST_MS) as store:
        yield {
            "dataset.data_dir": f"s3://{home.name}",
            "dataset.storage": f"{{anon: true, endpoint_url: '{store.url}'}}",
            "dataset.copies": copies,
        }


def measure(name: str, runs: int) -> list[str]:
    """A row of the table."""
    (mb_per_s, plant), right, rates = PLANTS[name], 0, list[float]()
    predicted, real = list[float](), list[float]()
    for number in range(runs):
        mended = run_once(plant.config, plant.always_ms)
        with stored(mb_per_s) as words:
            bad = run_once({**plant.config, **words}, {**plant.always_ms, **plant.sleeps_ms})
        kind, stage, guess = found(bad["verdict"], plant.part)
        rate = bad["verdict"].get("arriving_bytes_per_s", mb_per_s * 1e6) / 1e6
        is_right = (kind, stage) == (plant.kind, plant.stage) and abs(rate / mb_per_s - 1) <= WITHIN
        right += is_right
        rates += [rate] if "arriving_bytes_per_s" in bad["verdict"] else []
        predicted.append(guess)
        real.append(seconds(bad, plant.part) / seconds(mended, plant.part))
        if not is_right:
            print(f"{name} {number}: {bad['verdict']}", file=sys.stderr)
    expected = ", ".join(filter(None, (plant.kind, plant.stage, plant.part if plant.part == FIRST_EPOCH else "")))
    said = f"{statistics.median(rates):.1f}" if rates else "-"
    gains = (f"{statistics.median(values):.2f}" for values in (predicted, real))
    return [name, f"{mb_per_s:g}", expected, f"{right}/{runs}", said, *gains]


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    nothing: dict[Any, float] = {}
    run_once({}, nothing)
    head = ["pipeline", "MB/s of the store", "truth", "found", "MB/s found", "gain predicted", "gain by files"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in PLANTS:
        lines.append(f"| {' | '.join(measure(name, arguments.runs))} |")
        print(lines[-1], flush=True)
    if arguments.output:
        title = f"`python -m benchmarks.planted_stores --runs {arguments.runs}` on 2 cores, TensorFlow {tf.__version__}"
        arguments.output.write_text(f"{title}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
