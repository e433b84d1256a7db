"""Targets of rows: their outputs, and what is wrong with their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from etlrun.sources.rows.dividing import CORRECT, as_text, first_lacking, in_rows
from etlrun.sources.rows.kinds import has_fraction
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.sources.rows.table import taken_for_none
from etlrun.stages.column_categories import Classes
from etlrun.stages.columns import TARGET_STEPS, Binary, Columns, Labels, Number, Output, Weight, labels_in
from etlrun.stages.flow import Feature
from etlrun.stages.rows import Rows
from etlrun.stages.targets import Target
from etlrun.system.errors import ConfigError, Fault, did_you_mean, override

_TWO = 2
_MOST_VALUES = 5


def outputs_of(dataset: Rows) -> tuple[Output, ...]:
    """Return the outputs of the targets of rows, and of the weight if there is one."""
    found = [
        Output(name=of.name, of=(of.name,), steps=(TARGET_STEPS[of.kind](**of.options),)) for of in dataset.targets
    ]
    if dataset.weight is not None:
        found.append(Output(name=dataset.weight, of=(dataset.weight,), steps=(Weight(),)))
    return tuple(found)


def require_columns(dataset: Rows) -> None:
    """Raise `ConfigError` with the columns that a config names or takes, and that the rows don't have, or not so."""
    known = dataset.found.columns
    if unkept := [*_unkept(dataset)]:
        raise ConfigError(unkept)
    missing = dict.fromkeys(name for name in dataset.inputs or () if name not in known)
    if missing:
        found, expected = f"no column {', '.join(missing)}", f"columns of the rows: {', '.join(known)}"
        close = did_you_mean(next(iter(missing)), known, otherwise="check the names")
        remedy = close if len(missing) == 1 else "check the names"
        raise ConfigError([Fault("dataset.inputs", found, expected, remedy)])


def _unkept(dataset: Rows) -> Iterator[Fault]:
    named = (*(dataset.inputs or ()), *dataset.target, *getattr(dataset, "columns", ()))
    for name, what in dataset.found.left_out.items():
        if dataset.inputs is None or name in named:
            is_read_as_text = what.startswith("values of type") and "<" not in what  # as that of a struct has
            yield Fault(
                dataset.key("target" if name in dataset.target else "inputs"),
                f"{name}, which has {what}",
                "a number, truth value, text, date, timestamp, or list of numbers or of texts in each row",
                "name the other columns in dataset.inputs, or write its parts as columns of their own"
                + f"; it is read as text by {override('dataset.columns', name, 'text')}" * is_read_as_text,
            )


def require_targets(source: RowsSource) -> None:
    """Raise `ConfigError` if a column to predict is missing, or has rows without a value or of another type.

    The same of the weights of rows, which are numbers of at least 0.
    """
    faults = [fault for target in source.dataset.targets for fault in _unfit(source, target)]
    faults += _unfit_weights(source)
    if faults:
        raise ConfigError(faults)


def _unfit(source: RowsSource, target: Target) -> Iterator[Fault]:
    """Yield the first fault of a column to predict."""
    name, kind, columns = target.name, target.kind, source.dataset.found.columns
    column = columns.get(name)
    if column is None:
        remedy = did_you_mean(name, columns, otherwise="check its name")
        yield _fault(f"no column {name}", f"one of {', '.join(columns)}", remedy)
        return
    if column.missing and (target.separator is None or column.is_joined):
        yield _missing(source, name, "a value in each row to learn from")
        return
    is_text, is_time = column.feature.dtype == "string", column.feature.format == "timestamp"
    if kind == "labels":
        yield from _unfit_labels(source, target, column.feature)
    elif column.is_joined:
        remedy = f"set {override('dataset.target', name, 'labels')}, or name another column"
        yield _fault(f"{name}, which is lists of texts", "one value in each row", remedy)
    elif kind != "number" and column.feature.shape:
        found = f"{name} of shape {list(column.feature.shape)} in each row"
        remedy = "save the array as y.reshape(-1), or its argmax of axis 1"
        yield _fault(found, "one value in each row as a class", remedy)
    elif column.feature.is_sequence:
        yield _fault(f"{name}, which is lists of different lengths", "a number in each row", "name another column")
    elif kind == "number" and (is_text or is_time):
        shown, is_mostly = as_text(source.kept, name, "number") if is_text else ("a timestamp", False)
        remedy = CORRECT if is_mostly else f"set {override('dataset.target', name, 'class')}, or clean the column"
        if is_time:
            remedy = "write it as a number, such as the days since the first one"
        yield _fault(f"{name}, which is {shown}", "a column of numbers", remedy)
    elif kind != "number" and (is_time or has_fraction(source.kept.arrow(name))):
        found = f"{name}, which is {'a timestamp' if is_time else 'a number with a fraction'}"
        key, value = ("dataset.columns", "text") if is_time else ("dataset.target", "number")
        remedy = f"set {override(key, name, value)}"
        yield _fault(found, "text, integers or truth values as classes", remedy)


