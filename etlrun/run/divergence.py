"""Trainings that diverge: a loss or a weight that is no finite number ends the run, or is noted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from etlrun.record.outcome import FINITE_LOSS, FINITE_WEIGHTS
from etlrun.record.record import Record
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError, Fault
from etlrun.system.terminal import say_note

_TRAINING, _VALIDATION = "training", "validation"
_LOOK_AT_DATA = (
    "no step had changed the weights before: look at inputs and targets with `etlrun show`, and at model.weights"
)


class FiniteLoss(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training at its first loss that is no finite number, or notes it with `trainer.on_nan=warn`.

    Keras hands a callback the mean loss over the steps of the epoch so far, which one such loss makes infinite or no
    number. After each epoch, before its checkpoint, the weights are looked at: those of the last step have no loss yet.
    """

    def __init__(self, record: Record, whole: keras.Model, trainer: Trainer) -> None:
        super().__init__()
        self.record, self.whole, self.trainer = record, whole, trainer
        self.epoch, self.last, self.is_noted = 0, dict[str, float](), False
        self.has_trained = bool(record.summary.epochs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remember the epoch."""
        self.epoch = epoch + 1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Look at the loss of the training."""
        self._look(_TRAINING, batch + 1, logs)
        self.has_trained = True

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Look at the loss of the validation."""
        self._look(_VALIDATION, batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Look at the weights."""
        wrong = [of.path for of in self.whole.variables if not np.isfinite(keras.ops.convert_to_numpy(of)).all()]
        if wrong:
            found = f"weights that are not finite in {len(wrong)} of {len(self.whole.variables)} variables: {wrong[0]}"
            self._found(f"epoch {self.epoch}, at its end", found, FINITE_WEIGHTS)

    def _look(self, of: str, step: int, logs: Mapping[str, Any] | None) -> None:
        loss = (logs or {}).get("loss", 0.0)  # an emulated model has none
        if math.isfinite(loss):
            self.last[of] = loss
        else:
            before = f", after a mean of {self.last[of]:.4g}" if of in self.last else ""
            self._found(f"epoch {self.epoch}, {of} step {step}", f"a loss of {loss:g}{before}", FINITE_LOSS)

    def _found(self, where: str, found: str, expected: str) -> None:
        """Raise `EtlrunError`, or note the first finding."""
        key = Trainer.key("on_nan")
        if self.trainer.on_nan == "fail":
            remedy = f"{self._remedy()}; {key}=warn trains on with a note"
            raise EtlrunError([Fault(where=where, found=found, expected=expected, remedy=remedy)])
        if self.is_noted:
            return
        self.is_noted = True
        text = f"The training has diverged: {found}, in {where} ({key}=warn)."
        say_note(text)
        self.record.remark(text)

    def _remedy(self) -> str:
        if not self.has_trained:
            return _LOOK_AT_DATA
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        tried = (
            f"{self.trainer.optimizer} took a learning rate of {rate:g}; set a smaller {Trainer.key('learning_rate')}"
        )
        limit = "" if self.trainer.clipping else f", or {Trainer.key('clipnorm')}=1"
        of_precision = f", or {Trainer.key('mixed_precision')}=null" if self.trainer.mixed_precision else ""
        return f"{tried}{limit}{of_precision}"
