"""Checkpoints inside an epoch, written beside the training, and the continuation of an epoch from one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras

from etlrun.measure.watched import Watch
from etlrun.record.record import Record
from etlrun.run.checkpoint import state_path, states_in
from etlrun.run.hosts.here import here
from etlrun.run.state import Copier, State


class StepCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves the state of the training every `every_steps` steps of an epoch; the newest replaces the previous one.

    The training waits while the variables are copied. A thread writes the copy; a state that is due before the
    previous one is written waits for it.
    """

    def __init__(self, record: Record, whole: keras.Model, watch: Watch, every_steps: int) -> None:
        super().__init__()
        self.record, self.whole, self.watch, self.every_steps = record, whole, watch, every_steps
        self.epoch = 0
        self.copier: Copier | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="etlrun-checkpoint")
        self._writing: Future[None] | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remember the epoch."""
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save the state if it is due; an error of the previous one is raised here."""
        steps = batch + 1
        if steps % self.every_steps or steps <= self.watch.resumed_batches:
            return
        began_s = time.perf_counter()
        self.wait()
        model = self.model  # on JAX, this sets its variables
        self.copier = self.copier or Copier(model, self.whole)
        state = self.copier.state(self.watch, epochs=self.epoch, steps=steps)
        self._writing = self._writer.submit(self._write, state, began_s, time.perf_counter())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Wait for the last state of the epoch, whose own checkpoint is next."""
        self.wait()

    def on_train_end(self, logs: Any = None) -> None:
        """Release the thread."""
        self.wait()
        self._writer.shutdown()

    def wait(self) -> None:
        """Wait until the last state is written; raises the error of its writing."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, state: State, began_s: float, copied_s: float) -> None:
        path = state_path(self.record.folder, state.epochs, state.steps)
        state.save(path, self.record)
        for older in states_in(self.record.folder):
            if older != path:
                older.unlink(missing_ok=True)
        self.record.event(
            "checkpoint",
            epoch=state.epochs,
            steps=state.steps,
            path=str(path.relative_to(self.record.folder)),
            held_up_s=copied_s - began_s,
            written_s=time.perf_counter() - copied_s,
        )


class Continuation(keras.callbacks.Callback):  # type: ignore[misc]
    """Continues an epoch from a state: Keras counts its first steps, which are not trained again."""

    def __init__(self, state: State, whole: keras.Model, watch: Watch) -> None:
        """Set the variables of `whole`; `WorldError` if the state is that of another model."""
        super().__init__()
        state.restore(whole)
        watch.resumed_batches = state.steps
        self.state, self.watch, self.left = state, watch, state.steps
        self.logs: dict[str, Any] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the metrics and the digest of the first epoch, which Keras has reset."""
        if epoch != self.state.epochs:
            return
        model = self.model
        for variable, array in zip(model.metrics_variables, self.state.metrics, strict=True):
            variable.assign(array)
        self.logs = model.get_metrics_result()
        if self.watch.digest is not None and self.state.digest and here().leads:
            self.watch.digest.resume(self.state.digest)

    def pass_over(self, model: keras.Model) -> None:
        """Make the first steps of `model` return at once, without reading a batch."""
        model.make_train_function()  # returns it on TensorFlow alone
        step: Callable[..., Any] = model.train_function

        def function(*arguments: Any) -> Any:  # (iterator) on TensorFlow, (state, iterator) on JAX
            if not self.left:
                return step(*arguments)
            self.left -= 1
            return (self.logs, arguments[0]) if len(arguments) > 1 else self.logs

        model.train_function = function
