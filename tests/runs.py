"""Runs in this process and in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import numpy as np
import pytest

from etlrun.record.record import Record
from etlrun.record.summary import read_summary
from etlrun.run import run
from etlrun.stages import STAGES, Stages
from tests.configs import composed
from tests.forked import Forked
from tests.present import present
from tests.quick import quick_probes, shallow

SMALL = (
    "dataset=tfds", "dataset.name=tiny_pictures", "dataset.download=false", "transform.resize.size=[32,32]",
    "load.batch_size=8", "load.shuffle_buffer=16", "model.trainable=false", "trainer.epochs=1",
)  # fmt: skip
"""Overrides for a run of seconds on the tiny dataset."""


def small(data_dir: Path, *overrides: str) -> list[str]:
    """The overrides of a small run; later ones replace those of the same key."""
    given = {word.split("=")[0] for word in overrides}
    base = (*SMALL, f"dataset.data_dir={data_dir}")
    return [*(word for word in base if word.split("=")[0] not in given), *overrides]


def emulated(data_dir: Path, *overrides: str) -> list[str]:
    given = {word.split("=")[0] for word in overrides}
    base = (
        "model=emulated", "model.step_ms=5", "model.eval_step_ms=2", "load.batch_size=2", "load.drop_remainder=true",
    )  # fmt: skip
    kept = [word for word in base if word.split("=")[0] not in given]
    return [word for word in small(data_dir, *kept, *overrides) if not word.startswith("model.trainable")]


def run_here(
    folder: Path, overrides: list[str], *, stages: Stages = STAGES, model: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Run in this process, with a shallow MobileNetV2 or a network of `stages`; the exit status and the summary."""
    Record.create(folder, composed(*overrides) | ({} if model is None else {"model": {"name": model}}), overrides)
    with pytest.MonkeyPatch.context() as patch:
        quick_probes(patch)
        shallow(patch)
        status = run.run(folder, stages)
    return status, summary_of(folder)


def complete_here(folder: Path, overrides: list[str], **given: Any) -> dict[str, Any]:
    """The summary of a run in this process that completes."""
    status, summary = run_here(folder, overrides, **given)
    assert status == 0, summary
    return summary


def resumed_after(folder: Path, overrides: list[str], event: str, stop: Callable[..., None]) -> Path:
    """A run in `stopped`, which its recorder stops at an event, and that goes on in the folder that is returned."""
    from etlrun.run.callbacks import EpochRecorder  # imports Keras

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpochRecorder, event, stop)
        assert run_here(folder / "stopped", overrides)[0] == 130
    complete_here(folder / "resumed", [*overrides, f"trainer.resume={folder / 'stopped'}"])
    return folder / "resumed"


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of a run, with the epochs of one that has not ended."""
    return present(read_summary(folder)).written


def losses_of(summary: dict[str, Any]) -> list[list[float]]:
    """Loss and accuracy of training and validation, by epoch."""
    return [[epoch[key] for key in ("loss", "accuracy", "val_loss", "val_accuracy")] for epoch in summary["epochs"]]


def variables_of(folder: Path) -> dict[str, Any]:
    """What `model.keras` holds: weights and the optimizer's variables, by their places in the file."""
    found: dict[str, Any] = {}
    with ZipFile(folder / "model.keras") as model, h5py.File(BytesIO(model.read("model.weights.h5"))) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the same variables have the same values, to the bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def start(words: list[str], cwd: Path, module: str = "etlrun", **environment: str) -> subprocess.Popen[str]:
    """`python -m etlrun` in a process group of its own, as a shell starts it; runs of `tests.quick_jobs` are quick."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str] | Forked) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a process that comes to its end."""
    out, err = process.communicate(timeout=300)
    assert process.returncode is not None
    return process.returncode, out, err


def finish_well(process: subprocess.Popen[str] | Forked) -> tuple[str, str]:
    """The stdout and stderr of a process that ends with the status 0."""
    status, out, err = finish(process)
    assert status == 0, err
    return out, err


def wait_for(is_so: Callable[[], object], process: subprocess.Popen[str] | Forked | None = None) -> None:
    """Return as soon as it is so; the test fails where that takes minutes, or the process ends before."""
    deadline = time.monotonic() + 240
    while not is_so():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            pytest.fail(f"it did not come: {process and process.communicate(timeout=1)}")
        time.sleep(0.001)


def wait_for_epoch(process: Forked, folder: Path) -> None:
    """Return as soon as a run has written the checkpoint of its first epoch."""
    events = folder / "events.jsonl"
    wait_for(lambda: events.exists() and '"epoch": 1, "path"' in events.read_text(), process)


def kill_after_state(process: subprocess.Popen[str] | Forked, folder: Path, epochs: int) -> None:
    """Kill a run, with its process group, as soon as it has saved a state after that many epochs."""
    wait_for(lambda: list((folder / "checkpoints").glob(f"epoch_{epochs:04}_step_*.npz")), process)
    os.killpg(process.pid, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
