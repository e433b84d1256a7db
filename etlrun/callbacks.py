"""What happens around Keras's epochs: records, checkpoints, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from etlrun.record import Record
from etlrun.resume import checkpoint_path
from etlrun.stages.trainer import EarlyStopping as EarlyStoppingRule
from etlrun.stages.trainer import Trainer

_MEASURES = ("loss", "accuracy", "val_loss", "val_accuracy")


class EarlyStopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """Keras's, which first sees the epochs of the run that this one goes on with."""

    def __init__(self, rule: EarlyStoppingRule, done: list[dict[str, Any]]) -> None:
        mode = "max" if rule.monitor.endswith("accuracy") else "min"
        super().__init__(monitor=rule.monitor, patience=rule.patience, min_delta=rule.min_delta, mode=mode)
        self.done = done

    def on_train_begin(self, logs: Any = None) -> None:
        """Start from the state that the epochs so far have left."""
        super().on_train_begin(logs)
        for epoch in self.done:
            measured = {key: math.nan if value is None else value for key, value in epoch.items()}
            self.on_epoch_end(epoch["epoch"] - 1, measured)


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the model, its optimizer included, after each epoch; the newest replaces the one before."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save; a kill while saving leaves the checkpoint before."""
        path = checkpoint_path(self.record.folder, epoch + 1)
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f".{path.name}")
        self.model.save(temporary)
        temporary.replace(path)
        checkpoint_path(self.record.folder, epoch).unlink(missing_ok=True)
        self.record.event("checkpoint", epoch=epoch + 1, path=str(path.relative_to(self.record.folder)))


class EpochRecorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Measures each epoch, records it, and shows how far the training is.

    An epoch's `wall_s` is the time of its training steps; `validation_s` that of its validation.
    """

    def __init__(self, record: Record, trainer: Trainer, examples_in: Callable[[int], int]) -> None:
        super().__init__()
        self.record, self.trainer, self.examples_in = record, trainer, examples_in
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("", total=None, start=False)
        self.steps_before = 0
        self.steps = 0
        self.began_s = 0.0
        self.trained_s: float | None = None
        self.startup: dict[str, float] | None = None

    def __enter__(self) -> None:
        self.progress.start()

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the clock."""
        self.progress.reset(
            self.task,
            description=f"epoch {epoch + 1}/{self.trainer.epochs}",
            total=self.steps or self.trainer.steps_per_epoch,
        )
        self.record.event("epoch_began", epoch=epoch + 1)
        self.steps, self.trained_s, self.began_s = 0, None, time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count; the training's first step also compiles the model and starts the pipeline."""
        self.steps += 1
        if self.startup is None:
            self.startup = {"startup_s": time.perf_counter() - self.began_s, "startup_examples": self.examples_in(1)}
            self.record.update(startup_s=self.startup["startup_s"])
        self.progress.advance(self.task)

    def on_test_begin(self, logs: Any = None) -> None:
        """Stop the clock for training: Keras has the epoch's measures, so its last step is done."""
        self.trained_s = time.perf_counter() - self.began_s

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record."""
        all_s = time.perf_counter() - self.began_s
        trained_s = all_s if self.trained_s is None else self.trained_s
        before = self.steps_before or epoch * (self.trainer.steps_per_epoch or self.steps)
        examples = self.examples_in(before + self.steps) - self.examples_in(before)
        self.steps_before = before + self.steps
        measures = {key: float(logs[key]) for key in _MEASURES if logs and key in logs}
        entry = {
            "epoch": epoch + 1,
            "wall_s": trained_s,
            "validation_s": all_s - trained_s,
            "steps": self.steps,
            "examples": examples,
            "examples_per_s": examples / trained_s,
            "startup_s": 0.0,
            "startup_examples": 0,
            **measures,
        }
        if self.startup:
            entry |= self.startup
            self.startup = {}
        self.record.epoch(entry)
        shown = "  ".join(f"{key} {value:.4f}" for key, value in measures.items())
        head = f"epoch {epoch + 1}/{self.trainer.epochs}  {trained_s:6.1f} s  {examples / trained_s:7.1f} examples/s"
        self.console.print(f"{head}  {shown}", highlight=False, soft_wrap=True)
