"""What grows with its work: CPU seconds (user and system) of whole processes at several sizes.

    python -m benchmarks.growth [--only "cache ls" epochs …] [--output benchmarks/results/growth.md]

Caches are copies of a cache of photos, a run has epochs of five steps on an emulated accelerator, a table 200 rows of
numbers, and the experiments of a folder two values each; of those one has another value than in the commit before. The
runs that are listed are copies of one of three epochs. Each file was just written, so that no disk is waited for.

`each, first` is what one more took between the two smallest sizes, `each, last` between the two largest ones: what is
linear has a ratio of 1. Plans are first plans, which convert the table and count its values.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.processes import summary_of
from etlrun.system.machine import cores

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = ("model=emulated", "model.step_ms=0", "dataset.split='train[:160]'", "dataset.eval_split='train[160:192]'")
EXPERIMENT = """\
# @package _global_
defaults:
  - override /dataset: cats_vs_dogs
  - override /extract: interleave
  - override /cache: none
  - override /load: shuffled
  - _self_

load:
  batch_size: 16
trainer:
  seed: {seed}
"""
READ = """
from pathlib import Path
from etlrun.record.summary import read_summary
assert all(read_summary(folder) for folder in Path("outputs").iterdir())
"""
Made = Callable[[Path, int], Sequence[str]]
"""Makes what a command needs, of a size, in a new folder, which is its working directory; returns the command."""


def etlrun(*words: str) -> list[str]:
    """The command of a process of its own."""
    return [sys.executable, "-m", "etlrun", *words]


def caches(*words: str) -> Made:
    """A command on so many caches of the same photos."""

    def made(folder: Path, size: int) -> Sequence[str]:
        summary_of([*PHOTOS, "trainer.epochs=1", "cache=disk", f"cache.dir={folder}/kept"], folder / "run")
        first = next(path.parent for path in (folder / "kept").rglob("cache.json"))
        for number in range(size - 1):
            shutil.copytree(first, first.with_name(f"{number:020x}"))
        own = ["cache", *words]
        return etlrun(*own, "--dir", "kept") if words[0] != "why" else etlrun(*own, f"cache.dir={folder}/kept")

    return made


def epochs(folder: Path, size: int) -> Sequence[str]:
    """A run of so many epochs."""
    return etlrun(*PHOTOS, "cache=memory", f"trainer.epochs={size}", f"hydra.run.dir={folder}/run")


def columns(folder: Path, size: int) -> Sequence[str]:
    """The first plan of a table of so many columns."""
    numbers = np.random.default_rng(0).normal(size=(size + 1, 200))
    names = [f"c{number}" for number in range(size)]
    pq.write_table(pa.table(dict(zip([*names, "y"], numbers, strict=True))), folder / "rows.parquet")
    words = ["experiment=table", "dataset.files=rows.parquet", "dataset.target={y: number}", "dataset.dir=kept"]
    return etlrun("plan", *words)


def experiments(*words: str) -> Made:
    """A command on a folder of so many experiments, of which one has changed."""

    def made(folder: Path, size: int) -> Sequence[str]:
        (folder / "conf/experiment").mkdir(parents=True)
        for number in range(size):
            (folder / f"conf/experiment/e{number:04}.yaml").write_text(EXPERIMENT.format(seed=number))
        git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        for of in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", "before"]):
            subprocess.run([*git, *of], check=True)
        (folder / "conf/experiment/e0000.yaml").write_text(EXPERIMENT.format(seed=size))
        return etlrun(*words, "--config-dir", "conf")

    return made


def runs(*command: str) -> Made:
    """A command on so many runs of three epochs."""

    def made(folder: Path, size: int) -> Sequence[str]:
        summary_of([*PHOTOS, "trainer.epochs=3"], folder / "run")
        for number in range(size):
            (folder / f"outputs/{number:05}").mkdir(parents=True)
            for name in ("config.yaml", "events.jsonl", "summary.json"):
                shutil.copyfile(folder / "run" / name, folder / f"outputs/{number:05}/{name}")
        return command

    return made


CASES: Mapping[str, tuple[str, Made, Sequence[int]]] = {
    "cache ls": ("caches", caches("ls"), (1, 500, 2_000)),
    "cache why": ("caches", caches("why", *PHOTOS, "cache=disk", "transform.resize.antialias=true"), (1, 500, 2_000)),
    "cache gc": ("caches", caches("gc", "--max-bytes", "0", "--yes"), (1, 500, 2_000)),
    "run": ("epochs", epochs, (100, 300, 1_000, 3_000)),
    "plan": ("columns", columns, (500, 1_000, 2_000, 4_000)),
    "check": ("experiments", experiments("check"), (1, 100, 800)),
    "diff HEAD": ("experiments", experiments("diff", "HEAD"), (1, 100, 800)),
    "runs ls": ("runs", runs(*etlrun("runs", "ls")), (1, 1_000, 4_000)),
    "their summaries alone": ("runs", runs(sys.executable, "-c", READ), (1, 1_000, 4_000)),
}


def cpu_s(make: Made, size: int) -> float:
    """CPU seconds of a command on what it needs, of a size."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "work"
        folder.mkdir()
        command = make(folder, size)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": f"{home}/cache"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    lines = ["| command | size | CPU seconds | ms each, first | ms each, last | ratio |", "|---|---|---|---|---|---|"]
    print(*lines, sep="\n", flush=True)
    for name in known.only:
        what, make, sizes = CASES[name]
        took_s = [cpu_s(make, size) for size in sizes]
        each_ms = np.diff(took_s) / np.diff(sizes) * 1000
        cells = [name, f"{', '.join(f'{size:,}' for size in sizes)} {what}", ", ".join(f"{of:.2f}" for of in took_s)]
        cells += [f"{each_ms[0]:.2f}", f"{each_ms[-1]:.2f}", f"{each_ms[-1] / each_ms[0]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if known.output:
        text = "\n".join([f"`python -m benchmarks.growth` on {cores()} cores", "", *lines, ""])
        known.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
