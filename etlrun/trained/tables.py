"""Predictions for the rows of files that a command line names, with the columns that a run has fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from etlrun.graph.datasets import with_tables
from etlrun.planning.plan import given_to_model
from etlrun.remote.copies import name_of
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.sources.rows.fitting import unfit_for
from etlrun.sources.rows.lines import OR_REPLACE
from etlrun.sources.rows.source import RowSplit, RowsSource, TableSource, as_tensor
from etlrun.sources.rows.table import ENDS, files_of, names_of
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import tf
from etlrun.stages.load import padded
from etlrun.stages.rows import Arrays, Column, Rows, Table, TextFolder
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError
from etlrun.system.values import frozen
from etlrun.trained.load import Trained
from etlrun.trained.predict import Lost, ModelBatch, require_held
from etlrun.trained.raw import of_model
from etlrun.trained.rows import PATH, ROW, Place

_AT_ONCE = 1_024
_BLANK = ("", "NA", "null")
"""Texts without a value in tables, if those of the training were none."""


@frozen
class TableRows:
    """The rows of tables or arrays, which have the columns that a model needs.

    Attributes:
        source: The tables or arrays.
        split: Their rows, in order.
        columns: What makes the inputs of the model.
        flow: The inputs of the model, and its target.
    """

    source: RowsSource
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
        return (PATH, ROW) if self._are_several else (ROW,)

    @property
    def _are_several(self) -> bool:
        """Whether the rows are those of several files, each of which has all columns."""
        return len(self.split.file_rows) > 1

    def place(self, number: int) -> str:
        """Return the path of the table of a row, and its number there."""
        return self.split.where(self.split.shards[0], number)

    def cells(self, number: int) -> Place:
        """Return what tells a row apart: its number in its table, behind the path of that if there are several."""
        path, row = self.split.place(self.split.shards[0], number)
        return (path, row or 0) if self._are_several else (row or 0,)

    @property
    def inputs_spec(self) -> Any:
        """Specs of the inputs of a batch."""
        return self.flow.given(specs_of(self.flow, self._outputs(np.arange(1))))

    def batches(self, _skip_with: str) -> Iterator[ModelBatch]:
        """Yield the inputs of the model for all rows, in order; raise `WorldError` for a value that a step refuses."""
        for first in range(0, self.split.num_examples, _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, self.split.num_examples))
            yield ModelBatch(inputs=self._inputs(numbers), targets=None, weights=None, numbers=numbers)

    def lost(self) -> Iterator[Lost]:
        """Yield nothing: each row is predicted."""
        yield from ()

    def _inputs(self, numbers: Any) -> Any:
        return self.flow.given(self._outputs(numbers))

    def _outputs(self, numbers: Any) -> dict[str, Any]:
        kept = self.source.kept
        names = dict.fromkeys(of for output in self.columns.outputs for of in output.of if of in kept.known.columns)
        try:
            found = padded(self.held.given({name: as_tensor(kept.take(name, numbers)) for name in names}))
        except tf.errors.InvalidArgumentError:
            self._require_known(numbers)
            raise
        require_held(kept, self.columns.outputs, found, numbers, map(self.place, numbers.tolist()))
        return found

    def _require_known(self, numbers: Any) -> None:
        """Raise `WorldError` for the first of these rows with a value that a step of its columns refuses."""
        kept = self.source.kept
        for number in numbers:
            example: dict[str, Any] = {}
            for output in self.held.outputs:
                names = [name for name in output.of if name in kept.known.columns]
                given = {name: as_tensor(kept.take(name, np.array([number]))) for name in names}
                try:
                    example[output.name] = output.given({**example, **given})
                    padded({output.name: example[output.name]})
                except tf.errors.InvalidArgumentError as error:
                    values = [of.numpy()[0] for of in given.values()]
                    raise WorldError(
                        f"{self.place(number)}, {', '.join(output.of)}",
                        ", ".join(of.decode(errors="replace") if isinstance(of, bytes) else str(of) for of in values),
                        f"values that the steps of {output.name} accept, as in the training",
                        "repair the value, or train with a `lookup` whose `oov` is 1",
                    ) from error


def specs_of(flow: Flow, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specs of batches of any size, and of sequences of any length, as those of columns by name."""
    shapes = {name: (None, *values.shape[1:]) for name, values in outputs.items()}
    shapes |= {name: (None, *flow.features[name].shape) for name in flow.sequences}
    return {name: tf.TensorSpec(shapes[name], values.dtype) for name, values in outputs.items()}


