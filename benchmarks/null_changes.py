"""Twenty changes that are none: what an agent keeps by the best value so far, and what by etlrun's decision.

python -m benchmarks.null_changes [--trainings FOLDER] [--simulations 200] [--output benchmarks/results/null_changes.md]

Trains a small table with 300 seeds in one sweep, or reads these trainings from the folder of an earlier one. Their
errors of validation and their speeds are then drawn anew, for agents that change the seed twenty times, one change
after the other, and keep what is better: than the best so far by one run of each, or by the recommendation of a sweep
that compares the change with the best so far. Changes that are better by a known amount show what this costs.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from etlrun.measure.gains import gains, itself, noise_of
from etlrun.record.outcome import Outcome
from etlrun.results.decision import comparisons_of, decide, qualities, ranked, tied_by
from etlrun.results.report import collect
from etlrun.results.results import BASELINE, ConfigResult, Rounds, Run

TRAININGS, ROWS, CHANGES = 300, 2_000, 20
MEASURE = "val_mae"
SHIFTS = (1.0, 2.0, 3.0)
"""Amounts, in standard deviations of trainings that differ in their seeds, by which a change is better."""
CANDIDATE = 1


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What an agent keeps.

    Attributes:
        name: What it is called in the table.
        repeats: Rounds of each sweep; 1 for a single run without a sweep.
        comparisons: As in `sweep.comparisons`.
        at_once: Whether all changes are configs of one sweep.
    """

    name: str
    repeats: int
    comparisons: int = 1
    at_once: bool = False

    @property
    def runs(self) -> int:
        """Runs of all changes, with those of the baseline."""
        if self.repeats == 1:
            return CHANGES + 1
        return self.repeats * (CHANGES + 2 if self.at_once else 3 * CHANGES)


RULES = (
    Rule(name="the best value so far, one run of each", repeats=1),
    *(
        rule
        for repeats in (5, 10)
        for rule in (
            Rule(name=f"a sweep for each change, repeats={repeats}", repeats=repeats),
            Rule(name=f"the same with comparisons={CHANGES}", repeats=repeats, comparisons=CHANGES),
            Rule(name=f"one sweep of all changes, repeats={repeats}", repeats=repeats, at_once=True),
        )
    ),
)


def train(folder: Path) -> None:
    """Train the table with all seeds, as one sweep in `folder`."""
    random, table = np.random.default_rng(0), folder.parent / f"{folder.name}.csv"
    inputs = random.normal(size=(ROWS, 6))
    targets = (
        inputs[:, 0] - 2 * inputs[:, 1] * (inputs[:, 2] > 0) + np.sin(3 * inputs[:, 3]) + random.normal(0, 1, ROWS)
    )
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([[*"abcdef", "y"], *np.round(np.column_stack([inputs, targets]), 4).tolist()])
    words = ["experiment=table", f"dataset.files={table}", "dataset.target={y: number}", "trainer.epochs=8"]
    seeds = f"trainer.seed={','.join(map(str, range(TRAININGS)))}"
    command = [sys.executable, "-m", "etlrun", "-m", *words, seeds, f"hydra.sweep.dir={folder}"]
    subprocess.run(command, check=True)


def outcomes(folder: Path) -> list[Outcome]:
    """The outcomes of all trainings in the folder of a sweep."""
    results = collect(folder)
    assert results is not None
    return [run.result for run in results.runs if run.outcome and run.outcome.status == "completed"]


def result_of(number: int, runs: Sequence[Run], figures: Mapping[str, Any]) -> ConfigResult:
    """A config of a sweep with these runs."""
    of = runs[0].result
    rate = statistics.median(run.result.examples_per_s or 0.0 for run in runs)
    known: dict[str, Any] = {
        "overrides": (f"trainer.seed={number}",), "own": (f"trainer.seed={number}",), "swept": {},
        "status": "completed", "runs": tuple(run.name for run in runs), "examples_per_s": rate,
        "overall_examples_per_s": rate, "state": of.state,
        "first_examples_per_s": None, "fill_s": None, "au": None, "max_gain": None, "bound_by": "", "wall_s": None,
        "peak_rss_bytes": of.peak_rss_bytes, "cores_used": of.cores_used, "data": "", "records": {}, "fingerprint": "",
        "error": "",
    }  # fmt: skip
    return ConfigResult(**{"number": number, **known, **figures})


