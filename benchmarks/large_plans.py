"""How long commands without a run take on a dataset with the shards of ImageNet, whose records hold a few bytes each.

    python -m benchmarks.large_plans [--runs 5] [--output benchmarks/results/large_plans.md]

1,281,167 training examples in 1,024 shards, 50,000 for validation in 64, and the sizes of ImageNet in the metadata.
Each command is a process of its own. `cache why` reads the checksums of all records once, and keeps them.
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

import tensorflow_datasets as tfds
import yaml

from etlrun.sources.framing import framed
from etlrun.system import machine

SPLITS = {"train": (1_281_167, 1024), "validation": (50_000, 64)}
MEAN_BYTES, LABEL_BYTES, INDEX_BYTES = 115_000, 8, 64
CONFIG = (
    "dataset=tfds", "dataset.name=imagenet2012", "dataset.version=5.*.*", "dataset.download=false",
    "dataset.split=train", "dataset.eval_split=validation", "transform=imagenet_224",
    "model=mobilenet_v2", "model.weights=null", "cache=disk",
)  # fmt: skip


DATA = b"of a record"


def write_dataset(home: Path) -> None:
    """Write what TFDS keeps of such a dataset beside its shards, and these with small records."""
    folder = home / "imagenet2012" / "5.1.0"
    folder.mkdir(parents=True)
    splits = []
    for name, (examples, shards) in SPLITS.items():
        lengths = [str(examples // shards + (number < examples % shards)) for number in range(shards)]
        record = b"".join(framed(DATA))
        for number, count in enumerate(lengths):
            file = folder / f"imagenet2012-{name}.tfrecord-{number:05d}-of-{shards:05d}"
            file.write_bytes(record * int(count))
            os.utime(file, (0, 0))
        splits.append({"name": name, "shardLengths": lengths, "numBytes": str(examples * MEAN_BYTES)})
    info = {"name": "imagenet2012", "version": "5.1.0", "fileFormat": "tfrecord", "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(),
            "label": tfds.features.ClassLabel(num_classes=1000),
            "file_name": tfds.features.Text(),
        }
    ).save_config(folder)


def write_experiment(home: Path, config: list[str]) -> Path:
    """Write an own folder of configs with one experiment, of that dataset."""
    file = home / "own/experiment/imagenet.yaml"
    file.parent.mkdir(parents=True)
    choices = [word.split("=") for word in config if "." not in word.partition("=")[0]]
    listed = "".join(f"  - override /{group}: {option}\n" for group, option in choices)
    values: dict[str, dict[str, object]] = {}
    for key, _, value in (word.partition("=") for word in config if "." in word.partition("=")[0]):
        values.setdefault(key.split(".")[0], {})[key.split(".")[1]] = yaml.safe_load(value)
    head = "# @package _global_\n# ImageNet, for the time that a check takes.\n"
    file.write_text(f"{head}defaults:\n{listed}  - _self_\n{yaml.safe_dump(values)}")
    return file.parent.parent


def asked(words: list[str], caches: Path) -> tuple[float, float, str]:
    """Seconds and CPU seconds of a command, and what it printed; `caches` is the user's folder of caches."""
    command, environment = [sys.executable, "-m", "etlrun", *words], {**os.environ, "XDG_CACHE_HOME": str(caches)}
    before, began_s = os.times(), time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began_s, used_s, ran.stdout


def measured(home: Path, runs: int) -> dict[str, list[tuple[float, float, str]]]:
    """Return what each command took, by its name, in turns."""
    config = [*CONFIG, f"dataset.data_dir={home}"]
    own = str(write_experiment(home, config))
    commands = {
        "plan": ["plan", *config],
        "plan -m, 12 configs": ["plan", "-m", *config, "load.prefetch=1,2,4", "extract.cycle_length=1,4,16,64"],
        "diff": ["diff", " ".join(config), " ".join([*config, "cache.at=source", "load.prefetch=4"])],
        "check, 154 configs": ["check"],
        "check --config-dir, own experiment": ["check", "--config-dir", own],
        "cache why, first time": ["cache", "why", *config],
        "cache why": ["cache", "why", *config],
    }
    taken: dict[str, list[tuple[float, float, str]]] = {name: [] for name in commands}
    for run in range(runs):
        for name, words in commands.items():
            taken[name].append(asked(words, home / f"caches{run}"))
    return taken


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    known = parser.parse_args()
    lines = ["| command | seconds, median | lowest | highest | CPU seconds |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as home:
        write_dataset(Path(home))
        taken = measured(Path(home), known.runs)
    count = SPLITS["train"][0]
    forecast = f"{count * (MEAN_BYTES + LABEL_BYTES + INDEX_BYTES) / 1e6:,.0f} MB of {count:,} examples"
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
