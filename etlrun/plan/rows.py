"""Runs of rows: what is read before they are planned, and the columns that are chosen and fitted then."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import cast

from etlrun.plan.columns import misnamed
from etlrun.plan.spec import RunSpec
from etlrun.plan.targets import output_of, require_columns, require_target, require_values, with_defaults
from etlrun.sources.open import source_type
from etlrun.sources.rows.choice import chosen
from etlrun.sources.rows.fitting import fault_of, fitted
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.rows.table import is_there, names_of
from etlrun.stages.column_categories import Classes
from etlrun.stages.columns import Columns, Output, UnfitStepError, nothing
from etlrun.stages.flow import Feature
from etlrun.stages.rows import Column, Known, Rows, Table
from etlrun.stages.step import Map
from etlrun.system.errors import ConfigError, Fault


def resolved(spec: RunSpec) -> RunSpec:
    """Return a run whose rows have been read and whose columns are fitted; any other run as it is.

    Where the rows are not on this machine, as in a review, the columns are neither chosen nor fitted.

    Raises:
        EtlrunError: The rows can't be read.
    """
    if not isinstance(spec.dataset, Rows) or spec.dataset.known is not None:
        return spec
    dataset = spec.dataset
    spec = with_defaults(spec, dataset)
    of_rows = cast("type[RowsSource]", source_type(dataset))
    if not of_rows.is_there(dataset):
        return _unread(spec, dataset)
    source = of_rows(dataset)
    dataset = dataclasses.replace(dataset, known=source.kept.known)
    source.dataset = dataset
    require_columns(dataset)
    require_target(source)
    columns = _columns(spec)
    if columns is None:
        return dataclasses.replace(spec, dataset=dataset)
    columns = _fitted(columns, source, "" if spec.fit is None else spec.fit.loss)
    classes = _classes(columns)
    return dataclasses.replace(
        spec,
        dataset=dataclasses.replace(dataset, known=dataclasses.replace(dataset.found, classes=classes)),
        transform=_with(spec.transform, columns),
        eval_transform=_with(spec.eval_transform, columns),
    )


def with_columns_of(spec: RunSpec, then: RunSpec) -> RunSpec:
    """Return a run of rows with the columns that another one has chosen and fitted, and its target; others as it is.

    Those of another table have the types of the columns of that one.
    """
    columns = _columns(then)
    if columns is None or not isinstance(then.dataset, Rows):
        return spec
    transform, evaluation = (_with(of, columns) for of in (spec.transform, spec.eval_transform))
    dataset, before = spec.dataset, then.dataset
    if isinstance(dataset, Table) and isinstance(before, Table) and dataset.files != before.files and is_there(dataset):
        types = {name: before.types[name] for name in names_of(dataset) if name in before.examples.features}
        dataset = dataclasses.replace(dataset, columns={**types, **dataset.columns})
    return dataclasses.replace(spec, dataset=dataset, transform=transform, eval_transform=evaluation)


def _unread(spec: RunSpec, dataset: Rows) -> RunSpec:
    """Return a run whose rows are not on this machine: outputs are numbers, and the target is what it is said to be."""
    target, kind = Feature(dtype="float32"), dataset.target_kind
    if kind != "number":
        target = Feature(dtype="int64", is_class=True, is_binary=kind == "binary")
    step = _columns(spec) or Columns(outputs=())
    names = [output.name for output in step.outputs] or dataset.inputs or ["columns"]
    features = {name: Feature(dtype="float32") for name in names} | {dataset.target_name: target}
    known = {name: Column(feature=feature) for name, feature in features.items()}
    columns = dataclasses.replace(step, assumed=tuple(features.items()))
    return dataclasses.replace(
        spec,
        dataset=dataclasses.replace(dataset, known=Known(columns=known, rows={}, identity="", held_bytes=0)),
        transform=_with(spec.transform, columns),
        eval_transform=_with(spec.eval_transform, columns),
    )


def _with(transform: Map, columns: Columns) -> Map:
    steps = tuple(columns if isinstance(step, Columns) else step for step in transform.steps)
    return dataclasses.replace(transform, steps=steps)


def _classes(columns: Columns) -> tuple[str, ...]:
    steps = columns.outputs[-1].steps
    return tuple(map(str, steps[0].values or ())) if steps and isinstance(steps[0], Classes) else ()


def beside(spec: RunSpec) -> RunSpec:
    """Return a run of other examples than rows, whose columns stand beside their other features.

    Raises:
        ConfigError: All faults of the columns.
    """
    columns = _columns(spec)
    if columns is None:
        return spec
    if columns.is_auto:
        remedy = f"set {Columns.path} to a mapping, or null"
        expected = "a dataset of rows"
        raise ConfigError([Fault(where=Columns.path, found="auto", expected=expected, remedy=remedy, is_rule=True)])
    flow = spec.dataset.examples
    faults = list(misnamed(columns, flow.features, (flow.target,)))
    features, outputs = dict(flow.features), list[Output]()
    for output in () if faults else columns.outputs:
        try:
            made, feature = output.fitted(features, nothing)
            outputs.append(made)
            features.setdefault(output.name, feature)
        except UnfitStepError as unfit:
            faults.append(fault_of(output, unfit))
            features.setdefault(output.name, Feature(dtype="int64", categories=1))
    if faults:
        raise ConfigError(faults)
    _require_input(columns, features.keys() - {*columns.dropped, flow.target})
    columns = dataclasses.replace(columns, outputs=tuple(outputs), beside=True)
    return dataclasses.replace(
        spec, transform=_with(spec.transform, columns), eval_transform=_with(spec.eval_transform, columns)
    )


def _require_input(columns: Columns, inputs: Collection[str]) -> None:
    if not inputs:
        notes = f": {'; '.join(columns.notes)}" if columns.notes else ""
        remedy = "name columns with their steps in transform.columns"
        raise ConfigError([Fault(where=Columns.path, found=f"no input{notes}", expected="at least one", remedy=remedy)])


def _columns(spec: RunSpec) -> Columns | None:
    return next((step for step in spec.transform.steps if isinstance(step, Columns)), None)


def _fitted(columns: Columns, source: RowsSource, loss: str) -> Columns:
    """Return the columns of rows that have been read: chosen, if they are to be, and fitted."""
    dataset = source.dataset
    names = {"split": dataset.split}
    if dataset.eval_split is not None:
        names["eval_split"] = dataset.eval_split
    splits = [source.split(name, dataset.key(key)) for key, name in names.items()]
    if columns.is_auto:
        choice = chosen(source, splits[0])
        columns = dataclasses.replace(columns, outputs=choice.outputs, chosen=choice.written, notes=choice.notes)
    outputs = columns.outputs
    if not any(output.is_of_target for output in outputs):  # else another run has fitted them
        if faults := list(misnamed(columns, dataset.examples.features, tuple(dataset.target))):
            raise ConfigError(faults)
        _require_input(columns, columns.output_names)
        outputs = (*outputs, output_of(dataset))
    found = fitted(outputs, source, splits)
    columns = dataclasses.replace(columns, outputs=found.outputs, dropped=(), shares=found.shares, is_auto=False)
    require_values(source, columns, splits, loss)
    return columns
