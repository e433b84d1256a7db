"""Folders of runs with everything that the page of a run shows, as a run's own record writes them; without a run."""

import json
from pathlib import Path
from typing import Any

from etlrun.record.record import Record
from etlrun.record.summary import Epoch

VERDICT: dict[str, Any] = {
    "kind": "input", "stage": "transform.map", "pipeline": "train", "max_gain": 2.5, "because": "It waits.",
    "advice": "Try a cache.", "apart": [{"name": "validation", "lost_s": 1.0, "total_s": 4.0, "max_gain": 4 / 3}],
}  # fmt: skip
STAGES: list[dict[str, Any]] = [
    {"stage": "extract.interleave", "examples": 8, "cost_ms": 1.0, "parallelism": 4, "set_by": "config"},
    {"stage": "transform.map", "examples": 8, "cost_ms": 3.0, "parallelism": 1, "set_by": "config"},
]
PLAN = {
    "train": [
        {"stage": "extract.interleave"},
        {"stage": "transform.map", "steps": [{"stage": "transform.decode"}]},
        {"stage": "load.batch"},
    ]
}


def epoch(number: int, **values: Any) -> Epoch:
    """An epoch of 10 s: 2 s of start-up, 3 s of waits, 5 s of computing; and 4 s of validation."""
    given: dict[str, Any] = {
        "wall_s": 10.0, "startup_s": 2.0, "fill_wait_s": 1.0, "input_wait_s": 2.0, "validation_s": 4.0, "examples": 8,
        "loss": 2.0 / number, "val_loss": 3.0 / number, "accuracy": 0.5, "val_accuracy": 0.25,
    }  # fmt: skip
    return Epoch(epoch=number, ended_s=float(number), **{**given, **values})


def course(folder: Path, *epochs: Epoch, status: str = "completed", **values: Any) -> Record:
    """A run of these epochs."""
    record = Record.create(folder, {"trainer": {"epochs": len(epochs)}}, ["load.prefetch=1", "dataset.name=a b"])
    for one in epochs:
        record.epoch(one)
    record.update(status=status, wall_s=30.0, **values)
    return record


def whole(folder: Path) -> Record:
    """A completed run with all parts of a page."""
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    return course(
        folder,
        *(epoch(number, metrics={"f1": number / 4, "val_f1": "NaN" if number == 2 else 0.5}) for number in range(1, 4)),
        verdict=VERDICT,
        stages=STAGES,
        step_floor_ms=12.5,
        dataset={"name": "pets/1.0.0", "examples": {"train": 8, "validation": 2}, "shards": 1, "bytes": 2_000_000,
                 "classes": ["cat", "dog"]},
        resources={"peak_rss_bytes": 10**9, "cpu_s": 2.0, "cores_used": 1.0,
                   "peak_gpu_bytes": 1_234_500_000},
        remarks=["Only a test.", "Of @all\n# Heading <b>*x*</b>_q_ `x|y` [this](/tmp/a_b)"],
        parameters=1234,
    )  # fmt: skip