def _unfit_labels(source: RowsSource, target: Target, feature: Feature) -> Iterator[Fault]:
    """Yield the fault of a column that has not the form of several labels."""
    name, is_text = target.name, feature.dtype == "string" and not feature.shape
    if target.separator is not None and not is_text:
        expected = "a column of text, of which the separator divides the labels"
        yield _fault(f"{name}, which is {feature}", expected, f"set {override('dataset.target', name, 'labels')}")
    elif target.separator is None and is_text:
        value = next((of for of in source.kept.arrow(name).to_pylist() if of), b"").decode(errors="replace")
        remedy = "set " + override("dataset.target", name, '{labels: ","}')
        yield _fault(f"{name}, which is text, such as {value!r}", "the text between two labels", remedy)
    elif target.separator is None and feature.is_sequence:
        remedy = f"set {override('dataset.columns', name, 'text')}, which reads them as labels, or name another column"
        yield _fault(f"{name}, which is lists of numbers", "lists of texts as labels", remedy)
    elif target.separator is None and (len(feature.shape) != 1 or (feature.low or 0, feature.high or 1) != (0, 1)):
        found = f"{name} of shape {list(feature.shape)}, {feature}"
        yield _fault(found, "an array with a 0 or a 1 for each label", "save such an array, or name another column")


def _unfit_weights(source: RowsSource) -> Iterator[Fault]:
    """Yield the fault of a column of weights."""
    name, columns = source.dataset.weight, source.dataset.found.columns
    if name is None:
        return
    where, remedy = "dataset.weight", f"correct the column, or set {source.dataset.key('weight')}=null"
    column = columns.get(name)
    if column is None:
        expected = f"one of {', '.join(columns)}"
        remedy = did_you_mean(name, columns, otherwise="check its name")
        yield Fault(where, f"no column {name}", expected, remedy)
    elif column.feature.dtype == "string" or column.feature.format == "timestamp" or column.feature.shape:
        found, expected = f"{name}, which is {column.feature}", "a column with a number in each row"
        yield Fault(where, found, expected, remedy)
    elif column.missing:
        yield replace(_missing(source, name, "a weight of each row"), where=where, remedy=remedy)
    elif (column.feature.low or 0) < 0:
        values = source.kept.arrow(name)
        row = int(pc.index(pc.less(values, 0), value=True).as_py())
        found = f"{name} of {values[row].as_py():g} in row {row}"
        yield Fault(where, found, "weights of at least 0", remedy)


def _missing(source: RowsSource, name: str, expected: str) -> Fault:
    row = first_lacking(source.kept, name)
    count = source.dataset.found.columns[name].missing
    why, otherwise = taken_for_none(source.dataset, name)
    found = f"{in_rows(count)} of {name} without a value{why}, the first of which is row {row}"
    return _fault(found, expected, f"leave these rows out of the files{otherwise}")


