"""The exercise's pipelines, and what comes after them: whole runs and their waits for data, in turns.

python -m benchmarks.exercise --data-dir DIR [--parts real t4] [--turns N] [--output benchmarks/results/exercise.md]

Each turn runs all sides once, in random order, as processes of their own, over all photos for five epochs:

naive        `experiment=naive`
parallel     `experiment=parallel`
disk         `experiment=parallel cache=disk`, with a cache that another run has filled
features     `experiment=parallel cache.at=features`

`real` trains MobileNetV2 on this machine; Keras finds its ImageNet weights below KERAS_HOME. `t4` puts the emulated
accelerator of `experiment=t4_mobilenet_v2` in its place, whose steps take what they take on a T4; it has no base that
could make features. A run's time is that of its process, its wait that of all steps for their batches.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.processes import summary_of
from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.stages import STAGES
from etlrun.stages.model import Emulated
from etlrun.system.machine import cores

SIDES = {
    "naive": ("experiment=naive",),
    "parallel": ("experiment=parallel",),
    "disk": ("experiment=parallel", "cache=disk"),
    "features": ("experiment=parallel", "cache.at=features"),
}

Costs = tuple[float, float]
"""Seconds of a whole run, and those of them that its steps waited for data."""


def emulated(**changes: float) -> list[str]:
    """Overrides for the accelerator of the experiment `t4_mobilenet_v2`, or for one with `changes`."""
    model = resolve(Request(overrides=["experiment=t4_mobilenet_v2"]), STAGES).plan.spec.model
    assert isinstance(model, Emulated)
    values = {"step_ms": model.step_ms, "eval_step_ms": model.eval_step_ms, **changes}
    return ["model=emulated", *(f"model.{name}={value}" for name, value in values.items())]


def cost(words: Sequence[str]) -> Costs:
    """Of a run of `words`, as a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        summary = summary_of(words, Path(folder, "run"))
        whole_s = time.perf_counter() - began_s
    return whole_s, summary["fill_wait_s"] + summary["input_wait_s"]


def measured(part: str, data_dir: str, turns: int) -> Iterator[dict[str, list[Costs]]]:
    """The costs of each side of a part, by turn, after each turn."""
    model = emulated() if part == "t4" else []
    sides = {name: words for name, words in SIDES.items() if part == "real" or name != "features"}
    costs: dict[str, list[Costs]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as caches:
        common = [f"dataset.data_dir={data_dir}", f"cache.dir={caches}"]
        cost([*SIDES["disk"], *common, *emulated(step_ms=0, eval_step_ms=0), "trainer.epochs=1"])  # fills the cache
        for _turn in range(turns):
            for name in random.sample(list(sides), len(sides)):
                costs[name].append(cost([*sides[name], *common, *model]))
            yield costs


def table(costs: Mapping[str, Sequence[Costs]]) -> str:
    """Medians, and the medians of the ratios of the naive pipeline to each side, turn by turn."""
    lines = ["| pipeline | run s | naive / this | waited s | naive / this |", "|---|---|---|---|---|"]
    for name, of_turns in costs.items():
        cells = []
        for column in range(2):
            ratios = [naive[column] / own[column] for naive, own in zip(costs["naive"], of_turns, strict=True)]
            cells.append(f"{statistics.median(own[column] for own in of_turns):,.2f}")
            cells.append(f"{statistics.median(ratios):,.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and add the tables to a file where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--parts", nargs="+", choices=("real", "t4"), default=("real", "t4"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    before = known.output.read_text(encoding="utf-8") if known.output and known.output.exists() else ""
    for part in known.parts:
        for turn, costs in enumerate(measured(part, known.data_dir, known.turns), 1):
            command = f"`python -m benchmarks.exercise --parts {part} --turns {turn}`"
            text = f"{command} on {cores()} cores\n\n{table(costs)}"
            print(text, flush=True)
            if known.output:
                known.output.write_text(f"{before}{text}", encoding="utf-8")
        before += f"{text}\n"


if __name__ == "__main__":
    main()