def opened(run: Trained, given: Sequence[str]) -> TableRows:
    """Return the rows of tables or of arrays for the model of a run.

    `given` are patterns of tables, the path of an `.npz`, or those of an `.npy` for each column, named as it is.

    Raises:
        EtlrunError: One can't be read, lacks columns or values that the model needs, or has columns that the rows of
            the training do not have.
    """
    dataset, flow = run.then.spec.dataset, given_to_model(run.then.train)
    assert isinstance(dataset, Rows)  # noqa: S101 - for mypy
    columns = of_model(run.then)
    known = dataset.found.columns
    needed = [*dict.fromkeys(name for output in columns.outputs for name in output.of if name in known)]
    are_arrays = all(path.endswith(".npy") for path in given) or (len(given) == 1 and given[0].endswith(".npz"))
    try:
        source, paths = (_arrays if are_arrays else _tables)(run, dataset, given, needed)
    except ConfigError:
        raise
    except EtlrunError as error:
        types = [known[name].type for name in needed]
        raise EtlrunError([_named(of, dataset, types) for of in error.faults]) from error
    found, where = source.kept.known.columns, ", ".join(paths)
    _require_columns(where, [*found], [*known], needed)
    split = source.split("train", "PATH")
    if faults := [*_unfit(where, source, columns, {name: known[name] for name in needed})]:
        raise ConfigError(faults)
    return TableRows(source=source, split=split, columns=columns, flow=flow)


def _unfit(where: str, source: RowsSource, columns: Columns, known: Mapping[str, Column]) -> Iterator[Fault]:
    """Yield what does not fit in rows: arrays of another shape than the `known` columns, or values for their steps."""
    found = {name: source.kept.known.columns[name].feature.shape for name in known}
    unlike = {name: of.feature.shape for name, of in known.items() if found[name] != of.feature.shape}
    for name, expected in unlike.items():
        remedy = "save the column as an array of this shape, in an .npz or an .npy"
        yield Fault(where, f"{name} of shape {found[name]} in each row", f"{expected}, as in the training", remedy)
    if not unlike:
        yield from unfit_for(source, columns.outputs)


def _arrays(run: Trained, dataset: Rows, given: Sequence[str], _: Sequence[str]) -> tuple[RowsSource, Sequence[str]]:
    """Return arrays with their paths; those of `.npy` are columns of the names of their files."""
    files: Any = given[0] if given[0].endswith(".npz") else {Path(path).stem: path for path in given}
    return ArraysSource(Arrays(**_like(dataset), files=files, storage=run.storage)), given


def _tables(
    run: Trained, dataset: Rows, given: Sequence[str], needed: Sequence[str]
) -> tuple[RowsSource, Sequence[str]]:
    """Return tables, whose columns have the types of the training, with their paths."""
    known, now = dataset.found.columns, run.plan.spec.dataset
    types = dataset.types if isinstance(dataset, Table) else {name: known[name].type for name in needed}
    table = Table(
        **_like(dataset),
        files=tuple(given),
        storage=run.storage,
        errors=getattr(now, "errors", "strict"),
        csv=getattr(now, "csv", None),
        columns={name: of for name, of in types.items() if name in needed},
        missing=dataset.missing if isinstance(dataset, Table) else _BLANK,
        strip=isinstance(dataset, Table) and dataset.strip,
    )
    paths = [name_of(path) for of in files_of(table).values() for path in of]
    _require_columns(paths[0], names_of(table), [*known, *dataset.found.left_out], needed)
    return TableSource(table), paths


def _like(dataset: Rows) -> dict[str, Any]:
    """Return the values of a dataset that those of any rows have, for rows that are read in order."""
    values = {of.name: getattr(dataset, of.name) for of in dataclasses.fields(Rows)}
    return {**values, "order": "file", "split_by": None, "known": None}


def _named(fault: Fault, dataset: object, types: Sequence[str]) -> Fault:
    """Return the fault of rows as one of the command line, which has neither splits nor types of its own.

    `types` are those of the columns that the model takes.
    """
    where = "PATH" if fault.where == Table.key("files") else fault.where
    remedy = fault.remedy if isinstance(dataset, Table | TextFolder) else fault.remedy.removesuffix(OR_REPLACE)
    if Table.key("columns") in remedy:
        remedy = "repair the value: the column has the type of the training"
    if Table.key("csv") in remedy and not isinstance(dataset, Table):
        remedy = "write it as csv with commas, and with a quote at the end of each value in quotes"
    ends = f"{ENDS}{', or in .txt with a text in each line' if types == ['text'] else ''}"
    expected = fault.expected.replace(ENDS, ends)
    found = fault.found.removesuffix(" for train")
    return dataclasses.replace(fault, where=where, found=found, expected=expected, remedy=remedy)


def _require_columns(where: str, found: Sequence[str], trained: Sequence[str], needed: Sequence[str]) -> None:
    """Raise `ConfigError` with the columns that are missing, and those that are unknown."""
    missing, unknown = (
        [name for name in these if name not in those] for these, those in ((needed, found), (found, trained))
    )
    parts = [f"no column {', '.join(missing)}"] if missing else []
    parts += [f"the unknown {', '.join(unknown)}"] if unknown else []
    if parts:
        expected = f"the columns that the model takes, {', '.join(needed)}, and none that its training did not have"
        remedy = "name the columns as in the table of the training, and leave out others"
        raise ConfigError([Fault(where, " and ".join(parts), expected, remedy)])
