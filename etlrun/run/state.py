"""State of a training inside an epoch, saved beside it: what a run needs to go on after any step, to the bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import keras
import numpy as np
import tensorflow as tf

from etlrun.measure.watched import Watch
from etlrun.record.record import Record
from etlrun.run.checkpoint import state_path, states_in
from etlrun.run.hosts import here, joint
from etlrun.system.errors import WorldError, headline
from etlrun.system.files import replacing, sync
from etlrun.system.values import frozen

_SEEDS = "seeds.json"
"""Name of the states of seeds in a file of Keras, which has none."""


@frozen
class State:
    """State of a training after a step.

    Attributes:
        path: File that it was read from; None if it was not.
        epochs: Completed epochs.
        steps: Steps of the epoch after them.
        digest: Digest of the examples of these steps, with `measure.digest`; empty without.
        variables: Values of the variables of the model and of its optimizer: arrays, or tensors of the backend.
        metrics: Values of the variables of the metrics, whose means are those of the epoch so far.
    """

    epochs: int
    steps: int
    digest: str
    path: Path | None = None
    variables: Sequence[Any]
    metrics: Sequence[Any]

    def save(self, path: Path, record: Record) -> None:
        """Write the state to `path` (.npz) atomically, and sync it to disk."""
        text = json.dumps({"epochs": self.epochs, "steps": self.steps, "digest": self.digest})
        named: dict[str, Any] = {
            f"{kind}{place}": array
            for kind, arrays in (("variable", self.variables), ("metric", self.metrics))
            for place, array in enumerate(map(np.asarray, arrays))
        }
        with record.writing(), replacing(path) as temporary:
            temporary.parent.mkdir(exist_ok=True)
            np.savez(temporary, position=np.array(text), **named)
            sync(temporary)

    @classmethod
    def load(cls, path: Path) -> State:
        """Read a state; `WorldError` if the file is damaged."""
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
                position = json.loads(str(file["position"]))
                variables, metrics = (
                    [file[f"{kind}{place}"] for place in range(sum(name.startswith(kind) for name in file.files))]
                    for kind in ("variable", "metric")
                )
                return cls(path=path, variables=variables, metrics=metrics, **position)
        except (OSError, ValueError, KeyError, TypeError, BadZipFile, EOFError) as error:
            raise _unusable(path, f"a file that can't be read: {type(error).__name__}: {headline(error)}") from error

    def restore(self, whole: keras.Model) -> None:
        """Set the variables of `whole` and of its optimizer; `WorldError` if they are those of another model."""
        variables = _variables(whole)
        if [tuple(variable.shape) for variable in variables] != [array.shape for array in self.variables]:
            raise _unusable(self.path, f"{len(self.variables)} variables of another model")
        for variable, array in zip(variables, self.variables, strict=True):
            variable.assign(array)


def _variables(whole: keras.Model) -> list[Any]:
    return [*whole.variables, *(whole.optimizer.variables if whole.optimizer else [])]


def add_seeds(model: keras.Model, path: Path) -> None:
    """Add the states of the seeds of `model`, from which dropout draws, to the file that Keras has saved it in."""
    states = [keras.ops.convert_to_numpy(seed).tolist() for seed in _seeds(model)]
    if states:
        with ZipFile(path, "a") as file:
            file.writestr(_SEEDS, json.dumps(states))


def restore_seeds(model: keras.Model, path: Path) -> None:
    """Set the states of the seeds of `model`, which was loaded from `path`, to those that were saved with it."""
    seeds = _seeds(model)
    if not seeds:
        return
    with ZipFile(path) as file:
        states = json.loads(file.read(_SEEDS)) if _SEEDS in file.namelist() else []
    if len(states) != len(seeds):
        raise WorldError(
            str(path),
            f"the states of {len(states)} seeds in a model of {len(seeds)}",
            "a checkpoint with the states of all seeds, from which dropout draws",
            "start a new run without trainer.resume",
        )
    for seed, state in zip(seeds, states, strict=True):
        seed.assign(state)


def _seeds(model: keras.Model) -> list[Any]:
    """Return the states of the random numbers of a model: (2,), a seed and the number of draws."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


class Copier:
    """Copies the state of `model`, which is `whole` or its head.

    On TensorFlow it reads the variables, which copies a value only when it is changed. They are read one by one, by
    handles that are looked up once: to trace that as a function takes 1.5 s for MobileNetV2, and saves 6 ms each time.
    """

    def __init__(self, model: keras.Model, whole: keras.Model) -> None:
        variables = _variables(whole)
        everything = [*variables, *model.metrics_variables]
        self._count = len(variables)
        self._read = [(_reader if hasattr(of.value, "_handle") else _copier)(of) for of in everything]

    def state(self, watch: Watch, *, epochs: int, steps: int) -> State:
        """Return the state after `epochs` epochs and `steps` steps."""
        copies = [read() for read in self._read]
        digest = joint(watch.digest.so_far(watch.meter.ahead)) if watch.digest else ""
        variables, metrics = copies[: self._count], copies[self._count :]
        return State(epochs=epochs, steps=steps, digest=digest, variables=variables, metrics=metrics)


def _reader(variable: Any) -> Callable[[], tf.Tensor]:
    of = variable.value
    return partial(tf.raw_ops.ReadVariableOp, resource=of.handle, dtype=of.dtype)


def _copier(variable: Any) -> Callable[[], Any]:
    return lambda: np.array(keras.ops.convert_to_tensor(variable))  # a copy: on JAX each step sets another value


def _unusable(path: Path | None, found: str) -> WorldError:
    return WorldError(
        str(path),
        found,
        "the complete state that a run saves after a step",
        "remove the file, so that the run is resumed from its last epoch, or start a new run without trainer.resume",
    )


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
