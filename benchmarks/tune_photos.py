"""What `etlrun tune` finds on photos from the exercise's naive pipeline, beside a person, AUTOTUNE and Optuna.

    python -m benchmarks.tune_photos --data-dir DIR [--budget 120] [--output benchmarks/results/tune_photos.md]

All start from `experiment=naive` with an emulated accelerator of 5 ms a step. Optuna (by its default, TPE) searches
the same space by the same windows, for as many seconds as the search took. Then all run in turns, seven rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import optuna

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.sweep.tune.search import Search
from etlrun.sweep.tune.space import Candidate, Windows, autotuned
from etlrun.system import machine

ROUNDS = 7
BY_HAND = {"cache.name": "memory", "transform.num_parallel_calls": "autotune", "load.prefetch": "autotune"}
"""The second pipeline of the exercise."""


def by_optuna(search: Search, budget_s: float) -> Candidate:
    """The best of Optuna's trials, within a budget."""
    optuna.logging.disable_default_handler()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    space = search.space
    best: tuple[float, Candidate] = (float("inf"), space.baseline)
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < budget_s:
        trial = study.ask()
        changes: dict[str, Any] = dict(space.caches[trial.suggest_int("cache", 0, len(space.caches) - 1)])
        for key, values in space.options.items():
            chosen = trial.suggest_categorical(key, ["as it is", *map(str, values)])
            if chosen != "as it is":
                changes[key] = next(value for value in values if str(value) == chosen)
        candidate = space.candidate(changes)
        time_s = search._measure(candidate) if isinstance(candidate, Candidate) else None  # noqa: SLF001
        if time_s is None or not isinstance(candidate, Candidate):
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)  # which TPE takes for the worst
            continue
        study.tell(trial, time_s)
        best = min(best, (time_s, candidate), key=lambda one: one[0])
    return best[1]


def main() -> None:
    """Search, compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--budget", type=float, default=120)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    words = ["experiment=naive", "model=emulated", "model.step_ms=5", f"dataset.data_dir={known.data_dir}"]
    tune, job = grid.tuned(Request(overrides=[*words, f"tune.budget_s={known.budget}"]), STAGES)
    with tempfile.TemporaryDirectory() as folder:
        search = found = Search(job, tune, Windows(Path(folder, "windows"), []), print)
        search.run()
        cost_s = found.windows.spent_s
        contenders = {"as it is (naive)": search.space.baseline, "etlrun tune": found.winner}
        for name, changes in {"by hand": BY_HAND, "all left to AUTOTUNE": autotuned(search.space)}.items():
            candidate = search.space.candidate(changes)
            assert isinstance(candidate, Candidate), candidate
            contenders[name] = candidate
        contenders["Optuna"] = by_optuna(search, cost_s)
        times: dict[str, list[float]] = {name: [] for name in contenders}
        shuffle = random.Random(0)  # noqa: S311 - an order
        for _ in range(ROUNDS):
            for name in shuffle.sample([*contenders], len(contenders)):
                times[name].append(search._measure(contenders[name]) or float("nan"))  # noqa: SLF001
            if known.output:  # a kill loses one round
                how = f"python -m benchmarks.tune_photos --data-dir DIR --budget {known.budget:g}"
                table = _table(contenders, times, cost_s)
                known.output.write_text(f"`{how}` on {machine.cores()} cores\n\n{table}\n")
    print(_table(contenders, times, cost_s))


def _table(contenders: dict[str, Candidate], times: dict[str, list[float]], cost_s: float) -> str:
    first = next(iter(times.values()))
    lines = ["| config | changes | seconds of all epochs | speed | cost of the search |", "|---|---|---|---|---|"]
    for name, of in times.items():
        gain = statistics.median(one / other for one, other in zip(first, of, strict=True))
        cost = f"{cost_s:.0f} s" if name in ("etlrun tune", "Optuna") else "-"
        cells = [name, contenders[name].words, f"{statistics.median(of):.2f}", f"{gain:.2f}", cost]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Medians of {len(first)} rounds."])


if __name__ == "__main__":
    main()
