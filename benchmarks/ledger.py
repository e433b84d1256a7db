"""A ledger of 10,000 jobs: how long it takes to open it, to see what is left, and to report, and how much memory.

python -m benchmarks.ledger [--jobs 10000] [--output benchmarks/results/ledger.md]

The configs are composed as for any sweep. One run is real; its folder stands for all the others, with other rates, so
that the sweep is one that has ended. Then `etlrun -m sweep.resume=FOLDER` finds nothing left, and writes its reports.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from etlrun.config import grid
from etlrun.config.request import Request
from etlrun.record.record import Record
from etlrun.stages import STAGES
from etlrun.sweep.engine import new_ledger, started

WORDS = ("model=emulated", "model.step_ms=2", "trainer.epochs=4", "dataset.split='train[:256]'", "cache=none")


def real_run(folder: Path) -> dict[str, Any]:
    """The summary of one real run."""
    request = Request(overrides=list(WORDS))
    job = grid.of(request, STAGES).jobs[0]
    Record.create(folder, job.config, job.overrides)
    started(folder).join()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def filled(folder: Path, jobs: int, summary: dict[str, Any]) -> tuple[float, float]:
    """Make a sweep whose jobs have all ended; the seconds of composing it, and of writing its ledger."""
    side = round(jobs**0.5)
    words = [*WORDS, f"load.batch_size=range(1,{side + 1})", f"load.shuffle_buffer=range(1,{side + 1})"]
    request = Request(overrides=[*words, f"hydra.sweep.dir={folder}"], multirun=True)
    began_s = time.perf_counter()
    found = grid.of(request, STAGES)
    composed_s = time.perf_counter() - began_s
    ledger = new_ledger(request, found)
    written_s = time.perf_counter() - began_s - composed_s
    rates = random.Random(0)  # noqa: S311 - figures, no secret
    for key in ledger.runs:
        factor = rates.uniform(0.5, 2)
        epochs = [{**epoch, "wall_s": epoch["wall_s"] * factor} for epoch in summary["epochs"]]
        own = {**summary, "overrides": list(ledger.configs[key.config].overrides), "epochs": epochs}
        path = ledger.folder_of(key)
        path.mkdir()
        (path / "summary.json").write_text(json.dumps(own, indent=2))
    return composed_s, written_s


def parsed_s(folder: Path) -> float:
    """The seconds that a loop takes which parses every summary and does nothing else: how fast the machine is now."""
    began_s = time.perf_counter()
    for path in folder.glob("*/summary.json"):
        json.loads(path.read_text())
    return time.perf_counter() - began_s


def main() -> None:
    """Make the ledger, resume it, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "sweep"
        composed_s, written_s = filled(folder, arguments.jobs, real_run(Path(scratch) / "run"))
        lines = ["| turn | seconds | peak memory | a loop that parses the summaries, s |", "| --- | --- | --- | --- |"]
        for turn in range(4):
            command = [sys.executable, "-m", "etlrun", "-m", f"sweep.resume={folder}"]
            began_s = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, used = wait(process)
            assert status == 0
            took_s = time.perf_counter() - began_s
            memory = f"{used.ru_maxrss / 1000:.0f} MB"
            lines.append(f"| {turn + 1} | {took_s:.1f} | {memory} | {parsed_s(folder):.1f} |")
        sizes = {path.name: path.stat().st_size / 1e6 for path in sorted(folder.iterdir()) if path.is_file()}
    files = ", ".join(f"{name} {size:.1f} MB" for name, size in sizes.items() if size > 0.1)
    text = (
        f"{arguments.jobs} jobs. To compose and check them all took {composed_s:.1f} s once, to write the ledger "
        f"{written_s:.1f} s. To open it, to see that nothing is left and to write "
        f"all reports:\n\n" + "\n".join(lines) + f"\n\nFiles: {files}.\n"
    )
    print(text)
    if arguments.output:
        arguments.output.write_text(f"`python -m benchmarks.ledger`\n\n{text}", "utf-8")


def wait(process: subprocess.Popen[bytes]) -> tuple[int, int, resource.struct_rusage]:
    """Its pid, its exit status, and what it has used."""
    import os

    pid, status, used = os.wait4(process.pid, 0)
    return pid, os.waitstatus_to_exitcode(status), used


if __name__ == "__main__":
    main()
