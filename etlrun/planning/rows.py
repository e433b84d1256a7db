"""Runs of rows: what is read before they are planned, and the columns that are chosen and fitted then."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import cast

from etlrun.planning.columns import misnamed
from etlrun.planning.learned import columns_of, of_resumed, with_columns
from etlrun.planning.lengths import lengths_noted
from etlrun.planning.objective import with_defaults
from etlrun.planning.spec import RunSpec
from etlrun.planning.splits import leaks_noted, notes_of
from etlrun.planning.targets import outputs_of, require_columns, require_targets, require_values
from etlrun.remote.copies import name_of
from etlrun.sources.base import source_type
from etlrun.sources.rows.fitting import LONGEST, chosen, fault_of, fitted, unfit_for, with_weights
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.sources.rows.table import identity_of, names_of
from etlrun.stages.column_categories import Classes
from etlrun.stages.columns import Columns, Output, UnfitStepError, nothing
from etlrun.stages.flow import Feature
from etlrun.stages.rows import Column, Known, Rows, Table
from etlrun.stages.step import Map
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.loading import keras_backend, leave_gpus


def resolved(spec: RunSpec) -> RunSpec:
    """Return a run whose rows have been read and whose columns are fitted; any other run as it is.

    Where the rows are not on this machine, as in a review, the columns are neither chosen nor fitted.

    Raises:
        EtlrunError: The rows can't be read.
    """
    if not isinstance(spec.dataset, Rows):
        return spec
    dataset = spec.dataset
    spec = with_defaults(spec, [target.kind for target in dataset.targets])
    if dataset.known is not None:
        return spec
    of_rows = cast("type[RowsSource]", source_type(dataset))
    if not of_rows.is_there(dataset):
        return _unread(spec, dataset)
    source = of_rows(dataset)
    dataset = dataclasses.replace(dataset, known=source.kept.known)
    source.dataset = dataset
    require_columns(dataset)
    require_targets(source)
    splits = _splits(source)
    notes = (*notes_of(source, splits), *leaks_noted(source, splits))
    dataset = dataclasses.replace(dataset, known=dataclasses.replace(dataset.found, splits=notes))
    columns = columns_of(spec)
    if columns is None:
        return dataclasses.replace(spec, dataset=dataset)
    if spec.fit is None or spec.fit.device == "cpu" or keras_backend() != "tensorflow":
        leave_gpus()  # which a run can't do after this
    is_trained = any(output.is_of_target for output in columns.outputs)  # as in commands on a run
    columns = of_resumed(spec, dataset.found) or _fitted(columns, source, splits, spec)
    lengths = () if is_trained else tuple(lengths_noted(spec, source, splits, columns))
    known = dataclasses.replace(dataset.found, classes=_classes(columns, dataset), splits=(*notes, *lengths))
    return with_columns(spec, columns, dataclasses.replace(dataset, known=known))


def training_of(spec: RunSpec) -> tuple[RowsSource, RowSplit]:
    """Return the rows of a run, which nothing is fitted to, and those of its training split.

    Raises:
        EtlrunError: They can't be read.
    """
    dataset = cast("Rows", spec.dataset)
    source = cast("type[RowsSource]", source_type(dataset))(dataset)
    source.dataset = dataclasses.replace(dataset, known=source.kept.known)
    require_columns(source.dataset)
    return source, source.split(dataset.split, dataset.key("split"))


def with_columns_of(spec: RunSpec, then: RunSpec, *, reads: bool) -> RunSpec:
    """Return a run of rows with the columns that another one has chosen and fitted, and its target; others as it is.

    `reads` says whether rows are to be read: if not, or if those of the other run are no longer there, what is known of
    them is what that one knows. Those of another table have the types of the columns of that one.
    """
    columns, dataset, before = columns_of(then), spec.dataset, then.dataset
    if columns is None or not isinstance(dataset, Rows) or not isinstance(before, Rows):
        return spec
    is_there = cast("type[RowsSource]", source_type(dataset)).is_there(dataset)
    same = dataclasses.replace(dataset, split=before.split, eval_split=before.eval_split, dir=before.dir) == before
    if same and not (reads and is_there):
        dataset = dataclasses.replace(dataset, known=before.found)
    elif is_there and isinstance(before, Table) and isinstance(dataset, Table):
        is_equal = same and identity_of(dataset) == before.found.identity
        types = {name: of for name, of in before.types.items() if name in before.examples.features}
        declared = dataset.columns
        named = () if is_equal else names_of(dataclasses.replace(dataset, columns={**types, **declared}))
        types = {name: types[name] for name in named if name in types}
        dataset = dataclasses.replace(dataset, columns={**types, **declared})
    return with_columns(spec, columns, dataset)


def _unread(spec: RunSpec, dataset: Rows) -> RunSpec:
    """Return a run whose rows are not on this machine: outputs are numbers, and targets what they are said to be."""
    step = columns_of(spec) or Columns(outputs=())
    names = [output.name for output in step.outputs] or dataset.inputs or ["columns"]
    others = [*dataset.target, *([dataset.weight] if dataset.weight else [])]
    features = {name: Feature(dtype="float32") for name in others}
    of_items = {output.name: output.has_sequences for output in step.outputs}
    sequence, number = Feature(dtype="int64", shape=(None,), categories=2, embedding=1), Feature(dtype="float32")
    takes_sequences = spec.load.boundaries is not None
    features |= {name: sequence if takes_sequences and of_items.get(name, True) else number for name in names}
    for of in dataset.targets:
        if of.kind == "labels":
            features[of.name] = Feature(dtype="float32", shape=(1,), is_labels=True)
        elif of.kind != "number":
            features[of.name] = Feature(dtype="int64", is_class=True, is_binary=of.kind == "binary")
    inputs = {name: Feature(dtype="float32") for name in dataset.inputs or ()}
    known = {name: Column(feature=feature) for name, feature in {**inputs, **features}.items()}
    columns = dataclasses.replace(step, assumed=tuple(features.items()))
    unread = f"{dataset.title} is not on this machine: its columns are neither checked nor fitted."
    found = Known(columns=known, rows={}, identity="", held_bytes=0, notes=(unread,))
    return with_columns(spec, columns, dataclasses.replace(dataset, known=found))


def _classes(columns: Columns, dataset: Rows) -> tuple[str, ...]:
    """Return the values of the only target, if it is a class; several targets have theirs in their features."""
    if len(dataset.target) > 1:
        return ()
    steps = next(output.steps for output in columns.outputs if output.name in dataset.target)
    return tuple(map(str, steps[0].values or ())) if steps and isinstance(steps[0], Classes) else ()


def beside(spec: RunSpec) -> RunSpec:
    """Return a run of other examples than rows, whose columns stand beside their other features.

    Raises:
        ConfigError: All faults of the columns.
    """
    columns = columns_of(spec)
    if columns is None:
        return spec
    if columns.is_auto:
        remedy = f"set {Columns.path} to a mapping, or null"
        expected = "a dataset of rows"
        raise ConfigError([Fault(where=Columns.path, found="auto", expected=expected, remedy=remedy, is_rule=True)])
    flow = spec.dataset.examples
    wrong = misnamed(columns, flow.features, flow.targets, flow.weight)
    faults = [dataclasses.replace(of, is_rule=True) for of in wrong]
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
    _require_input(columns, features.keys() - {*columns.dropped, *flow.targets, flow.weight})
    columns = dataclasses.replace(columns, outputs=tuple(outputs), beside=True)
    spec = with_columns(spec, columns, spec.dataset)
    of_images = {name for output in outputs for name in output.of if features[name].format == "image"}
    return _behind_steps(spec) if of_images else spec


def _behind_steps(spec: RunSpec) -> RunSpec:
    """Return a run whose columns come last, since one of them is an image, which the steps decode."""

    def last(transform: Map) -> Map:
        return dataclasses.replace(
            transform, steps=tuple(sorted(transform.steps, key=lambda of: isinstance(of, Columns)))
        )

    return dataclasses.replace(spec, transform=last(spec.transform), eval_transform=last(spec.eval_transform))


def _require_input(columns: Columns, inputs: Collection[str], read: Sequence[str] = ()) -> None:
    if not inputs:
        notes = "; ".join(note.removesuffix(".") for note in (*read, *columns.notes))
        notes = f": {notes}" if notes else ""
        remedy = "name columns with their steps in transform.columns"
        raise ConfigError([Fault(where=Columns.path, found=f"no input{notes}", expected="at least one", remedy=remedy)])


def _require_inputs(source: RowsSource, outputs: Sequence[Output]) -> None:
    """Raise `ConfigError` if rows lack columns that the outputs of another run are made of."""
    known, needed, missing = {*source.kept.known.columns}, dict[str, None](), dict[str, None]()
    for output in outputs:
        missing |= dict.fromkeys(name for name in output.of if name not in known)
        needed |= dict.fromkeys(output.of)
        known.add(output.name)
    if missing:
        found, expected = f"no column {', '.join(missing)}", f"the columns of the training, {', '.join(needed)}"
        where, remedy = ", ".join(map(name_of, source.kept.stamps)), "name the columns as in the table of the training"
        raise ConfigError([Fault(where=where, found=found, expected=expected, remedy=remedy)])


def _splits(source: RowsSource) -> list[RowSplit]:
    """Return the rows of the training, and those of the validation if there is one."""
    dataset = source.dataset
    names = {"split": dataset.split}
    if dataset.eval_split is not None:
        names["eval_split"] = dataset.eval_split
    return [source.split(name, dataset.key(key)) for key, name in names.items()]


def _joined(*several: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return what is said of each output, in one text."""
    found: dict[str, str] = {}
    for name, text in (each for some in several for each in some):
        found[name] = f"{found[name]}; {text}" if name in found else text
    return tuple(found.items())


