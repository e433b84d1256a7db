"""Folders of runs and sweeps as a run's own record writes them, without a run."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from etlrun.config import grid
from etlrun.config.grid import Grid
from etlrun.config.request import Request
from etlrun.record.record import Record, nobodys
from etlrun.record.summary import Epoch
from etlrun.run.checkpoint import checkpoint_path
from etlrun.stages import STAGES
from etlrun.sweep.ledger import Ledger

DAY_S = 86_400.0
REQUEST: dict[str, Any] = {"config_dir": None, "config_name": None, "files": "", "multirun": {}}
_HOLDS = "import fcntl, sys; fcntl.flock(file := open(sys.argv[1], 'a'), fcntl.LOCK_EX); print(flush=True); input()"


def made(folder: Path, status: str = "completed", *, epochs: int = 1, age_days: float = 0.0, **values: Any) -> Path:
    """The folder of a run of so many epochs; without a checkpoint and a model."""
    record = Record.create(folder, values.pop("config", {"trainer": {"resume": None}}), ["load.prefetch=1"])
    return _ended(record, status, epochs, age_days=age_days, **values)


def _ended(record: Record, status: str, epochs: int, *, age_days: float = 0.0, **values: Any) -> Path:
    with nobodys(record.folder):
        for number in range(1, epochs + 1):
            record.epoch(Epoch(epoch=number, wall_s=2.0, examples=8, val_accuracy=0.5 + number / 10, val_loss="NaN"))
        record.update(status=status, wall_s=3.0, created_s=time.time() - age_days * DAY_S, **values)
    return record.folder


def saved(folder: Path, *, has_model: bool = True) -> Path:
    """The same folder with the checkpoint of its first epoch, and the model."""
    (folder / "checkpoints").mkdir()
    checkpoint_path(folder, 1).write_bytes(bytes(50_000))
    if has_model:
        (folder / "model.keras").write_bytes(bytes(40_000))
    return folder


@cache
def _grid() -> Grid:
    return grid.of(Request(overrides=["load.prefetch=0,1"], multirun=True), STAGES)


def sweep(folder: Path, *statuses: str, age_days: float = 0.0) -> Ledger:
    """A sweep of two jobs, of which the first ones have these statuses."""
    found = _grid()
    ledger = Ledger.create(folder, found.sweep, found.jobs, {**REQUEST, "overrides": ["load.prefetch=0,1"]})
    for key, status in zip(ledger.runs, statuses, strict=False):
        saved(_ended(Record(ledger.start(key)), status, 1, age_days=age_days))
    return ledger


@contextmanager
def busy(folder: Path) -> Iterator[None]:
    """Another process holds the lock of the folder."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _HOLDS, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate(b"\n")
