"""Steps on JAX: compiled or not, and the start of the second job of a sweep, in turns.

    python -m benchmarks.steps [--turns 2] [--output benchmarks/results/steps.md]

MobileNetV2 small on the sample at 64 px, on the CPU. Each row of the first table is a run of its own; its steps/s are
those of the steps that compile nothing. The second table has a sweep of two jobs each turn, without executables of
earlier runs: a job has started with the end of its first step, from the first line of its process on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORDS = ("model=mobilenet_v2_small", "dataset.eval_split=null", "trainer.epochs=1", "load.drop_remainder=true")
RUNS = {
    "each operation by itself, as before": ("trainer.jit_compile=false", "trainer.steps_per_epoch=6"),
    "compiled, the default": ("trainer.steps_per_epoch=25",),
}


def run(words: tuple[str, ...], caches: Path) -> None:
    """Run etlrun on JAX, with the caches of a user in a folder."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    environment |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(caches)}
    subprocess.run([sys.executable, "-m", "etlrun", *words], env=environment, check=True, capture_output=True)


def rate(folder: Path) -> float:
    """Return the steps/s of a run, without those that compile."""
    (epoch,) = json.loads((folder / "summary.json").read_text())["epochs"]
    batch = epoch["examples"] / epoch["steps"]
    return float((epoch["examples"] - epoch["startup_examples"]) / batch / (epoch["wall_s"] - epoch["startup_s"]))


def start_s(folder: Path) -> float:
    """Return the seconds from the start of a job to the end of its first step."""
    events: list[dict[str, Any]] = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    (began,) = (event["elapsed_s"] for event in events if event["event"] == "epoch_began")
    (epoch,) = json.loads((folder / "summary.json").read_text())["epochs"]
    return float(began + epoch["startup_s"])


def rates(turns: int, scratch: Path) -> list[str]:
    """Return the rows of the first table."""
    found: dict[str, list[float]] = {name: [] for name in RUNS}
    for turn in range(turns):
        for place, (name, words) in enumerate(RUNS.items()):
            folder = scratch / f"{turn}_{place}"
            run((*WORDS, *words, f"hydra.run.dir={folder}"), scratch / "caches")
            found[name].append(rate(folder))
    medians = {name: statistics.median(values) for name, values in found.items()}
    names = list(RUNS)
    rows = []
    for place, name in enumerate(names):
        before = "" if place % 2 == 0 else f"{medians[name] / medians[names[place - 1]]:.2f}"
        rows.append(f"| {name} | {medians[name]:.2f} | {before} |")
    return rows


def starts(turns: int, scratch: Path) -> list[str]:
    """Return the rows of the second table."""
    rows = []
    for turn in range(turns):
        folder = scratch / f"sweep_{turn}"
        words = ("-m", *WORDS, "trainer.steps_per_epoch=2", "trainer.seed=0,1", f"hydra.sweep.dir={folder}")
        run(words, scratch / f"caches_{turn}")
        first, second = (start_s(path.parent) for path in sorted(folder.glob("*/events.jsonl"), key=_began))
        rows.append(f"| {turn + 1} | {first:.1f} | {second:.1f} | {second / first:.2f} |")
    return rows


def _began(path: Path) -> float:
    return float(json.loads((path.parent / "summary.json").read_text())["created_s"])


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        run((*WORDS, "model=emulated", "trainer.steps_per_epoch=1", f"hydra.run.dir={scratch / 'sample'}"), scratch)
        of_steps, of_starts = rates(arguments.turns, scratch), starts(arguments.turns, scratch)
    told = f"{os.cpu_count()} cores, MobileNetV2 small, 64 px, JAX; medians of {arguments.turns} turns."
    text = "\n".join([
        f"`python -m benchmarks.steps`, {told}",
        "",
        "| steps | steps/s | ratio to the row above |",
        "| --- | --- | --- |",
        *of_steps,
        "",
        "A sweep of two jobs, without executables of earlier runs:",
        "",
        "| turn | first job starts in s | second job | ratio |",
        "| --- | --- | --- | --- |",
        *of_starts,
        "",
    ])  # fmt: skip
    print(text)
    if arguments.output:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
