"""Sweeps of configs whose true ratios are known because they were put there: what is called better, and what is missed?

python -m benchmarks.sweeps [--sweeps 100] [--wide 4] [--output benchmarks/results/sweeps.md]

Each sweep is a real one, `python -m etlrun -m …`, of JPEGs of the sample dataset, with an emulated accelerator whose
steps take as long as the ratio asks. The tie differs from the baseline in a prefetch buffer that changes nothing; a
wide sweep has 39 such ties. Several sweeps run side by side: they take the cores from each other, so that a pipeline
now and then starves its steps. The ratio of the steps leaves out the handing over of a batch, so the true gain of a
config is what all rounds of all sweeps come to: their median, which is known 20 times better than that of one sweep.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Ratios = tuple[float, ...]
Results = dict[str, Any]

STEP_MS = 10.0
RATIOS: Ratios = (1.0, 1.0, 1.05, 1.15, 1.3, 2.0)
"""Of the configs in the order of the grid; the first is the baseline."""
WIDE: Ratios = (1.0,) * 40
REPEATS, WIDE_REPEATS = 5, 3
WORDS = (
    "dataset.split='train[:100]'",
    "dataset.eval_split=null",
    "cache=none",
    "load.batch_size=4",
    "load.shuffle_buffer=16",
    "load.drop_remainder=true",
    "model=emulated",
    "trainer.epochs=3",
)


def swept(seed: int, ratios: Ratios, repeats: int) -> Results:
    """The results of one sweep."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *WORDS,
            f"model.step_ms={','.join(f'{STEP_MS / ratio:.4f}' for ratio in ratios)}",
            f"load.prefetch={','.join(str(2 + number) for number in range(len(ratios)))}",
            "sweep.zip=[[model.step_ms,load.prefetch]]",
            f"sweep.repeats={repeats}",
            f"sweep.seed={seed}",
            f"hydra.sweep.dir={folder}/sweep",
        ]
        subprocess.run([sys.executable, "-m", "etlrun", "-m", *words], check=True, stdout=subprocess.DEVNULL)
        results: Results = json.loads(Path(folder, "sweep", "results.json").read_text())
        return results


def rounds_of(results: Results) -> Iterator[tuple[int, float]]:
    """For each config and round the logarithm of its gain over the baseline's two runs of that round."""
    rates = {(run["config"], run["repeat"]): run["outcome"]["examples_per_s"] for run in results["runs"]}
    for (config, turn), rate in rates.items():
        if config:
            twins = [rates[0, 2 * turn], rates[0, 2 * turn + 1]]
            yield config, math.log(rate / statistics.geometric_mean(twins))


def gains_of(results: Results) -> dict[int, dict[str, Any]]:
    """By config, as the sweep's own table has them."""
    return {config["number"]: config["gain"] for config in results["configs"] if config["number"]}


def table(sweeps: Sequence[Results]) -> str:
    """What was called what, in Markdown."""
    noises = sorted(results["noise"]["median"] for results in sweeps)
    head = (
        f"{len(sweeps)} sweeps of {len(RATIOS)} configs, {REPEATS} repeats and as many pairs of the baseline, on "
        f"{os.cpu_count()} cores; two runs of the baseline differed by {statistics.median(noises):.1%} in the median "
        f"of the sweeps' medians, {noises[-1]:.1%} in the worst sweep."
    )
    lines = [
        head,
        "",
        "| ratio of the steps | true gain | better | tied | worse | interval holds the true gain | its width |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    held_of_all = []
    for number, ratio in list(enumerate(RATIOS))[1:]:
        truth = math.exp(statistics.median(log for of in sweeps for config, log in rounds_of(of) if config == number))
        truth = 1.0 if ratio == 1.0 else truth  # a tie is one by construction
        gains = [gains_of(results)[number] for results in sweeps]
        calls = [sum(gain["call"] == call for gain in gains) / len(gains) for call in ("better", "tied", "worse")]
        held = [gain["low"] <= truth <= gain["high"] for gain in gains]
        width = statistics.median(gain["high"] / gain["low"] - 1 for gain in gains)
        held_of_all += held
        shares = " | ".join(f"{share:.1%}" for share in (*calls, sum(held) / len(held), width))
        lines.append(f"| {ratio:.2f} | {truth:.3f} | {shares} |")
    lines += ["", f"Of all {len(held_of_all)} intervals {sum(held_of_all) / len(held_of_all):.1%} hold the true gain."]
    return "\n".join(lines) + "\n"


def wide_table(sweeps: Sequence[Results]) -> str:
    """How often some tie of a wide sweep was called better."""
    gains = [gain for results in sweeps for gain in gains_of(results).values()]
    better = [sum(gain["call"] == "better" for gain in gains_of(results).values()) for results in sweeps]
    held = sum(gain["low"] <= 1.0 <= gain["high"] for gain in gains) / len(gains)
    return (
        f"{len(sweeps)} wide sweeps of {len(WIDE)} equal configs, {WIDE_REPEATS} repeats: {sum(map(bool, better))} "
        f"have a tie that is called better; {sum(better)} of {len(gains)} ties are. {held:.1%} of the "
        "intervals hold 1.\n"
    )


def main() -> None:
    """Run the sweeps; the output file has the tables of those that have ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--wide", type=int, default=4)
    parser.add_argument("--side-by-side", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    narrow: list[Results] = []
    wide: list[Results] = []
    with ThreadPoolExecutor(arguments.side_by_side) as pool:
        asked = [(seed, RATIOS, REPEATS) for seed in range(arguments.sweeps)]
        asked += [(seed, WIDE, WIDE_REPEATS) for seed in range(arguments.wide)]
        for (_, ratios, _), results in zip(asked, pool.map(swept, *zip(*asked, strict=True)), strict=True):
            (wide if len(ratios) == len(WIDE) else narrow).append(results)
            text = "\n".join([table(narrow), *([wide_table(wide)] if wide else [])])
            print(len(narrow), len(wide), text, sep="\n", flush=True)
            if arguments.output:
                arguments.output.write_text(f"`python -m benchmarks.sweeps`\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
