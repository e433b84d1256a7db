"""How long `plan`, `plan -m` and `diff` take on a dataset of the size of ImageNet, of which only the metadata are here.

    python -m benchmarks.large_plans [--runs 5] [--output benchmarks/results/large_plans.md]

1,281,167 training examples in 1,024 shards, 50,000 for validation in 64. Each command is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from etlrun.stages.cache import kept_bytes
from etlrun.system import machine

SPLITS = {"train": (1_281_167, 1024), "validation": (50_000, 64)}
MEAN_BYTES, LABEL_BYTES = 115_000, 8
CONFIG = (
    "dataset=tfds", "dataset.name=imagenet2012", "dataset.split=train", "dataset.eval_split=validation",
    "dataset.download=false", "transform=imagenet_224", "model=mobilenet_v2", "model.weights=null", "cache=disk",
)  # fmt: skip


def write_metadata(home: Path) -> None:
    """Write what TFDS keeps of such a dataset beside its shards."""
    folder = home / "imagenet2012" / "5.1.0"
    folder.mkdir(parents=True)
    splits = []
    for name, (examples, shards) in SPLITS.items():
        lengths = [str(examples // shards + (number < examples % shards)) for number in range(shards)]
        splits.append({"name": name, "shardLengths": lengths, "numBytes": str(examples * MEAN_BYTES)})
    info = {"name": "imagenet2012", "version": "5.1.0", "fileFormat": "tfrecord", "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(info))


def asked(words: list[str]) -> tuple[float, float, str]:
    """Seconds and CPU seconds of a command, and what it printed."""
    before, began_s = os.times(), time.perf_counter()
    ran = subprocess.run([sys.executable, "-m", "etlrun", *words], capture_output=True, text=True, check=True)
    after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began_s, used_s, ran.stdout


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    lines = ["| command | seconds, median | lowest | highest | CPU seconds |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as home:
        write_metadata(Path(home))
        config = [*CONFIG, f"dataset.data_dir={home}"]
        other = [*config, "cache.at=source", "load.prefetch=4"]
        commands = {
            "plan": ["plan", *config],
            "plan -m, 12 configs": ["plan", "-m", *config, "load.prefetch=1,2,4", "extract.cycle_length=1,4,16,64"],
            "diff": ["diff", " ".join(config), " ".join(other)],
        }
        taken = {name: [asked(words) for _ in range(known.runs)] for name, words in commands.items()}
    forecast = (
        f"{kept_bytes(SPLITS['train'][0], MEAN_BYTES + LABEL_BYTES) / 1e6:,.0f} MB of {SPLITS['train'][0]:,} examples"
    )
    for name, found in taken.items():
        seconds = [of[0] for of in found]
        cells = [f"`{name}`", *(f"{value:.2f}" for value in (statistics.median(seconds), min(seconds), max(seconds)))]
        lines.append(f"| {' | '.join([*cells, f'{statistics.median(of[1] for of in found):.2f}'])} |")
    told = any(forecast in text for _, _, text in taken["diff"])
    lines.append(f"\nForecast of the cache of encoded images told by `diff`: {forecast}{'' if told else ', MISSING'}")
    table = "\n".join(lines)
    print(table)
    if known.output:
        how = f"`python -m benchmarks.large_plans --runs {known.runs}` on {machine.cores()} cores"
        known.output.write_text(f"{how}\n\n{table}\n")


if __name__ == "__main__":
    main()
