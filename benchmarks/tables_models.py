"""Models of real tables, with the columns that etlrun chooses. Used by tables.py."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scipy import stats

SEEDS = 5
DIAMONDS = ("diamonds.parquet", "{price: {number: standardize}}", "null")
TITANIC = ("titanic.csv", "{survived: class}", "[sex,age,passengerClass]")
BARS = {"titanic, accuracy": "at least 0.78", "diamonds, R2": "at least 0.975", "diamonds, MAE": "at most 330"}


def models(tables: Path, folder: Path) -> str:
    """The table of the figures on the validation split, a fifth of the rows."""
    figures: dict[str, list[float]] = {name: [] for name in BARS}
    seconds: dict[str, list[float]] = {"titanic": [], "diamonds": []}
    for seed in range(SEEDS):
        for (file, target, inputs), name in ((TITANIC, "titanic"), (DIAMONDS, "diamonds")):
            words = ["experiment=table", f"dataset.files={tables / file}", f"dataset.target={target}"]
            words += [f"dataset.inputs={inputs}", f"dataset.dir={folder / 'kept'}", f"trainer.seed={seed}"]
            run, began_s = folder / f"{name}-{seed}", time.perf_counter()
            command = [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={run}"]
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - began_s)
            last = json.loads((run / "summary.json").read_text())["epochs"][-1]
            last |= last.get("metrics", {})
            for title, of in figures.items():
                if title.startswith(name):
                    of.append(last[f"val_{title.rpartition(' ')[2].lower()}"])
    lines = ["| table, figure | mean of 5 seeds | 95% interval | bar | s a run |", "|---|---|---|---|---|"]
    for title, bar in BARS.items():
        mean, half = of_seeds(figures[title])
        digits = 0 if "MAE" in title else 4
        taken_s = statistics.median(seconds[title.partition(",")[0]])
        interval = f"{mean - half:.{digits}f} to {mean + half:.{digits}f}"
        lines.append(f"| {title} | {mean:.{digits}f} | {interval} | {bar} | {taken_s:.0f} |")
    return "\n".join(lines) + "\n"


def of_seeds(figures: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval."""
    half = stats.t.ppf(0.975, len(figures) - 1) * statistics.stdev(figures) / math.sqrt(len(figures))
    return statistics.mean(figures), float(half)