def recommended(drawn: Mapping[int, Sequence[Outcome]], comparisons: int) -> int | None:
    """The config that a sweep recommends, of runs by config: those of the baseline are pairs."""
    how = Rounds(comparisons=comparisons_of(len(drawn) - 1, comparisons))
    completed = {
        number: [Run(f"{number}.{turn}", number, turn, outcome) for turn, outcome in enumerate(of)]
        for number, of in drawn.items()
    }
    rates = {number: [run.result.examples_per_s or 1.0 for run in runs] for number, runs in completed.items()}
    pairs = [*zip(rates[BASELINE][::2], rates[BASELINE][1::2], strict=True)]
    base = {turn: float(np.sqrt(one * other)) for turn, (one, other) in enumerate(pairs)}
    others = {number: dict(enumerate(of)) for number, of in rates.items() if number != BASELINE}
    found = gains(others, base, noise_of(pairs), comparisons=how.comparisons) | {BASELINE: itself(base)}
    quality = qualities(completed, how)
    configs = [
        result_of(number, runs, {"gain": found[number], "quality": quality[number]})
        for number, runs in completed.items()
    ]
    tied = tied_by(completed, MEASURE, how)
    return decide(ranked(configs, MEASURE), tied, lambda _: None, by=MEASURE, varied=how.varied).recommended


def better(outcome: Outcome, amount: float) -> Outcome:
    """The same with a smaller error."""
    return replace(outcome, measures={**outcome.measures, MEASURE: outcome.measures[MEASURE] - amount})


Draw = Callable[[int], list[Outcome]]


def kept(rule: Rule, draw: Draw, shift: float = 0.0, changes: int = CHANGES) -> tuple[list[int], list[Outcome]]:
    """The changes that an agent keeps, of which the first is better by `shift`, and the others are none.

    With the runs of what it keeps at the end, by which it reports.

    The seeds of the baseline are the same in all sweeps, so that its runs are, too.
    """
    best, found = draw(2 * rule.repeats), list[int]()
    count = CHANGES if rule.at_once else changes
    tried = [[better(of, shift * (change == 0)) for of in draw(rule.repeats)] for change in range(count)]
    if rule.at_once:
        number = recommended({BASELINE: best, **dict(enumerate(tried, CANDIDATE))}, 1)
        return ([number - CANDIDATE], tried[number - CANDIDATE]) if number else ([], best)
    for change, outcomes in enumerate(tried):
        if rule.repeats == 1:
            if outcomes[0].measures[MEASURE] < best[0].measures[MEASURE]:
                best, found = outcomes, [*found, change]
        elif recommended({BASELINE: best, CANDIDATE: outcomes}, rule.comparisons):
            best, found = [*outcomes, *draw(rule.repeats)], [*found, change]
    return found, best


def line(rule: Rule, pool: Sequence[Outcome], simulations: int) -> str:
    """The row of a rule."""
    random, spread = np.random.default_rng(1), statistics.stdev(of.measures[MEASURE] for of in pool)

    def draw(count: int) -> list[Outcome]:
        return [pool[int(place)] for place in random.integers(len(pool), size=count)]

    ends = [kept(rule, draw) for _ in range(simulations)]
    nulls, mean = [len(found) for found, _ in ends], statistics.fmean(of.measures[MEASURE] for of in pool)
    reported = (statistics.fmean(of.measures[MEASURE] for of in best[: rule.repeats]) for _, best in ends)
    won = (mean - statistics.fmean(reported)) / spread
    none = sum(not count for count in nulls) / simulations
    cells = [rule.name, f"{rule.runs}", f"{statistics.fmean(nulls):.2f}", f"{none:.1%}", f"{won:.2f} sd"]
    for shift in SHIFTS:
        power = statistics.fmean(0 in kept(rule, draw, shift * spread, 1)[0] for _ in range(simulations))
        cells.append(f"{power:.0%}")
    return f"| {' | '.join(cells)} |"


def _head(errors: Sequence[float]) -> list[str]:
    spread, smallest = statistics.stdev(errors), min(errors)
    of = f"{len(errors)} trainings that differ in their seeds: validation MAE {statistics.fmean(errors):.4f}"
    columns = [
        f"an agent keeps, of {CHANGES} changes that are none",
        "runs",
        "changes kept",
        "none in",
        "reported gain",
    ]
    columns += [f"one better by {shift:g} sd is kept in" for shift in SHIFTS]
    return [
        f"{of}, standard deviation (sd) {spread:.4f}, smallest {smallest:.4f}.",
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
    ]


def main() -> None:
    """Train or read, simulate, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=Path)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.trainings or Path(scratch) / "trainings"
        if not folder.exists():
            train(folder)
        pool = outcomes(folder)
    errors = [of.measures[MEASURE] for of in pool]
    lines = [
        f"`python -m benchmarks.null_changes --simulations {arguments.simulations}`",
        "",
        *_head(errors),
    ]
    for rule in RULES:
        lines.append(line(rule, pool, arguments.simulations))
        print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
