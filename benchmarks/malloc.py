"""Malloc and its pages: the rate of uncached pipelines in processes that tell glibc how to get and keep them, in turns.

python -m benchmarks.malloc --data-dir DIR [--turns 9] [--output benchmarks/results/malloc.md]

A turn runs all sides once, in random order, each a process that reads all photos four times without a model; the rate
and the CPU time are those of the last three epochs. The sides:

default      as the system has it
huge pages   GLIBC_TUNABLES=glibc.malloc.hugetlb=1, which asks for pages of 2 MB
kept         freed memory is not given back: MALLOC_MMAP_MAX_=0, MALLOC_TRIM_THRESHOLD_, and MALLOC_TOP_PAD_ of 64 MB
both         both
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.decoding import TENSORFLOW
from benchmarks.processes import summary_of
from etlrun.system.machine import cores

HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**35), "MALLOC_TOP_PAD_": str(2**26)}
SIDES: Mapping[str, Mapping[str, str]] = {"default": {}, "huge pages": HUGE, "kept": KEPT, "both": {**HUGE, **KEPT}}
LIBRARIES: Mapping[str, tuple[str, ...]] = {"tensorflow": (TENSORFLOW,), "turbo": ()}

Measured = tuple[float, float, float]
"""Images per second, CPU milliseconds an image, and the peak of memory in MB."""


def measured(data_dir: str, words: tuple[str, ...], environment: Mapping[str, str]) -> Measured:
    """Of a run in a process of its own."""
    common = ["experiment=cats_vs_dogs", f"dataset.data_dir={data_dir}", "dataset.download=false", "cache=none"]
    common += ["dataset.split=train", "dataset.eval_split=null"]
    common += ["trainer=drain", "trainer.epochs=4", "trainer.seconds=null"]
    with tempfile.TemporaryDirectory() as folder:
        summary = summary_of([*common, *words], Path(folder, "run"), environment)
    later, used = summary["epochs"][1:], summary["resources"]
    rate = statistics.median(epoch["examples_per_s"] for epoch in later)
    return rate, 1000 * used["cpu_s"] / summary["examples"], used["peak_rss_bytes"] / 1e6


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    keys = [(library, side) for library in LIBRARIES for side in SIDES]
    found: dict[tuple[str, str], list[Measured]] = {key: [] for key in keys}
    for _turn in range(known.turns):
        for library, side in random.sample(keys, len(keys)):
            found[library, side].append(measured(known.data_dir, LIBRARIES[library], SIDES[side]))
    head = "| decoded by | malloc | images/s | ratio, median | quartiles | CPU ms an image | memory MB |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for library, side in keys:
        pairs = zip(found[library, side], found[library, "default"], strict=True)
        low, middle, high = statistics.quantiles([own[0] / default[0] for own, default in pairs], n=4)
        rate, cpu, memory = (statistics.median(column) for column in zip(*found[library, side], strict=True))
        ratio = f"{middle:.2f} | {low:.2f} to {high:.2f}"
        lines.append(f"| {library} | {side} | {rate:,.0f} | {ratio} | {cpu:.3f} | {memory:,.0f} |")
    command = f"python -m benchmarks.malloc --data-dir DIR --turns {known.turns}"
    text = "\n".join([f"`{command}` on {cores()} cores", "", *lines, ""])
    print(text)
    if known.output:
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
