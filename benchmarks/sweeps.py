"""Sweeps of configs whose true ratios are known because they were put there: what is called better, and what is missed?

python -m benchmarks.sweeps [--sweeps 40] [--output benchmarks/results/sweeps.md]

Each sweep is a real one, `python -m etlrun -m …`, of JPEGs of the sample data set, with an emulated accelerator whose
steps take as long as the ratio asks. The tie differs from the baseline in a prefetch buffer that changes nothing.
Several sweeps run side by side: they take the cores from each other, so that a pipeline now and then starves its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

STEP_MS = 12.0
RATIOS = (1.0, 1.0, 1.05, 1.3)
"""Of the configs in the order of the grid; the first is the baseline."""
REPEATS = 5
WORDS = (
    "dataset.split='train[:200]'",
    "dataset.eval_split=null",
    "cache=none",
    "load.batch_size=4",
    "load.shuffle_buffer=16",
    "load.drop_remainder=true",
    "model=emulated",
    "trainer.epochs=3",
)


def swept(seed: int, folder: Path) -> dict[str, Any]:
    """The results of one sweep."""
    steps = ",".join(f"{STEP_MS / ratio:.4f}" for ratio in RATIOS)
    words = [
        *WORDS,
        f"model.step_ms={steps}",
        f"load.prefetch={','.join(str(2 + number) for number in range(len(RATIOS)))}",
        "sweep.zip=[[model.step_ms,load.prefetch]]",
        f"sweep.repeats={REPEATS}",
        f"sweep.seed={seed}",
        f"hydra.sweep.dir={folder}",
    ]
    subprocess.run([sys.executable, "-m", "etlrun", "-m", *words], check=True, stdout=subprocess.DEVNULL)
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results


def table(calls: dict[int, Counter[str]], errors: dict[int, list[float]], noises: list[float], sweeps: int) -> str:
    """What was called what, in Markdown."""
    middle = sorted(noises)[len(noises) // 2]
    head = (
        f"{sweeps} sweeps of {len(RATIOS)} configs, {REPEATS} repeats and as many pairs of the baseline, on "
        f"{os.cpu_count()} cores; two runs of the baseline differed by {middle:.1%} in the median of the sweeps' "
        f"medians, {max(noises):.1%} in the worst sweep. The ratios are those of the steps; a rate also holds the "
        "handing over of batches, 1 to 2 ms beside 12 ms on a disturbed machine, which lowers its ratio."
    )
    lines = [
        head,
        "",
        "| true ratio | better | tied | worse | interval holds the true ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for number, ratio in list(enumerate(RATIOS))[1:]:
        counts = [f"{calls[number][call]} ({calls[number][call] / sweeps:.1%})" for call in ("better", "tied", "worse")]
        lines.append(f"| {ratio:.2f} | {' | '.join(counts)} | {sum(errors[number]) / sweeps:.1%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the sweeps; the output file has the table of those that have ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweeps", type=int, default=40)
    parser.add_argument("--side-by-side", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    numbers = range(1, len(RATIOS))
    calls: dict[int, Counter[str]] = {number: Counter() for number in numbers}
    errors: dict[int, list[float]] = {number: [] for number in numbers}
    noises: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.side_by_side) as pool:
        folders = [Path(scratch) / str(seed) for seed in range(arguments.sweeps)]
        for seed, results in enumerate(pool.map(swept, range(arguments.sweeps), folders)):
            noises.append(results["noise"]["median"])
            gains = {config["number"]: config["gain"] for config in results["configs"]}
            for number in numbers:
                calls[number][gains[number]["call"]] += 1
                is_held = gains[number]["low"] <= RATIOS[number] <= gains[number]["high"]
                errors[number].append(float(is_held))
            text = table(calls, errors, noises, seed + 1)
            ratios = [round(gains[number]["ratio"], 3) for number in numbers]
            print(seed, f"noise {noises[-1]:.3f}", ratios, [dict(of) for of in calls.values()], flush=True)
            if arguments.output:
                arguments.output.write_text(f"# Sweeps\n\n`python -m benchmarks.sweeps`\n\n{text}", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
