"""What answers without a run costs: CPU seconds (user and system) of whole processes, before and after a commit.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.commands --before /tmp/before [--turns 9] [--output benchmarks/results/commands.md]

The package in `--before`, a checkout of an older commit, against the one of this working tree, in turns. A turn that is
thrown away comes first: it has the files read once, and Python write its bytecode, into a folder of each version.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = "etlrun plan cache=disk load.pre"
OWN = "own"
PAIRS = """\
import itertools, random, time
from etlrun.config.request import Request, composer
files = composer(Request(overrides=[]))
groups = [group for group in files.groups() if group != "experiment"]
words = [[f"{group}={option}" for option in files.options(group)] for group in groups]
words.append(["load.batch_size=7", "trainer.epochs=2", "+model.x=1", "cache.at=source", "load={prefetch: 3}"])
pairs = [pair for one, other in itertools.combinations(words, 2) for pair in itertools.product(one, other)]
files.values([])
chosen = random.Random(0).sample(pairs, 1000)
began = time.process_time()
for pair in chosen:
    files.values(pair)
print(time.process_time() - began)
"""
"""A program that composes pairs of options, and of options and values, and prints how many CPU seconds that took."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "`etlrun --help`": ("--help",),
    "completion of a key": ("-sc", "query=bash"),
    "`etlrun plan`": ("plan",),
    "`etlrun plan experiment=cats_vs_dogs`": ("plan", "experiment=cats_vs_dogs"),
    "`etlrun diff experiment=naive experiment=parallel`": ("diff", "experiment=naive", "experiment=parallel"),
    "`etlrun check --config-dir DIR`, of one experiment": ("check", "--config-dir", OWN),
    "`etlrun check`, of the project": ("check",),
    "1,000 pairs of options and values, composed": ("-c", PAIRS),
}


def cpu_s(package: Path, words: Sequence[str], scratch: Path) -> float:
    """CPU seconds of a command by `package`, in a process of its own; of a program, those that it prints."""
    bytecode = scratch / f"bytecode{package.resolve().as_posix().replace('/', '-')}"
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONPYCACHEPREFIX": str(bytecode), "COMP_LINE": LINE}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    is_program = words[0] == "-c"
    command = [sys.executable, "-P", *([] if is_program else ["-m", "etlrun"]), *words]
    done = subprocess.run(command, check=False, cwd=scratch, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{package}: etlrun {' '.join(words)}\n{done.stderr}")
    if is_program:
        return float(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="checkout of the older commit")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    sides = {"before": known.before, "after": ROOT}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / OWN / "experiment").mkdir(parents=True)
        shutil.copy(ROOT / "conf" / "experiment" / "naive.yaml", scratch / OWN / "experiment" / "mine.yaml")
        for _turn in range(known.turns + 1):
            for name, words in COMMANDS.items():
                found[name].append({side: cpu_s(package, words, scratch) for side, package in sides.items()})
    lines = [f"CPU seconds of whole processes, medians of {known.turns} turns.", ""]
    lines += ["| command | before | after | ratio, median of the pairs |", "| --- | --- | --- | --- |"]
    for name, (_thrown_away, *turns) in found.items():
        before, after = (statistics.median(turn[side] for turn in turns) for side in sides)
        ratio = statistics.median(turn["after"] / turn["before"] for turn in turns)
        lines.append(f"| {name} | {before:.2f} | {after:.2f} | {ratio:.2f} |")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if known.output is not None:
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
