"""State of a training inside an epoch, saved beside it: what a run needs to go on after any step, to the bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
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

_SEEDS = "seeds.json"
"""Name of the states of seeds in a file of Keras, which has none."""


@contextmanager
def saving(path: Path, record: Record) -> Iterator[Path]:
    """Give the path to write what is then `path`, in the folder of `record`, atomically and synced to disk."""
    with record.writing(), replacing(path) as temporary:
        temporary.parent.mkdir(exist_ok=True)
        yield temporary
        sync(temporary)


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


def _reader(variable: Any) -> Callable[[], Any]:
    """Return the function that copies the value of a variable."""
    of = variable.value
    # To trace the reading of all, which copies a value only when it is changed, takes 1.5 s, and saves 6 ms each time.
    if hasattr(of, "_handle"):
        return partial(tf.raw_ops.ReadVariableOp, resource=of.handle, dtype=of.dtype)
    return lambda: np.array(keras.ops.convert_to_tensor(variable))  # a copy: on JAX each step sets another value


def _unusable(path: Path, found: str) -> WorldError:
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
        self._readers: dict[str, list[Callable[[], Any]]] = {}
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
        model, watch = self.model, self.watch  # on JAX, the first sets the variables
        if not self._readers:
            of = {"variable": _variables(self.whole), "metric": model.metrics_variables}
            self._readers = {kind: [*map(_reader, variables)] for kind, variables in of.items()}
        copies = {f"{kind}{place}": read() for kind, of in self._readers.items() for place, read in enumerate(of)}
        digest = joint(watch.digest.so_far(watch.meter.ahead)) if watch.digest else ""
        position = {"epochs": self.epoch, "steps": steps, "digest": digest}
        self._writing = self._writer.submit(self._write, position, copies, began_s, time.perf_counter())

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

    def _write(self, position: dict[str, Any], copies: dict[str, Any], began_s: float, copied_s: float) -> None:
        epoch, steps = position["epochs"], position["steps"]
        path = state_path(self.record.folder, epoch, steps)
        with saving(path, self.record) as temporary:
            np.savez(temporary, position=np.array(json.dumps(position)), **copies)
        for older in states_in(self.record.folder):
            if older != path:
                older.unlink(missing_ok=True)
        self.record.event(
            "checkpoint",
            epoch=epoch,
            steps=steps,
            path=str(path.relative_to(self.record.folder)),
            held_up_s=copied_s - began_s,
            written_s=time.perf_counter() - copied_s,
        )


class Continuation(keras.callbacks.Callback):  # type: ignore[misc]
    """Continues an epoch from a state: Keras counts its first steps, which are not trained again."""

    def __init__(self, path: Path, whole: keras.Model, watch: Watch) -> None:
        """Read the state, and set the variables of `whole`; `WorldError` if it is damaged, or of another model."""
        super().__init__()
        variables = _variables(whole)
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
                position = json.loads(str(file["position"]))
                self.epochs, steps, self.digest = (position[key] for key in ("epochs", "steps", "digest"))
                values, self.metrics = (
                    [file[f"{kind}{place}"] for place in range(sum(name.startswith(kind) for name in file.files))]
                    for kind in ("variable", "metric")
                )
        except (OSError, ValueError, KeyError, TypeError, BadZipFile, EOFError) as error:
            raise _unusable(path, f"a file that can't be read: {type(error).__name__}: {headline(error)}") from error
        if [tuple(variable.shape) for variable in variables] != [array.shape for array in values]:
            raise _unusable(path, f"{len(values)} variables of another model")
        for variable, array in zip(variables, values, strict=True):
            variable.assign(array)
        self.watch, self.logs = watch, dict[str, Any]()
        watch.resumed_batches = self.left = steps

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the metrics and the digest of the first epoch, which Keras has reset."""
        if epoch != self.epochs:
            return
        model = self.model
        for variable, array in zip(model.metrics_variables, self.metrics, strict=True):
            variable.assign(array)
        self.logs = model.get_metrics_result()
        if self.watch.digest is not None and self.digest and here().leads:
            self.watch.digest.resume(self.digest)

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
