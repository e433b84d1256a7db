"""How soon a run is at work: seconds from the start of its process to the end of its second training step.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.start --before /tmp/before --data-dir DIR [--turns 3] [--output benchmarks/results/start.md]

The package in `--before`, a checkout of an older commit, against the one of this working tree, each turn in random
order and each run a process of its own with one epoch: the default run, and `experiment=cats_vs_dogs` on the photos in
`--data-dir`, whose ImageNet weights Keras finds below KERAS_HOME. A run of each that is thrown away comes first: it
prepares the sample, and has the files read once. What a run learns must be the same to the bit, in every turn and of
both versions.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from etlrun.system.machine import cores

ROOT = Path(__file__).resolve().parents[1]
MEASURES = ("loss", "accuracy", "val_loss", "val_accuracy")
Times = dict[str, list[tuple[float, float]]]
"""Of each config by turn: seconds before and after."""


def started(package: Path, words: Sequence[str], scratch: Path) -> tuple[float, list[float]]:
    """Seconds to the end of the second step of a run by `package`, and what the run came to."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        clock = Path(folder, "second_step")
        command = [sys.executable, "-P", str(ROOT / "benchmarks" / "second_step.py"), str(clock)]
        began_s = time.time()
        done = subprocess.run(
            [*command, *words, "trainer.epochs=1", f"hydra.run.dir={folder}/run"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(package)},
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{package}: {' '.join(words)}\n{done.stderr}")
        (epoch,) = json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8"))["epochs"]
        return float(clock.read_text()) - began_s, [epoch[name] for name in MEASURES]


def measured(packages: Mapping[str, Path], configs: Mapping[str, Sequence[str]], turns: int) -> Iterator[Times]:
    """The times so far, after each turn; ends the process where two runs of a config came to other losses."""
    times: Times = {name: [] for name in configs}
    learned: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for words in configs.values():
            for package in packages.values():
                started(package, [*words, "trainer.steps_per_epoch=2"], scratch)
        for _ in range(turns):
            for name, words in configs.items():
                took_s = {}
                for which in random.sample(list(packages), len(packages)):
                    took_s[which], found = started(packages[which], words, scratch)
                    if learned.setdefault(name, found) != found:
                        raise SystemExit(f"{name}: {which} came to {found}, another run to {learned[name]}")
                times[name].append((took_s["before"], took_s["after"]))
            yield times


def table(times: Times) -> str:
    """Medians, and the ratio of before to after in each turn."""
    lines = ["| run | before s | after s | before / after, median | lowest | highest |", "|---|---|---|---|---|---|"]
    for name, pairs in times.items():
        before_s, after_s = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [before / after for before, after in pairs]
        cells = [f"{before_s:.2f}", f"{after_s:.2f}"]
        cells += [f"{value:.3f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def commit_of(folder: Path) -> str:
    """The name of the commit that is checked out there."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=Path, help="a checkout of an older commit")
    parser.add_argument("--data-dir", required=True, help="where TFDS keeps cats_vs_dogs")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    packages = {"before": known.before.resolve(), "after": ROOT}
    photos = ["experiment=cats_vs_dogs", f"dataset.data_dir={known.data_dir}"]
    configs = {"`python -m etlrun`": [], "`experiment=cats_vs_dogs`": photos}
    for turn, times in enumerate(measured(packages, configs, known.turns), 1):
        text = (
            f"`python -m benchmarks.start --before DIR --data-dir DIR --turns {turn}` on "
            f"{cores()} cores, before: "
            f"{commit_of(packages['before'])}\n\nSeconds from the start of the process to the end of the second "
            "training step. Losses and accuracies are the same to the bit, in every turn, before and after.\n\n"
            f"{table(times)}"
        )
        print(text, flush=True)
        if known.output:
            known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
