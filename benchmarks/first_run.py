"""What a first run costs: `python -m etlrun` from a fresh clone, the whole process, and where its seconds go.

    python -m benchmarks.first_run --before COMMIT [--turns 3] [--output benchmarks/results/first_run.md]

Each run is that of a new clone of this repository, without compiled modules of etlrun, with an empty folder of data, so
that it generates the sample: the commit `--before` against HEAD, in random order in each turn. CPU seconds are those
of the process and of all that it has started. A run of each is thrown away before, so that the packages below it are
read once: of the same decoder, with which both must learn the same to the bit. The runs of a commit must do so in all
turns. A pair of runs takes about a minute on two quiet cores.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.start import MEASURES, ROOT
from etlrun.system.machine import cores

Parts = dict[str, float]
"""Seconds of the parts of a run, which add up to all of it; and its CPU seconds."""

WALL, CPU = "all of it", "CPU seconds"
_GIT = ["git"]
_SAME = ["transform.decode.library=tensorflow"]
"""With which all versions read the same pixels; by default a newer one resizes with OpenCV."""


def ran(commit: str, scratch: Path, *words: str) -> tuple[Parts, list[Any]]:
    """Return the parts of a run from a new clone of `commit`, and what it came to in each epoch."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        clone = Path(folder, "clone")
        for git in (
            ["clone", "--shared", "--no-checkout", str(ROOT), str(clone)],
            ["-C", str(clone), "checkout", commit],
        ):
            subprocess.run([*_GIT, *git], check=True, capture_output=True)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command, log = [sys.executable, "-m", "etlrun", f"hydra.run.dir={folder}/run", *words], Path(folder, "log")
        began_s = time.perf_counter()
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=clone, env={**kept, "TFDS_DATA_DIR": f"{folder}/data"}, stdout=out, stderr=out
            )
            _, status, usage = os.wait4(process.pid, 0)
        wall_s, process.returncode = time.perf_counter() - began_s, os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{commit}:\n{log.read_text(errors='replace')}")
        run = Path(folder, "run")
        epochs = json.loads((run / "summary.json").read_text(encoding="utf-8"))["epochs"]
        events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
        parts = {**parts_of(events, epochs, wall_s), CPU: usage.ru_utime + usage.ru_stime}
        return parts, [[epoch[name] for name in MEASURES] for epoch in epochs]


def parts_of(events: list[Mapping[str, Any]], epochs: list[Mapping[str, Any]], wall_s: float) -> Parts:
    """Return the parts of a run of `wall_s` seconds, from what it has recorded."""
    at = {name: [event["elapsed_s"] for event in events if event["event"] == name] for name in {*_of(events)}}
    (planned,), (started,), (dataset,), (ended,) = (at[name] for name in ("planned", "started", "dataset", "ended"))
    saved_s = sum(after - before for before, after in zip(at["epoch"], at["checkpoint"], strict=True))
    startup_s, steps_s = (sum(epoch[name] for epoch in epochs) for name in ("startup_s", "wall_s"))
    began_s = at["epoch_began"][0]
    validation_s = at["checkpoint"][-1] - began_s - steps_s - saved_s
    return {
        "Python, the plan, and the end of the process": wall_s - (ended - planned),
        "imports of TensorFlow, Keras and TFDS": started - planned,
        "sample, model and pipelines: until the first epoch": began_s - started,
        "of it until the data are there": dataset - started,
        "the step is traced and optimized, and taken once": startup_s,
        "other steps of all epochs": steps_s - startup_s,
        "validations, of which the first is traced": validation_s,
        "checkpoints": saved_s,
        "the model, steps on ready batches, report and page": ended - at["checkpoint"][-1],
        WALL: wall_s,
    }


def _of(events: list[Mapping[str, Any]]) -> Iterator[str]:
    return (event["event"] for event in events)


def measured(commits: Mapping[str, str], turns: int) -> Iterator[list[dict[str, Parts]]]:
    """Yield the runs of all turns so far; end the process where two came to other losses."""
    found: list[dict[str, Parts]] = []
    with tempfile.TemporaryDirectory() as folder:
        _same([ran(commit, Path(folder), *_SAME)[1] for commit in commits.values()])
        learned: dict[str, list[Any]] = {which: [] for which in commits}
        for _ in range(turns):
            turn = {}
            for which in random.sample(list(commits), len(commits)):
                turn[which], epochs = ran(commits[which], Path(folder))
                learned[which].append(epochs)
                _same(learned[which])
            found.append(turn)
            yield found


def _same(learned: list[Any]) -> None:
    if any(epochs != learned[0] for epochs in learned):
        raise SystemExit(f"runs came to other losses: {learned}")


def table(turns: list[dict[str, Parts]]) -> str:
    """Return the medians of all parts, and the ratio of after to before in each turn."""
    lines = ["| part | before s | after s | after / before, median | lowest | highest |", "|---|---|---|---|---|---|"]
    for part in turns[0]["before"]:
        pairs = [(turn["before"][part], turn["after"][part]) for turn in turns]
        before_s, after_s = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [after / before for before, after in pairs]
        cells = [f"{before_s:.2f}", f"{after_s:.2f}"]
        cells += [f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="an older commit")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    for turn, turns in enumerate(measured({"before": known.before, "after": "HEAD"}, known.turns), 1):
        text = (
            f"`python -m benchmarks.first_run --before {known.before} --turns {turn}` on {cores()} cores\n\n"
            f"Losses and accuracies are the same to the bit, with the same decoder.\n\n{table(turns)}"
        )
        print(text, flush=True)
        if known.output:
            known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
