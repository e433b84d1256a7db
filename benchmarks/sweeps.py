"""Sweeps of configs whose true ratios are known because they were put there: what is called better, and what is missed?

python -m benchmarks.sweeps [--sweeps 40] [--output benchmarks/results/sweeps.md]

Each sweep is a real one, `python -m etlrun -m …`, of JPEGs of the sample data set, with an emulated accelerator whose
steps take as long as the ratio asks. The tie differs from the baseline in a prefetch buffer that changes nothing. While
it runs, other processes take the cores away at random moments, so that the pipeline now and then starves its steps.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

STEP_MS = 12.0
RATIOS = (1.0, 1.0, 1.05, 1.3)
"""Of the configs in the order of the grid; the first is the baseline."""
REPEATS = 5
WORDS = (
    "dataset.split='train[:320]'",
    "dataset.eval_split=null",
    "cache=none",
    "load.batch_size=8",
    "load.shuffle_buffer=16",
    "load.drop_remainder=true",
    "model=emulated",
    "trainer.epochs=3",
)


def disturb(seed: int) -> None:
    """Take a core away for some tenths of a second, again and again, for a quarter of the time."""
    moments = random.Random(seed)  # noqa: S311 - a disturbance, no secret
    while True:
        until_s = time.perf_counter() + moments.expovariate(1 / 0.4)
        while time.perf_counter() < until_s:
            pass
        time.sleep(moments.expovariate(1 / 1.2))


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
    head = (
        f"{sweeps} sweeps of {len(RATIOS)} configs, {REPEATS} repeats and as many pairs of the baseline, on "
        f"{os.cpu_count()} cores; two runs of the baseline differed by {sorted(noises)[len(noises) // 2]:.1%} in the "
        f"median of the sweeps' medians, {max(noises):.1%} in the worst sweep."
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
    """Run the sweeps and add their table to the output file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweeps", type=int, default=40)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    disturbers = [multiprocessing.Process(target=disturb, args=(seed,), daemon=True) for seed in range(2)]
    for disturber in disturbers:
        disturber.start()
    numbers = range(1, len(RATIOS))
    calls: dict[int, Counter[str]] = {number: Counter() for number in numbers}
    errors: dict[int, list[float]] = {number: [] for number in numbers}
    noises: list[float] = []
    for seed in range(arguments.sweeps):
        with tempfile.TemporaryDirectory() as scratch:
            results = swept(seed, Path(scratch) / "sweep")
        noises.append(results["noise"]["median"])
        for config in results["configs"]:
            number, gain = config["number"], config["gain"]
            if number:
                calls[number][gain["call"]] += 1
                errors[number].append(float(gain["low"] <= RATIOS[number] <= gain["high"]))
        gains = {config["number"]: round(config["gain"]["ratio"], 3) for config in results["configs"]}
        print(
            seed, f"noise {noises[-1]:.3f}", sorted(gains.items()), {k: dict(v) for k, v in calls.items()}, flush=True
        )
    text = table(calls, errors, noises, arguments.sweeps)
    print(text)
    if arguments.output:
        arguments.output.write_text(f"# Sweeps\n\n`python -m benchmarks.sweeps`\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
