"""State of a training inside an epoch: what a run needs to go on after any step, to the bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import keras
import numpy as np
import numpy.typing as npt

from etlrun.errors import WorldError, headline
from etlrun.measure.watched import Watch
from etlrun.record.record import Record, replacing, sync

Arrays = list[npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class State:
    """State of a training after a step.

    Attributes:
        path: File that it was read from; None if it was not.
        epochs: Completed epochs.
        steps: Steps of the epoch after them.
        digest: Digest of the examples of these steps, with `measure.digest`; empty without.
        names: Paths of the model's and the optimizer's variables.
        variables: Values of these variables.
        metrics: Values of the variables of the metrics, whose means are those of the epoch so far.
    """

    epochs: int
    steps: int
    digest: str
    path: Path | None = None
    names: list[str]
    variables: Arrays
    metrics: Arrays

    @classmethod
    def of(cls, model: keras.Model, whole: keras.Model, watch: Watch, *, epochs: int, steps: int) -> State:
        """Return the state of `model`, which is `whole` or its head; the arrays are copies."""
        variables = _variables(whole)
        return cls(
            epochs=epochs,
            steps=steps,
            digest=watch.digest.so_far(watch.meter.ahead) if watch.digest else "",
            names=[variable.path for variable in variables],
            variables=_values(variables),
            metrics=_values(model.metrics_variables),
        )

    def save(self, path: Path, record: Record) -> None:
        """Write the state to `path` (.npz) atomically, and sync it to disk."""
        text = json.dumps({"epochs": self.epochs, "steps": self.steps, "digest": self.digest, "names": self.names})
        named: dict[str, Any] = {
            f"{kind}{place}": array
            for kind, arrays in (("variable", self.variables), ("metric", self.metrics))
            for place, array in enumerate(arrays)
        }
        with record.writing(), replacing(path) as temporary:
            temporary.parent.mkdir(exist_ok=True)
            np.savez(temporary, position=np.array(text), **named)
            sync(temporary)

    @classmethod
    def load(cls, path: Path) -> State:
        """Read a state; `WorldError` if the file is damaged."""
        try:
            with np.load(path, allow_pickle=False) as file:
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
        if [variable.path for variable in variables] != self.names or [
            tuple(variable.shape) for variable in variables
        ] != [array.shape for array in self.variables]:
            raise _unusable(self.path, f"{len(self.names)} variables of another model")
        for variable, array in zip(variables, self.variables, strict=True):
            variable.assign(array)


def _variables(whole: keras.Model) -> list[Any]:
    return [*whole.variables, *(whole.optimizer.variables if whole.optimizer else [])]


def _values(variables: Sequence[Any]) -> Arrays:
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def _unusable(path: Path | None, found: str) -> WorldError:
    return WorldError(
        where=str(path),
        found=found,
        expected="the complete state that a run saves after a step",
        remedy="remove the file, so that the run is resumed from its last epoch, or start a new run without "
        "trainer.resume",
    )
