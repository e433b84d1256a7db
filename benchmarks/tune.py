"""Does `etlrun tune` find the best config of pipelines whose best is known, and what does it cost?

    python -m benchmarks.tune [--only NAME...] [--budget 90] [--repeats 3] [--output benchmarks/results/tune.md]

Each plant runs in a process of its own. Its grid, a few keys that matter to it, is run exhaustively in the same windows
as the search, in rounds of random order. Then the winner of the search, the best of the grid and the baseline run in
turns, five rounds: the columns are ratios of their times. The cost is that of the search's windows over those of an
exhaustive grid of its whole space, five times each, at the mean time of a window.
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
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.tune_plants import PLANT, PLANTS, Plant
from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.sweep import engine
from etlrun.sweep.tune.search import FOUND, Search
from etlrun.sweep.tune.space import Candidate, Windows
from etlrun.system import machine

BASE = ("dataset=sample", "dataset.eval_split=null", "model=emulated", "model.step_ms=4", "trainer.epochs=5")
ROUNDS = 5
WITHIN = 0.97


def job_of(plant: Plant, *settings: str) -> Any:
    """The settings and the baseline of a plant."""
    given = {word.partition("=")[0] for word in plant.overrides}
    base = [word for word in BASE if word.partition("=")[0] not in given]
    return grid.tuned(Request(overrides=[*base, *plant.overrides, *settings]), STAGES)


def measured(search: Search, candidate: Candidate) -> float:
    """Seconds of a new window; infinite if it fails."""
    return search._measure(candidate) or float("inf")  # noqa: SLF001 - the same windows as those of the search


def best_of_grid(search: Search, plant: Plant, repeats: int) -> tuple[Candidate, int]:
    """The fastest config of the plant's grid, and the number of its configs."""
    candidates = []
    for values in product(*plant.grid.values()):
        changes = {key: _value(value) for key, value in zip(plant.grid, values, strict=True)}
        candidate = search.space.candidate(changes)
        if isinstance(candidate, Candidate) and _fits(plant, candidate):
            candidates.append(candidate)
    times: dict[int, list[float]] = {candidate.number: [] for candidate in candidates}
    shuffle = random.Random(0)  # noqa: S311 - an order
    for _ in range(repeats):
        for candidate in shuffle.sample(candidates, len(candidates)):
            times[candidate.number].append(measured(search, candidate))
    return min(candidates, key=lambda of: statistics.median(times[of.number])), len(candidates)


def _fits(plant: Plant, candidate: Candidate) -> bool:
    return plant.free_bytes is None or candidate.config["cache"]["name"] == "none"


def _value(text: str) -> Any:
    return int(text) if text.isdecimal() else text


def one(name: str, budget_s: float, repeats: int) -> dict[str, Any]:
    """What came of one plant."""
    plant = PLANTS[name]
    if plant.free_bytes is not None:
        free = plant.free_bytes
        machine.free_memory_bytes = lambda *_: free
        machine.free_disk_bytes = lambda *_: free
    engine._PRELOADED.append("benchmarks.tune_plants")  # noqa: SLF001 - the server of forks gets the plant
    tune, job = job_of(plant, f"tune.budget_s={budget_s}")
    with tempfile.TemporaryDirectory() as folder:
        search = found = Search(job, tune, Windows(Path(folder, "windows"), []), lambda _: None)
        search.run()
        cost_s, window_s = search.windows.spent_s, search._window_s()  # noqa: SLF001 - of the same windows
        base = search.space.baseline
        winner = found.winner if found.end == FOUND else base
        best, size = best_of_grid(search, plant, repeats)
        times: dict[str, list[float]] = {"winner": [], "best": [], "baseline": []}
        pairs = {"winner": winner, "best": best, "baseline": base}
        shuffle = random.Random(1)  # noqa: S311 - an order
        for _ in range(ROUNDS):
            for label in shuffle.sample([*pairs], len(pairs)):
                times[label].append(measured(search, pairs[label]))
    of_best = statistics.median(b / w for b, w in zip(times["best"], times["winner"], strict=True))
    of_base = statistics.median(b / w for b, w in zip(times["baseline"], times["winner"], strict=True))
    noise = found.noise.median if found.noise is not None else None
    return {
        "plant": name,
        "end": found.end,
        "changes": winner.words if winner is not base else "-",
        "best": best.words if best is not base else "-",
        "of_best": of_best,
        "of_base": of_base,
        "low": found.gain.low if found.gain is not None and found.end == FOUND else None,
        "noise": noise,
        "cost_s": cost_s,
        "share": cost_s / (len(found.space) * 5 * window_s),
        "space": len(found.space),
        "grid": size,
    }


HEAD = (
    "plant", "end", "changes", "best of the grid", "speed over that best", "over the baseline", "its lower bound",
    "noise", "cost", "of the exhaustive",
)  # fmt: skip


def row(of: dict[str, Any]) -> str:
    """A row of the table."""
    low = "-" if of["low"] is None else f"{of['low']:.2f}"
    noise = "-" if of["noise"] is None else f"{of['noise']:.1%}"
    cells = [of["plant"], of["end"], of["changes"], of["best"], f"{of['of_best']:.2f}", f"{of['of_base']:.2f}"]
    cells += [low, noise, f"{of['cost_s']:.0f} s", f"{of['share']:.1%}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run all plants, each in a process of its own, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(PLANTS))
    parser.add_argument("--budget", type=float, default=90)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=sorted(PLANTS), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    if known.one:
        print(json.dumps(one(known.one, known.budget, known.repeats)))
        return
    found: list[dict[str, Any]] = []
    for name in known.only or PLANTS:
        command = [sys.executable, "-m", "benchmarks.tune", "--one", name]
        command += ["--budget", str(known.budget), "--repeats", str(known.repeats)]
        ran = subprocess.run(command, env={**os.environ, PLANT: name}, capture_output=True, text=True, check=False)
        if ran.returncode:
            print(f"{name}: {ran.stderr[-2000:]}", file=sys.stderr)
            continue
        found.append(json.loads(ran.stdout.splitlines()[-1]))
        print(row(found[-1]), flush=True)
        if known.output:  # a kill loses one plant
            how = f"python -m benchmarks.tune --budget {known.budget:g} --repeats {known.repeats}"
            known.output.write_text(f"`{how}` on {machine.cores()} cores\n\n{table(found)}\n")


def table(found: list[dict[str, Any]]) -> str:
    """The table of these plants, and how many of them ended well."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}", *map(row, found)]
    near, never = (sum(of[key] >= WITHIN for of in found) for key in ("of_best", "of_base"))
    ends = f"Within 3 % of the best of the grid: {near} of {len(found)} plants; not slower than the baseline: {never}."
    return "\n".join([*lines, "", ends])


if __name__ == "__main__":
    main()