def require_values(source: RowsSource, columns: Columns, splits: list[RowSplit], loss: str) -> None:
    """Raise `ConfigError` if the values to learn from are all the same, or those of the validation are new classes."""
    steps = {output.name: output.steps[0] for output in columns.outputs if output.is_of_target}
    faults = [fault for name in source.dataset.target for fault in _faults(name, source, steps[name], splits, loss)]
    weight = source.dataset.weight
    for split in splits:
        if weight is not None and not source.kept.take(weight, split.rows).any():
            found = f"{weight}, which is 0 in each of the {split.num_examples:,} rows of {split.name}"
            remedy = f"choose another split, or set {source.dataset.key('weight')}=null"
            expected = "a positive weight of some row"
            faults.append(Fault("dataset.weight", found, expected, remedy))
    if faults:
        raise ConfigError(faults)


def _faults(name: str, source: RowsSource, step: Any, splits: list[RowSplit], loss: str) -> Iterator[Fault]:
    train = splits[0]
    values = list(step.values or ()) if isinstance(step, Classes) else []
    if (isinstance(step, Number) and step.std == 0) or len(values) == 1:
        value = values[0] if values else f"{step.mean:g}"
        found = f"{name}, which is {value} in each of the {train.num_examples:,} rows of {train.name}"
        yield _fault(found, "values that differ", "predict another column, or train on another split")
    elif isinstance(step, Binary) and len(values) != _TWO:
        shown = ", ".join(map(str, values[:_MOST_VALUES])) + (", …" if len(values) > _MOST_VALUES else "")
        found = f"{name} of {len(values):,} values in {train.name}: {shown}"
        yield _fault(found, "two values for binary", f"set {override('dataset.target', name, 'class')}")
    if isinstance(step, Number) and loss == "poisson":
        if step.standardize:
            yield _fault("standardize with trainer.loss=poisson", "number, whose logarithm it predicts", "leave it out")
        if (step.least or 0) < 0:
            found = f"{name} from {step.least:g} on with trainer.loss=poisson"
            yield _fault(found, "counts and other numbers of at least 0", "choose another trainer.loss")
    for split in splits[1:] if values else ():
        yield from _new_classes(name, source, {*values}, train, split)
    for split in splits[1:] if isinstance(step, Labels) and step.separator is not None else ():
        yield from _new_labels(name, source, step, train, split)


def _new_classes(
    name: str, source: RowsSource, known: set[str | int], train: RowSplit, split: RowSplit
) -> Iterator[Fault]:
    """Yield the fault of classes in a split that training lacks."""
    found = source.kept.take(name, split.rows)
    new = [place for place, value in enumerate(found.tolist()) if _plain(value) not in known]
    if new:
        names = list(dict.fromkeys(str(_plain(found[place])) for place in new))
        yield _of_new(name, names, new, train, split, "class")


def _new_labels(name: str, source: RowsSource, step: Labels, train: RowSplit, split: RowSplit) -> Iterator[Fault]:
    """Yield the fault of labels in a split that training lacks."""
    found, known = source.kept.arrow(name).take(split.rows), {*(step.values or ())}
    new = {label: None for label in labels_in(found, step.separator or "") if label not in known}
    if new:
        each = [labels_in(found[place : place + 1], step.separator or "") for place in range(len(found))]
        yield _of_new(name, [*new], [place for place, of in enumerate(each) if new.keys() & of], train, split, "label")


def _of_new(name: str, names: list[str], places: list[int], train: RowSplit, split: RowSplit, noun: str) -> Fault:
    shown = ", ".join(names[:_MOST_VALUES]) + (", …" if len(names) > _MOST_VALUES else "")
    first = int(np.min(split.rows[places]))
    rows = f"{in_rows(len(places))} of {split.name}, the first of which is row {first}"
    expected = f"values that {train.name} has, since no other {noun} is learned"
    remedy = "choose splits that have all classes, such as a larger training split, or leave these rows out"
    return _fault(
        f"{name} of {shown} in {rows}", expected, remedy.replace("classes", f"{noun}{'e' * (noun == 'class')}s")
    )


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else int(value)


def _fault(found: str, expected: str, remedy: str) -> Fault:
    return Fault("dataset.target", found, expected, remedy)
