"""What a sweep of 24 jobs costs over the work of its jobs, beside the same jobs as commands of their own.

python -m benchmarks.sweep_cost [--turns 3] [--output benchmarks/results/sweep_cost.md]

A job's own work is the wall_s of its summary: from the first line of its process to its last report, imports included
where it has to do them. All else is the sweep's: composing, starting processes, the ledger, the reports.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = (
    "model=emulated",
    "trainer.epochs=2",
    "extract.cycle_length=1,4",
    "transform.num_parallel_calls=1,autotune",
    "cache=none,memory,disk",
    "load.prefetch=0,autotune",
)


def timed(words: list[str]) -> float:
    """The seconds of a whole command."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "etlrun", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def own_s(folder: Path) -> float:
    """The seconds that a job has worked."""
    return float(json.loads((folder / "summary.json").read_text())["wall_s"])


def main() -> None:
    """Time sweeps and single commands in turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows, costs, singles = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(arguments.turns):
            folder, caches = Path(scratch) / f"sweep_{turn}", f"cache.dir={scratch}/caches_{turn}"
            whole_s = timed(["-m", *WORDS, caches, f"hydra.sweep.dir={folder}"])
            jobs_s = [own_s(path.parent) for path in folder.glob("*/summary.json")]
            costs.append((whole_s - sum(jobs_s)) / len(jobs_s))
            single = Path(scratch) / f"single_{turn}"
            words = [word.split(",")[0] for word in WORDS]
            singles.append(timed([*words, caches, f"hydra.run.dir={single}"]) - own_s(single))
            rows.append(
                f"| {turn + 1} | {len(jobs_s)} | {whole_s:.1f} | {sum(jobs_s):.1f} | {costs[-1]:.2f} | "
                f"{singles[-1]:.2f} | {singles[-1] + own_s(single):.2f} |"
            )
            print(rows[-1], flush=True)
    text = (
        f"A sweep costs {statistics.median(costs):.2f} s a job (median) over its jobs' own work.\n\n"
        "| turn | jobs | sweep s | jobs' own s | s a job over it | a single command over its own | a single command |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )
    print(text)
    if arguments.output:
        head = "`python -m benchmarks.sweep_cost`\n\n"
        arguments.output.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
