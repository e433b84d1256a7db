"""What a profile costs in memory, however long the run: peak RSS with and without, for 200 and 2,000 steps.

    python benchmarks/profile_memory.py [--repeats 3] [--output benchmarks/results/profile_memory.md]

Each run is `python -m etlrun` in a process of its own, with the small MobileNetV2 on 32x32 pixels in batches of 4; the
profile has one window of ten steps. Runs with and without take turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from etlrun.record.summary import read_summary

STEPS = (200, 2_000)
PROFILES = {"without": ["profile=none"], "with": ["profile=trace", "profile.windows=[[100,110]]"]}
OVERRIDES = [
    "transform.resize.size=[32,32]",
    "load.batch_size=4",
    "load.shuffle_buffer=64",
    "dataset.eval_split=null",
    "trainer.epochs=1",
]


def peak_mb(steps: int, profile: list[str]) -> tuple[float, float]:
    """Of one run: its peak RSS, and the size of its profile, in megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*OVERRIDES, f"trainer.steps_per_epoch={steps}", *profile, f"hydra.run.dir={folder}/run"]
        subprocess.run([sys.executable, "-m", "etlrun", *words], check=True, capture_output=True)
        summary = read_summary(Path(folder) / "run")
        files = (Path(folder) / "run" / "profile").rglob("*")
        written = sum(path.stat().st_size for path in files if path.is_file())
    assert summary is not None
    assert summary.resources is not None
    return (summary.resources.peak_rss_bytes or 0) / 1e6, written / 1e6


def compare(repeats: int) -> str:
    """The table, as Markdown."""
    head = ["steps", "peak RSS without MB", "with MB", "ratio, median", "profile MB"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for steps in STEPS:
        pairs = [(peak_mb(steps, PROFILES["without"])[0], *peak_mb(steps, PROFILES["with"])) for _ in range(repeats)]
        without, traced, written = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(after / before for before, after, _ in pairs)
        lines.append(f"| {steps} | {without:.0f} | {traced:.0f} | {ratio:.3f} | {written:.1f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    table = compare(arguments.repeats)
    print(table)
    if arguments.output:
        command = f"python benchmarks/profile_memory.py --repeats {arguments.repeats}"
        arguments.output.write_text(f"`{command}` on 2 cores, TensorFlow {tf.__version__}\n\n{table}")


if __name__ == "__main__":
    main()
