"""Predictions for the rows of a table that a command line names, with the columns that a run has fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from etlrun.plan.plan import given_to_model
from etlrun.sources.rows.keeping import kept_of
from etlrun.sources.rows.kept import Kept
from etlrun.stages.column_step import UnfitColumnError
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import tf
from etlrun.stages.rows import Table
from etlrun.system.errors import ConfigError, Fault, WorldError
from etlrun.trained.load import Trained
from etlrun.trained.model import predictor, require_finite
from etlrun.trained.rows import Writer

_AT_ONCE = 1_024


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a table, which have the columns that a model needs.

    Attributes:
        path: Path of the table.
        kept: Its columns.
        columns: What makes the inputs of the model.
        flow: The inputs of the model, and its target.
    """

    path: str
    kept: Kept
    columns: Columns
    flow: Flow

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(self.kept.known.rows.values())

    def inputs(self, numbers: Any) -> Any:
        """Return the inputs of the model for the rows of these numbers."""
        known = self.kept.known.columns
        names = dict.fromkeys(name for output in self.columns.outputs for name in output.of if name in known)
        given = self.columns.given({name: tf.constant(self.kept.take(name, numbers)) for name in names})
        return self.flow.given(given)

    def require_known(self, numbers: Any) -> None:
        """Raise `WorldError` for the first of these rows with a value that a step of its columns refuses."""
        known = self.kept.known.columns
        for number in numbers:
            example: dict[str, Any] = {}
            for output in self.columns.outputs:
                taken = {
                    name: tf.constant(self.kept.take(name, np.array([number]))) for name in output.of if name in known
                }
                try:
                    example[output.name] = output.given({**example, **taken})
                except tf.errors.InvalidArgumentError as error:
                    values = [of.numpy()[0] for of in taken.values()]
                    raise WorldError(
                        where=f"{self.path}, row {number}, {', '.join(output.of)}",
                        found=", ".join(
                            of.decode(errors="replace") if isinstance(of, bytes) else str(of) for of in values
                        ),
                        expected=f"values that the steps of {output.name} accept, as in the training",
                        remedy="repair the value, or train with a `lookup` whose `oov` is 1",
                    ) from error


def opened(run: Trained, path: str) -> Rows:
    """Return the rows of a table for the model of a run.

    Raises:
        EtlrunError: It can't be read, lacks columns or values that the model needs, or has columns that the table of
            the training does not have.
    """
    dataset, flow = run.then.spec.dataset, given_to_model(run.then.train)
    assert isinstance(dataset, Table)  # noqa: S101 - for mypy
    step = next(of for of in run.then.spec.transform.steps if isinstance(of, Columns))
    columns = Columns(outputs=tuple(output for output in step.outputs if output.name != flow.target))
    known = dataset.found.columns
    needed = dict.fromkeys(name for output in columns.outputs for name in output.of if name in known)
    types = {name: type_ for name, type_ in dataset.types.items() if name in needed}
    kept = _read(dataclasses.replace(dataset, files=path, columns=types, known=None), path, run, [*needed])
    features, faults = {name: column.feature for name, column in kept.known.columns.items()}, list[Fault]()
    for output in columns.outputs:
        try:
            features = {output.name: output.gives(features), **features}
        except UnfitColumnError as unfit:
            found, remedy = f"{output.name}: {unfit.found}", "write such values, or train with other steps on it"
            faults.append(Fault(where=path, found=found, expected=unfit.expected, remedy=remedy))
    if faults:
        raise ConfigError(faults)
    return Rows(path=path, kept=kept, columns=columns, flow=flow)


def _read(dataset: Table, path: str, run: Trained, needed: list[str]) -> Kept:
    """Return the columns of a table; raise `ConfigError` with those that are missing and those that are unknown."""
    found = [*kept_of(dataclasses.replace(dataset, columns={})).known.columns]
    trained = [*run.then.spec.dataset.found.columns]  # type: ignore[attr-defined] # they are rows
    missing, unknown = (
        [name for name in these if name not in those] for these, those in ((needed, found), (found, trained))
    )
    parts = [f"no column {', '.join(missing)}"] * bool(missing)
    parts += [
        f"{'an ' if len(unknown) == 1 else ''}unknown column{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
    ] * bool(unknown)
    if parts:
        expected = f"the columns that the model takes, {', '.join(needed)}, and none that its training did not have"
        remedy = "name the columns as in the table of the training, and leave out others"
        raise ConfigError([Fault(where=path, found=" and ".join(parts), expected=expected, remedy=remedy)])
    return kept_of(dataset)


def predict(run: Trained, rows: Rows, model: Any, writer: Writer, done: Callable[[int], None]) -> None:
    """Write a prediction for each row, in order; `done` counts them.

    Raises:
        EtlrunError: A step refuses a value of a row, or predictions are not finite.
    """
    example = _inputs(rows, np.arange(min(rows.count, 1)))
    specs = tf.nest.map_structure(lambda of: tf.TensorSpec((None, *of.shape[1:]), of.dtype), example)
    compute = predictor(model, specs)
    for first in range(0, rows.count, _AT_ONCE):
        numbers = np.arange(first, min(first + _AT_ONCE, rows.count))
        outputs = compute(_inputs(rows, numbers))
        places = [*map(str, numbers.tolist())]
        require_finite(run, outputs, lambda place, places=places: f"{rows.path}, row {places[place]}")  # type: ignore[misc]
        writer.write(places, outputs)
        done(len(numbers))


def _inputs(rows: Rows, numbers: Any) -> Any:
    try:
        return rows.inputs(numbers)
    except tf.errors.InvalidArgumentError:
        rows.require_known(numbers)
        raise