def _fitted(columns: Columns, source: RowsSource, splits: list[RowSplit], spec: RunSpec) -> Columns:
    """Return the columns of rows that have been read: chosen, if they are to be, and fitted."""
    dataset = source.dataset
    if columns.is_auto:
        boundaries = spec.load.boundaries
        longest = None if boundaries is None else boundaries[-1] if boundaries else LONGEST
        columns = chosen(source, splits[0], longest)
    outputs = columns.outputs
    if not any(output.is_of_target for output in outputs):  # else another run has fitted them
        if faults := list(misnamed(columns, dataset.examples.features, tuple(dataset.target), dataset.weight or "")):
            raise ConfigError(faults)
        _require_input(columns, columns.output_names, dataset.found.notes)
        outputs = (*outputs, *outputs_of(dataset))
    else:
        _require_inputs(source, outputs)
        inputs = [output for output in outputs if not output.is_of_target]
        if faults := [*unfit_for(source, inputs)] if spec.fit is not None and spec.model.learns else []:
            raise ConfigError(faults)
    made, shares = fitted(outputs, source, splits)
    made, told = with_weights(made)
    columns = dataclasses.replace(columns, outputs=made, dropped=(), shares=_joined(shares, told), is_auto=False)
    require_values(source, columns, splits, "" if spec.fit is None else spec.fit.loss)
    return columns
