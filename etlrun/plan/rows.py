"""Runs of rows: what is read before they are planned, and the columns that are chosen and fitted then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from etlrun.plan.spec import RunSpec
from etlrun.plan.targets import output_of, require_columns, require_target, require_values, with_defaults
from etlrun.sources.rows.fitting import fitted
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.rows.table import is_there
from etlrun.stages.column_steps import Classes, Embed, Fill, Lookup, OneHot, Standardize
from etlrun.stages.columns import Columns, Output
from etlrun.stages.flow import Feature
from etlrun.stages.rows import Column, Known, Rows, Table
from etlrun.stages.step import Map

_FEW = 10
"""Values of a column up to which each is an input of its own."""


def resolved(spec: RunSpec) -> RunSpec:
    """Return a run whose rows have been read and whose columns are fitted; any other run as it is.

    Where the rows are not on this machine, as in a review, the columns are neither chosen nor fitted.

    Raises:
        EtlrunError: The rows can't be read.
    """
    if not isinstance(spec.dataset, Table) or spec.dataset.known is not None:
        return spec
    dataset = spec.dataset
    spec = with_defaults(spec, dataset)
    if not is_there(dataset):
        return _unread(spec, dataset)
    source = RowsSource(dataset)
    dataset = dataclasses.replace(dataset, known=source.kept.known)
    source.dataset = dataset
    columns = next((step for step in spec.transform.steps if isinstance(step, Columns)), None)
    require_columns(dataset, columns.outputs if columns else ())
    require_target(source)
    if columns is None:
        return dataclasses.replace(spec, dataset=dataset)
    outputs = columns.outputs or tuple(chosen(dataset))
    if dataset.target_name not in [output.name for output in outputs]:
        outputs = (*outputs, output_of(dataset))
    split = source.split(dataset.split, dataset.key("split"))
    columns = Columns(outputs=fitted(outputs, source, split))
    validation = [] if dataset.eval_split is None else [source.split(dataset.eval_split, dataset.key("eval_split"))]
    require_values(source, columns, [split, *validation], "" if spec.fit is None else spec.fit.loss)
    classes = _classes(columns)
    return dataclasses.replace(
        spec,
        dataset=dataclasses.replace(dataset, known=dataclasses.replace(dataset.found, classes=classes)),
        transform=_with(spec.transform, columns),
        eval_transform=_with(spec.eval_transform, columns),
    )


def with_columns_of(spec: RunSpec, then: RunSpec) -> RunSpec:
    """Return a run of rows with the columns that another one has chosen and fitted, and its target; others as it is."""
    columns = next((step for step in then.transform.steps if isinstance(step, Columns)), None)
    if columns is None or not isinstance(then.dataset, Rows):
        return spec
    transform, evaluation = (_with(of, columns) for of in (spec.transform, spec.eval_transform))
    return dataclasses.replace(spec, transform=transform, eval_transform=evaluation)


def _unread(spec: RunSpec, dataset: Table) -> RunSpec:
    """Return a run whose rows are not on this machine: outputs are numbers, and the target is what it is said to be."""
    target, kind = Feature(dtype="float32"), dataset.target_kind
    if kind != "number":
        target = Feature(dtype="int64", is_class=True, is_binary=kind == "binary")
    step = next((step for step in spec.transform.steps if isinstance(step, Columns)), Columns(outputs=()))
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


def chosen(dataset: Rows) -> Iterator[Output]:
    """Yield the outputs of `columns: auto`: each input by its type and the number of its values."""
    flow = dataset.examples
    for name in flow.inputs:
        column = dataset.found.columns[name]
        if column.feature.dtype == "string":
            few = column.distinct is not None and column.distinct <= _FEW
            yield Output(name=name, of=(name,), steps=(Lookup(top=1000), OneHot() if few else Embed()))
        else:
            filled = (Fill(value="median"),) if column.missing else ()
            yield Output(name=name, of=(name,), steps=(*filled, Standardize()))
