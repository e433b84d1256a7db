"""Predictions for the rows of tables that a command line names, with the columns that a run has fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from etlrun.plan.plan import given_to_model
from etlrun.sources.rows.source import RowSplit
from etlrun.sources.rows.table import files_of, names_of
from etlrun.sources.rows.tables import TableSource
from etlrun.stages.column_step import UnfitColumnError
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import tf
from etlrun.stages.rows import Table
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError
from etlrun.trained.held import with_tables
from etlrun.trained.load import Trained
from etlrun.trained.numbered import Batch, Lost
from etlrun.trained.raw import of_model
from etlrun.trained.rows import PATH, ROW, Place

_AT_ONCE = 1_024


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of tables, which have the columns that a model needs.

    Attributes:
        source: The tables.
        split: Their rows, in order.
        columns: What makes the inputs of the model.
        flow: The inputs of the model, and its target.
    """

    source: TableSource
    split: RowSplit
    columns: Columns
    flow: Flow

    @cached_property
    def held(self) -> Columns:
        """The columns with their tables, made once for all batches."""
        return with_tables(self.columns)[0]

    @property
    def header(self) -> Place:
        """Names of what tells rows apart."""
        return (PATH, ROW) if len(self.split.paths) > 1 else (ROW,)

    def place(self, number: int) -> str:
        """Return the path of the table of a row, and its number there."""
        return self.split.where(self.split.shards[0], number)

    def cells(self, number: int) -> Place:
        """Return what tells a row apart: its number in its table, behind the path of that if there are several."""
        path, row = self.split.place(self.split.shards[0], number)
        return (path, row or 0) if len(self.split.paths) > 1 else (row or 0,)

    @property
    def inputs_spec(self) -> Any:
        """Specs of the inputs of a batch."""
        first = self._inputs(np.arange(1))
        return tf.nest.map_structure(lambda of: tf.TensorSpec((None, *of.shape[1:]), of.dtype), first)

    def batches(self, _skip_with: str) -> Iterator[Batch]:
        """Yield the inputs of the model for all rows, in order; raise `WorldError` for a value that a step refuses."""
        for first in range(0, self.split.num_examples, _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, self.split.num_examples))
            yield Batch(inputs=self._inputs(numbers), targets=None, weights=None, numbers=numbers)

    def lost(self) -> Iterator[Lost]:
        """Yield nothing: each row is predicted."""
        yield from ()

    def _inputs(self, numbers: Any) -> Any:
        kept = self.source.kept
        names = dict.fromkeys(of for output in self.columns.outputs for of in output.of if of in kept.known.columns)
        try:
            given = self.held.given({name: tf.constant(kept.take(name, numbers)) for name in names})
        except tf.errors.InvalidArgumentError:
            self._require_known(numbers)
            raise
        return self.flow.given(given)

    def _require_known(self, numbers: Any) -> None:
        """Raise `WorldError` for the first of these rows with a value that a step of its columns refuses."""
        kept = self.source.kept
        for number in numbers:
            example: dict[str, Any] = {}
            for output in self.held.outputs:
                names = [name for name in output.of if name in kept.known.columns]
                taken = {name: tf.constant(kept.take(name, np.array([number]))) for name in names}
                try:
                    example[output.name] = output.given({**example, **taken})
                except tf.errors.InvalidArgumentError as error:
                    values = [of.numpy()[0] for of in taken.values()]
                    raise WorldError(
                        where=f"{self.place(number)}, {', '.join(output.of)}",
                        found=", ".join(
                            of.decode(errors="replace") if isinstance(of, bytes) else str(of) for of in values
                        ),
                        expected=f"values that the steps of {output.name} accept, as in the training",
                        remedy="repair the value, or train with a `lookup` whose `oov` is 1",
                    ) from error


def opened(run: Trained, patterns: Sequence[str]) -> Rows:
    """Return the rows of tables for the model of a run.

    Raises:
        EtlrunError: One can't be read, lacks columns or values that the model needs, or has columns that the table of
            the training does not have.
    """
    dataset, flow = run.then.spec.dataset, given_to_model(run.then.train)
    assert isinstance(dataset, Table)  # noqa: S101 - for mypy
    columns = of_model(run.then)
    known = dataset.found.columns
    needed = dict.fromkeys(name for output in columns.outputs for name in output.of if name in known)
    types = {name: type_ for name, type_ in dataset.types.items() if name in needed}
    changes: dict[str, Any] = {"files": tuple(patterns), "columns": types, "order": "file", "split_by": None}
    table = dataclasses.replace(dataset, **changes, known=None)
    paths = _paths(table)
    source = _read(table, paths[0], run, [*needed])
    features, faults = {name: of.feature for name, of in source.kept.known.columns.items()}, list[Fault]()
    for output in columns.outputs:
        try:
            features = {output.name: output.gives(features), **features}
        except UnfitColumnError as unfit:
            found, remedy = f"{output.name}: {unfit.found}", "write such values, or train with other steps on it"
            faults.append(Fault(where=", ".join(paths), found=found, expected=unfit.expected, remedy=remedy))
    if faults:
        raise ConfigError(faults)
    return Rows(source=source, split=source.split("train", "PATH"), columns=columns, flow=flow)


def _paths(table: Table) -> tuple[str, ...]:
    """Return the paths of the tables; raise `EtlrunError` for patterns that name none."""
    try:
        return tuple(path for paths in files_of(table).values() for path in paths)
    except EtlrunError as error:
        raise EtlrunError([_named(of) for of in error.faults]) from error


def _named(fault: Fault) -> Fault:
    """Return the fault of a table as one of the command line, which has neither splits nor types of its own."""
    where = "PATH" if fault.where == Table.key("files") else fault.where
    declares = Table.key("columns") in fault.remedy
    remedy = "repair the value: the column has the type of the training" if declares else fault.remedy
    return dataclasses.replace(fault, where=where, found=fault.found.removesuffix(" for train"), remedy=remedy)


def _read(dataset: Table, path: str, run: Trained, needed: list[str]) -> TableSource:
    """Return the tables; raise `ConfigError` with those that are missing and those that are unknown."""
    found = names_of(dataset)
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
    try:
        return TableSource(dataset)
    except EtlrunError as error:
        raise EtlrunError([_named(of) for of in error.faults]) from error
