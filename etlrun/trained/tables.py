"""Predictions for the rows of files that a command line names, with the columns that a run has fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from etlrun.graph.datasets import with_tables
from etlrun.planning.plan import given_to_model
from etlrun.remote.copies import name_of
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.sources.rows.fitting import unfit_for
from etlrun.sources.rows.read import OR_REPLACE
from etlrun.sources.rows.source import RowSplit, RowsSource, TableSource, as_tensor
from etlrun.sources.rows.table import files_of, names_of
from etlrun.stages.columns import Columns
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import tf
from etlrun.stages.load import padded
from etlrun.stages.rows import Arrays, Rows, Table, TextFolder
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError
from etlrun.trained.load import Trained
from etlrun.trained.predict import ModelBatch, Reading
from etlrun.trained.raw import of_model
from etlrun.trained.rows import PATH, ROW, Place

_AT_ONCE = 1_024
_BLANK = ("", "NA", "null")
"""Texts without a value in tables, if those of the training were none."""


class TableRows(Reading):
    """The rows of tables or arrays, which have the columns that a model needs, in order; each of them is predicted."""

    source: RowsSource
    split: RowSplit

    def __init__(self, source: RowsSource, split: RowSplit, columns: Columns, flow: Flow) -> None:
        """Read rows of whose `columns` the inputs of a model, those of `flow`, are made."""
        are_several = len(split.file_rows) > 1  # files, each of which has all columns
        super().__init__(source, split, (PATH, ROW) if are_several else (ROW,))
        self._flow, self._columns = flow, with_tables(columns)[0]
        self.inputs_spec = flow.given(specs_of(flow, self._outputs(np.arange(1))))

    def cells(self, number: int) -> Place:
        path, row = self.split.place(self.split.shards[0], number)
        return (path, row or 0)[-len(self.header) :]

    def batches(self, skip_with: str) -> Iterator[ModelBatch]:
        for first in range(0, self.split.num_examples, _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, self.split.num_examples))
            self.seen[numbers] = True
            yield ModelBatch(self._flow.given(self._outputs(numbers)), numbers)

    def _outputs(self, numbers: Any) -> dict[str, Any]:
        kept = self.source.kept
        names = dict.fromkeys(of for output in self._columns.outputs for of in output.of if of in kept.known.columns)
        try:
            found = padded(self._columns.given({name: as_tensor(kept.take(name, numbers)) for name in names}))
        except tf.errors.InvalidArgumentError:
            self._require_known(numbers)
            raise
        self.require_held(self._columns.outputs, found, numbers)
        return found

    def _require_known(self, numbers: Any) -> None:
        """Raise `WorldError` for the first of these rows with a value that a step of its columns refuses."""
        kept = self.source.kept
        for number in numbers:
            example: dict[str, Any] = {}
            for output in self._columns.outputs:
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
    sequences = {name: flow.features[name].shape for name in flow.sequences}
    shapes = {name: (None, *sequences.get(name, of.shape[1:])) for name, of in outputs.items()}
    return {name: tf.TensorSpec(shapes[name], of.dtype) for name, of in outputs.items()}


def opened(run: Trained, given: Sequence[str]) -> TableRows:
    """Return the rows of tables or of arrays for the model of a run.

    `given` are patterns of tables, the path of an `.npz`, or those of an `.npy` for each column, named as it is.

    Raises:
        EtlrunError: One can't be read, lacks columns or values that the model needs, or has columns that the rows of
            the training do not have.
    """
    dataset, now, columns = run.then.spec.dataset, run.plan.spec.dataset, of_model(run.then)
    assert isinstance(dataset, Rows)  # noqa: S101 - for mypy
    known, then = dataset.found.columns, dataset if isinstance(dataset, Table) else None
    needed = [*dict.fromkeys(name for output in columns.outputs for name in output.of if name in known)]
    values = {of.name: getattr(dataset, of.name) for of in dataclasses.fields(Rows)}
    values |= {"order": "file", "split_by": None, "known": None, "storage": run.storage}  # rows that are read in order
    is_archive = len(given) == 1 and given[0].endswith(".npz")
    try:
        if is_archive or all(path.endswith(".npy") for path in given):
            files: Any = given[0] if is_archive else {Path(path).stem: path for path in given}
            source, paths = cast("RowsSource", ArraysSource(Arrays(**values, files=files))), given
            _require_columns(", ".join(paths), [*source.kept.known.columns], [*known], needed)
        else:
            types = then.types if then else {name: known[name].type for name in needed}
            table = Table(
                **values,
                files=tuple(given),
                errors=getattr(now, "errors", "strict"),
                csv=getattr(now, "csv", None),
                columns={name: of for name, of in types.items() if name in needed},
                missing=then.missing if then else _BLANK,
                strip=then is not None and then.strip,
            )
            paths = [name_of(path) for of in files_of(table).values() for path in of]
            _require_columns(paths[0], names_of(table), [*known, *dataset.found.left_out], needed)
            source = TableSource(table)
    except ConfigError:
        raise
    except EtlrunError as error:
        raise EtlrunError([_named(of, dataset) for of in error.faults]) from error
    split, where, faults = source.split("train", "PATH"), ", ".join(paths), list[Fault]()
    for name in needed:
        found, expected = source.kept.known.columns[name].feature.shape, known[name].feature.shape
        if found != expected:
            remedy = "save the column as an array of this shape, in an .npz or an .npy"
            faults.append(
                Fault(where, f"{name} of shape {found} in each row", f"{expected}, as in the training", remedy)
            )
    if faults := faults or [*unfit_for(source, columns.outputs)]:
        raise ConfigError(faults)
    return TableRows(source, split, columns, given_to_model(run.then.train))


def _named(fault: Fault, dataset: Rows) -> Fault:
    """Return the fault of rows as one of the command line, which has neither splits nor types of its own."""
    where = "PATH" if fault.where == Table.key("files") else fault.where
    remedy = fault.remedy if isinstance(dataset, Table | TextFolder) else fault.remedy.removesuffix(OR_REPLACE)
    if Table.key("columns") in remedy:
        remedy = "repair the value: the column has the type of the training"
    if Table.key("csv") in remedy and not isinstance(dataset, Table):
        remedy = "write it as csv with commas, and with a quote at the end of each value in quotes"
    return dataclasses.replace(fault, where=where, found=fault.found.removesuffix(" for train"), remedy=remedy)


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
