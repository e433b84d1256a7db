"""Sweeps that are killed with SIGKILL at random moments, and what going on makes of what they leave.

python -m benchmarks.sweep_kills [--kills 30] [--output benchmarks/results/sweep_kills.md]

Each turn starts a sweep, kills its process (and no other) at a moment of its whole life, goes on with it, and looks at
the results: every job once, none lost, none twice; those that had completed untouched; no process of the killed sweep
left. Where the kill came before there was a ledger, the sweep is started anew, as a person would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import psutil

WORDS = (
    "model=emulated",
    "model.step_ms=2",
    "model.eval_step_ms=1",
    "trainer.epochs=2",
    "dataset.split='train[:128]'",
    "dataset.eval_split=null",
    "load.shuffle_buffer=16",
    "cache=none",
    "load.prefetch=0,1",
)
REPEATS = 2


def started(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own."""
    words = more or (*WORDS, f"sweep.repeats={REPEATS}", f"hydra.sweep.dir={folder}")
    return subprocess.Popen(
        [sys.executable, "-m", "etlrun", "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def completed(folder: Path) -> dict[str, str]:
    """The runs that have completed, by their folders: all that they have written of their course."""
    found = {}
    for path in sorted(folder.glob("*/summary.json")):
        if json.loads(path.read_text())["status"] == "completed":
            found[path.parent.name] = (path.parent / "events.jsonl").read_text()
    return found


def at_work(folder: Path) -> list[int]:
    """The processes that have a file of the sweep open."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in file.path for file in process.open_files()):
                found.append(process.pid)
    return found


def turn(after_s: float, folder: Path) -> tuple[str, list[str]] | None:
    """Kill a sweep after so many seconds and resume it; when the kill came, and what is wrong.

    None where it had ended before.
    """
    process = started(folder)
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        return None
    has_ledger = (folder / "sweep.json").exists()
    kept = completed(folder)
    when = f"with {len(kept)} done" if has_ledger else "before the ledger"
    gone_s = time.monotonic() + 5
    while at_work(folder) and time.monotonic() < gone_s:
        time.sleep(0.05)
    wrong = [f"process {pid} is left" for pid in at_work(folder)]
    status = started(folder, *([f"sweep.resume={folder}"] if has_ledger else [])).wait()
    names = [run["name"] for run in json.loads((folder / "results.json").read_text())["runs"]]
    now = completed(folder)
    wrong += [f"exit status {status}"] if status else []
    wrong += [] if names == sorted(names) == ["0", "0.1", "1", "1.1"] else [f"results of {names}"]
    wrong += [] if sorted(now) == ["0", "0.1", "1", "1.1"] else [f"completed {sorted(now)}"]
    wrong += [f"run {name} was made again" for name, events in kept.items() if now.get(name) != events]
    wrong += [f"{name} ended twice" for name, events in now.items() if events.count('"event": "ended"') != 1]
    return when, wrong


def main() -> None:
    """Kill, go on, count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    moments, counts, faults = random.Random(0), {}, []  # type: ignore[var-annotated]  # noqa: S311
    with tempfile.TemporaryDirectory() as scratch:
        began_s = time.perf_counter()
        started(Path(scratch) / "whole").wait()
        whole_s = time.perf_counter() - began_s
        for number in count():
            after_s = moments.uniform(0.3, whole_s)
            came = turn(after_s, Path(scratch) / str(number))
            if came is None:
                continue
            when, wrong = came
            right, all_of = counts.get(when, (0, 0))
            counts[when] = right + (not wrong), all_of + 1
            faults += wrong
            print(number, f"{after_s:.1f} s", when, wrong or "right", flush=True)
            if sum(all_of for _, all_of in counts.values()) == arguments.kills:
                break
    rows = "\n".join(f"| {when} | {all_of} | {right} |" for when, (right, all_of) in sorted(counts.items()))
    right = sum(right for right, _ in counts.values())
    text = (
        f"{right} of {arguments.kills} right. Sweeps of 4 jobs that take {whole_s:.0f} s undisturbed, killed at random "
        f"moments of that time.\n\n| killed | sweeps | right |\n| --- | --- | --- |\n{rows}\n"
    )
    print(text, faults)
    if arguments.output:
        head = "`python -m benchmarks.sweep_kills`\n\n"
        arguments.output.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
