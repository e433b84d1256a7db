"""How long `etlrun diff` and `etlrun check` take, process start included.

    python -m benchmarks.reviews --output benchmarks/results/reviews.md

A scratch git repository gets the project and 20 experiments; `diff` compares two commits of it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from etlrun.system.machine import cores

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = 20
EXPERIMENT = """\
# @package _global_
# python -m etlrun experiment=e{number}
# One of many.
defaults:
  - cats_vs_dogs
  - override /load: {load}
  - _self_
trainer:
  epochs: {epochs}
"""
CHANGES = {
    "nothing": (),
    "one experiment": (("conf/experiment/e3.yaml", "epochs: 5", "epochs: 6"),),
    "a file that all experiments reach": (("conf/transform/imagenet_224.yaml", "antialias: false", "antialias: true"),),
}


def git(folder: Path, *words: str) -> None:
    """Run git with a name of its own."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)  # noqa: S607


def make(folder: Path) -> None:
    """The project with 20 experiments instead of its own, but the one that they build upon."""
    for name in ("etlrun", "conf"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "conf" / "experiment").glob("*.yaml"):
        if path.stem != "cats_vs_dogs":
            path.unlink()
    for number in range(1, EXPERIMENTS):
        text = EXPERIMENT.format(number=number, load=("plain", "shuffled")[number % 2], epochs=number + 2)
        (folder / "conf" / "experiment" / f"e{number}.yaml").write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "One")


def timed(folder: Path, *words: str) -> tuple[float, float]:
    """Of a whole command: seconds, and seconds of a CPU, which other work on the machine does not change as much."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "etlrun", *words], cwd=folder, env=environment, check=True, capture_output=True
    )
    took_s, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    """Time them in turns, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make(folder)
        for changes in CHANGES.values():
            for name, old, new in changes:
                path = folder / name
                path.write_text(path.read_text().replace(old, new))
            git(folder, "commit", "--quiet", "--allow-empty", "--all", "--message", "Next")
        for _ in range(known.turns):
            for number, change in enumerate(CHANGES):
                pair = (f"HEAD~{len(CHANGES) - number}", f"HEAD~{len(CHANGES) - number - 1}")
                taken.setdefault(f"`diff`, {EXPERIMENTS} experiments, {change} changed", []).append(
                    timed(folder, "diff", *pair)
                )
            taken.setdefault("`check`, the project's own configs", []).append(timed(ROOT, "check"))
    lines = [f"{known.turns} turns on {cores()} cores, process start included, in seconds", ""]
    lines += ["| command | fastest | median | slowest | CPU, median |", "|---|---|---|---|---|"]
    for what, times in taken.items():
        wall, cpu = zip(*times, strict=True)
        figures = (min(wall), statistics.median(wall), max(wall), statistics.median(cpu))
        lines.append(f"| {what} | {' | '.join(f'{figure:.2f}' for figure in figures)} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if known.output:
        known.output.write_text(f"`python -m benchmarks.reviews --turns {known.turns}`\n\n{text}")


if __name__ == "__main__":
    main()
