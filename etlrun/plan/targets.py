"""Targets of rows: their outputs, what a config leaves to their kind, and what is wrong with their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pyarrow.compute as pc

from etlrun.plan.spec import RunSpec
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_categories import Classes
from etlrun.stages.columns import Columns, Output
from etlrun.stages.rows import Rows
from etlrun.stages.targets import KINDS, Binary, Number
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError, Fault

_TWO = 2
_MOST_VALUES = 5


def with_defaults(spec: RunSpec, dataset: Rows) -> RunSpec:
    """Return a run with the loss and the metrics of the kind of its target where a config leaves them as they are."""
    trainer, kind = spec.fit, KINDS[dataset.target_kind]
    if trainer is None or not spec.model.learns:
        return spec
    loss: Any = kind.losses[0] if trainer.loss == Trainer.loss else trainer.loss
    metrics = kind.metrics if trainer.metrics == Trainer.metrics else trainer.metrics
    return dataclasses.replace(spec, trainer=dataclasses.replace(trainer, loss=loss, metrics=metrics))


def output_of(dataset: Rows) -> Output:
    """Return the output of the target of rows."""
    name, is_standardized = dataset.target_name, isinstance(dataset.target[dataset.target_name], dict)
    steps = {"class": Classes(), "binary": Binary(), "number": Number(standardize=is_standardized)}
    return Output(name=name, of=(name,), steps=(steps[dataset.target_kind],))


def require_columns(dataset: Rows) -> None:
    """Raise `ConfigError` with the columns that `dataset.inputs` names, and that the rows do not have."""
    known = dataset.found.columns
    missing = dict.fromkeys(name for name in dataset.inputs or () if name not in known)
    if missing:
        found, expected = f"no column {', '.join(missing)}", f"columns of the rows: {', '.join(known)}"
        raise ConfigError([Fault(where="dataset.inputs", found=found, expected=expected, remedy="check the names")])


def require_target(source: RowsSource) -> None:
    """Raise `ConfigError` if the column to predict is missing, or has rows without a value or of another type."""
    dataset = source.dataset
    name, kind = dataset.target_name, dataset.target_kind
    column = dataset.found.columns.get(name)
    if column is None:
        _refuse(f"no column {name}", f"one of {', '.join(dataset.found.columns)}", "check its name")
    if column.missing:
        row = int(pc.index(pc.is_null(source.kept.arrow(name)), value=True).as_py())
        found = f"{_rows(column.missing)} of {name} without a value, the first of which is row {row}"
        _refuse(found, "a value in each row to learn from", "leave these rows out of the files")
    if kind != "number" and column.feature.shape:
        found = f"{name} of shape {list(column.feature.shape)} in each row"
        _refuse(found, "one value in each row as a class", "save the array as y.reshape(-1), or its argmax of axis 1")
    is_text, is_time = column.feature.dtype == "string", column.feature.format == "timestamp"
    if kind == "number" and (is_text or is_time):
        value = source.kept.arrow(name)[0].as_py()
        shown = f", such as {value.decode(errors='replace')!r} in row 0" if is_text else ""
        found = f"{name}, which is {'text' if is_text else 'a timestamp'}{shown}"
        remedy = f"set dataset.target={{{name}: class}}, or clean the column"
        _refuse(found, "a column of numbers", remedy)
    if kind != "number" and (is_time or column.feature.dtype.startswith("float")):
        found = f"{name}, which is {'a timestamp' if is_time else 'a number with a fraction or without an end'}"
        _refuse(found, "text, integers or truth values as classes", f"set dataset.target={{{name}: number}}")


def require_values(source: RowsSource, columns: Columns, splits: list[RowSplit], loss: str) -> None:
    """Raise `ConfigError` if the values to learn from are all the same, or those of the validation are new classes."""
    faults = list(_faults(source.dataset, source, columns.outputs[-1].steps[0], splits, loss))
    if faults:
        raise ConfigError(faults)


def _faults(dataset: Rows, source: RowsSource, step: Any, splits: list[RowSplit], loss: str) -> Iterator[Fault]:
    name, train = dataset.target_name, splits[0]
    values = list(step.values or ()) if isinstance(step, Classes) else []
    if (isinstance(step, Number) and step.std == 0) or len(values) == 1:
        value = values[0] if values else f"{step.mean:g}"
        found = f"{name}, which is {value} in each of the {train.num_examples:,} rows of {train.name}"
        yield _fault(found, "values that differ", "predict another column, or train on another split")
    elif isinstance(step, Binary) and len(values) != _TWO:
        shown = ", ".join(map(str, values[:_MOST_VALUES])) + (", …" if len(values) > _MOST_VALUES else "")
        found = f"{name} of {len(values):,} values in {train.name}: {shown}"
        yield _fault(found, "two values for binary", f"set dataset.target={{{name}: class}}")
    if isinstance(step, Number) and loss == "poisson":
        if step.standardize:
            yield _fault("standardize with trainer.loss=poisson", "number, whose logarithm it predicts", "leave it out")
        if (step.least or 0) < 0:
            found = f"{name} from {step.least:g} on with trainer.loss=poisson"
            yield _fault(found, "counts and other numbers of at least 0", "choose another trainer.loss")
    for split in splits[1:] if values else ():
        yield from _new_classes(name, source, {*values}, train, split)


def _new_classes(
    name: str, source: RowsSource, known: set[str | int], train: RowSplit, split: RowSplit
) -> Iterator[Fault]:
    """Yield the fault of classes in a split that training lacks."""
    found = source.kept.take(name, split.rows)
    new = [place for place, value in enumerate(found.tolist()) if _plain(value) not in known]
    if new:
        names = list(dict.fromkeys(str(_plain(found[place])) for place in new))
        shown = ", ".join(names[:_MOST_VALUES]) + (", …" if len(names) > _MOST_VALUES else "")
        first = int(np.min(split.rows[new]))
        rows = f"{_rows(len(new))} of {split.name}, the first of which is row {first}"
        expected = f"values that {train.name} has, since no other class is learned"
        remedy = "choose splits that have all classes, such as a larger training split, or leave these rows out"
        yield _fault(f"{name} of {shown} in {rows}", expected, remedy)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else int(value)


def _fault(found: str, expected: str, remedy: str) -> Fault:
    return Fault(where="dataset.target", found=found, expected=expected, remedy=remedy)


def _refuse(found: str, expected: str, remedy: str) -> NoReturn:
    raise ConfigError([_fault(found, expected, remedy)])
