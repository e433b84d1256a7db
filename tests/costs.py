"""Runs of experiments of one's own whose costs are known, made without training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etlrun.config.request import Request, composer
from etlrun.record import record as records
from etlrun.record.summary import COMPLETED

HERE, OTHER_MACHINE = "AMD EPYC, 2 cores", "Tesla T4, Intel Xeon, 8 cores"
CACHED = """\
# @package _global_
# A run with a cache on disk. Costs a minute.
defaults:
  - override /model: emulated
  - override /cache: disk
  - _self_
dataset: {data_dir: /nowhere}
trainer: {epochs: 3}
"""


def measured(
    folder: Path,
    mine: Path,
    words: Sequence[str],
    rate: float,
    *,
    fill_s: float | None = None,
    machine: str = HERE,
    **values: Any,
) -> None:
    """Write a completed run of 960 and 240 examples, of three epochs, of which the first has filled its cache."""
    config = composer(Request(overrides=[], config_dir=str(mine))).values([*words])
    record = records.Record.create(folder, config, [*words])
    *gpus, processor, cores = machine.split(", ")
    epochs = [{"examples": 960, "wall_s": 960 / rate, "examples_per_s": rate} for _ in range(3)]
    held: dict[str, Any] = {"held_bytes": 960 * 12288, "passes": ["read", "read", "read"]}
    if fill_s is not None:
        held["passes"][0] = "filled"
        epochs[0] = {"examples": 960, "wall_s": 960 / rate + fill_s, "examples_per_s": 960 / (960 / rate + fill_s)}
    cache = config["cache"]
    pipelines = {"train": held, "validation": {**held, "held_bytes": 240 * 12288}}
    block = None if cache["name"] == "none" else {"target": cache["name"], "at": cache["at"], "pipelines": pipelines}
    known = {
        "status": COMPLETED,
        "epochs": epochs,
        "au": rate / 1000,
        "host": {"processor": processor, "cores": int(cores.split()[0]), "accelerators": gpus},
        "resources": {"peak_rss_bytes": 1_000_000_000},
        "dataset": {"name": "sample", "examples": {"train": 960, "validation": 240}},
        "cache": block,
    }
    record.update(**known | values)
