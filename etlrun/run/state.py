"""State of a training inside an epoch: what a run needs to go on after any step, to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from etlrun.run.hosts.here import joint
from etlrun.system.errors import WorldError, headline
from etlrun.system.files import replacing, sync

_SEEDS = "seeds.json"
"""Name of the states of seeds in a file of Keras, which has none."""


@dataclass(frozen=True, kw_only=True)
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
            where=str(path),
            found=f"the states of {len(states)} seeds in a model of {len(seeds)}",
            expected="a checkpoint with the states of all seeds, from which dropout draws",
            remedy="start a new run without trainer.resume",
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
        where=str(path),
        found=found,
        expected="the complete state that a run saves after a step",
        remedy="remove the file, so that the run is resumed from its last epoch, or start a new run without "
        "trainer.resume",
    )
