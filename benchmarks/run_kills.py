"""Trainings that are killed with SIGKILL at random moments and resumed, and whether they end the same.

python -m benchmarks.run_kills [--kills N] [--output FILE] [OVERRIDE...]

A run is first undisturbed. The same run is then killed again and again, each time resumed in a new folder, until it
ends by itself; and so on until there have been N kills. Its weights, its optimizer, and the loss, the metrics and the
digests of each epoch have to be those of the undisturbed run, to the bit. The time that the training waits for
checkpoints inside an epoch is from the events of the undisturbed run. The table is written anew whenever a training
ends, so what was found so far is kept when the program is cut short.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

BASE = (
    "dataset=sample",
    "cache=none",
    "transform.steps=[decode,random_flip,resize,scale_minus_one_one]",
    "trainer.epochs=3",
    "trainer.checkpoint_every_steps=20",
    "load.batch_size=16",
    "measure.digest=true",
)
KEYS = ("loss", "accuracy", "val_loss", "val_accuracy", "digest", "validation_digest")


def started(folder: Path, words: list[str]) -> subprocess.Popen[bytes]:
    """A run in a process group of its own."""
    command = [sys.executable, "-m", "etlrun", *words, f"hydra.run.dir={folder}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **quiet)  # type: ignore[call-overload, no-any-return]


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of a run."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


def measures(folder: Path) -> list[list[Any]]:
    """What a training has to reproduce of each epoch."""
    return [[epoch.get(key) for key in KEYS] for epoch in summary_of(folder)["epochs"]]


def variables(folder: Path) -> dict[str, Any]:
    """Weights and optimizer variables of `model.keras`, by their places in the file."""
    from io import BytesIO
    from zipfile import ZipFile

    found: dict[str, Any] = {}
    with ZipFile(folder / "model.keras") as model, h5py.File(BytesIO(model.read("model.weights.h5"))) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def wrong_in(folder: Path, expected: Path) -> str:
    """What differs from the undisturbed run; empty if nothing does."""
    if summary_of(folder)["status"] != "completed":
        return f"{summary_of(folder)['status']}: {summary_of(folder).get('error')}"
    if measures(folder) != measures(expected):
        return "losses, metrics or digests"
    ours, theirs = variables(folder), variables(expected)
    same = ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    return "" if same else "weights"


def killed_at(folder: Path) -> str:
    """Where a killed run had been: before the training, inside an epoch, or at its end."""
    events = folder / "events.jsonl"
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()] if events.exists() else []
    return "before the training" if "epoch_began" not in kinds else "in the training"


def main() -> None:
    """Kill, resume and compare."""
    given = _arguments()
    words, where = [*BASE, *given.overrides], Path(tempfile.mkdtemp())
    places: list[str] = []
    chance = random.Random(0)  # noqa: S311
    whole, began = where / "undisturbed", time.perf_counter()
    if started(whole, words).wait():
        raise SystemExit(f"the undisturbed run failed: {summary_of(whole).get('error')}")
    longest_s, ended, wrong, resumed_inside = time.perf_counter() - began, 0, [], 0
    number, left = 0, None
    while len(places) < given.kills or left is not None:
        number += 1
        folder = where / f"run{number}"
        process = started(folder, words if left is None else [f"trainer.resume={left}"])
        try:
            process.wait(chance.uniform(0.3, 1.0) * longest_s if len(places) < given.kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            places.append(killed_at(folder) if folder.exists() else "before the training")
            if folder.exists() and any((folder / "checkpoints").glob("epoch_*")):
                left = folder
            continue
        ended, difference = ended + 1, wrong_in(folder, whole)
        resumed_inside += sum(epoch.get("resumed_steps", 0) > 0 for epoch in summary_of(folder)["epochs"])
        wrong += [f"run {number}: {difference}"] if difference else []
        left = None
        rows = [
            ("kills", len(places)),
            *((f"{place}", places.count(place)) for place in ("before the training", "in the training")),
            ("trainings that ended", ended),
            ("epochs that were resumed inside, of these trainings", resumed_inside),
            ("trainings that ended otherwise than the undisturbed one", len(wrong)),
            *waits(whole),
        ]
        report(rows, wrong, given.output)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--output", type=Path)
    parser.add_argument("overrides", nargs="*")
    return parser.parse_args()


def report(rows: list[tuple[str, object]], wrong: list[str], output: Path | None) -> None:
    """Print the table of what was found so far, and write it to `output`."""
    text = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    text = f"`python -m benchmarks.run_kills {' '.join(sys.argv[1:])}`\n\n{text}\n"
    print(text, *wrong, sep="\n", flush=True)
    if output:
        output.write_text(text, encoding="utf-8")


def waits(whole: Path) -> list[tuple[str, object]]:
    """How long the training of the undisturbed run waited for its checkpoints."""
    events = [json.loads(line) for line in (whole / "events.jsonl").read_text().splitlines()]
    held = [event["held_up_s"] for event in events if event["event"] == "checkpoint" and "held_up_s" in event]
    trained_s = sum(epoch["wall_s"] for epoch in summary_of(whole)["epochs"])
    steps = sum(epoch["steps"] for epoch in summary_of(whole)["epochs"])
    return [
        ("steps", steps),
        ("checkpoints inside epochs", len(held)),
        ("wait of the training for one, median", f"{1000 * statistics.median(held):.0f} ms"),
        ("share of the training", f"{100 * sum(held) / trained_s:.2f} %"),
    ]


if __name__ == "__main__":
    main()
