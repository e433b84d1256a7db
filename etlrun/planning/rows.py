"""Runs of rows: what is read before they are planned, and the columns that are chosen and fitted then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etlrun.planning.columns import misnamed
from etlrun.planning.learned import of_resumed, with_columns
from etlrun.planning.plan import with_defaults
from etlrun.planning.spec import RunSpec
from etlrun.planning.targets import outputs_of, require_columns, require_targets, require_values
from etlrun.remote.copies import name_of
from etlrun.sources.base import source_type
from etlrun.sources.rows.dividing import in_rows, name_values, plain, time_of, values_of
from etlrun.sources.rows.fitting import LONGEST, chosen, fault_of, fitted, unfit_for, with_weights
from etlrun.sources.rows.leaks import leaks_of
from etlrun.sources.rows.reader import lengths_of
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.sources.rows.table import identity_of, names_of
from etlrun.stages.column_categories import Classes
from etlrun.stages.columns import Columns, Output, nothing
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.load import FullShuffle, Load
from etlrun.stages.rows import Column, Known, Rows, Table
from etlrun.stages.sequences import Bucket, batch_of
from etlrun.stages.splits import SplitBy, Value
from etlrun.system.errors import ConfigError, Fault
from etlrun.system.loading import keras_backend, leave_gpus


def notes_of(source: RowsSource, splits: Sequence[RowSplit]) -> tuple[str, ...]:
    """Return what the splits of a run are, a sentence each; nothing if no column decides it.

    Raises:
        ConfigError: A group is in two of them, or a value of which each is to have a share has fewer rows than these.
    """
    dataset = source.dataset
    by = dataset.splits_by
    if by is None:
        return ()
    values = values_of(source.kept, dataset, by)
    each = {split.name: values.take(pa.array(split.rows)) for split in splits}
    is_parted = len(splits) > 1 and not splits[0].shared(splits[1])
    if faults := list(_faults(by, values, each)) if is_parted else []:
        raise ConfigError([replace(fault, where=f"{dataset.key('split_by')}.{by.by}") for fault in faults])
    if by.by == "column":
        return tuple(_of_values(by, source, values))
    is_time = source.kept.known.columns[by.column].feature.format == "timestamp"
    return tuple(_told(by, name, of, len(values), is_time=is_time) for name, of in each.items())


def leaks_noted(source: RowsSource, splits: Sequence[RowSplit]) -> Iterator[str]:
    """Yield the notes on rows of the validation that the training has, too, by their values."""
    if len(splits) == 1 or splits[0].shared(splits[1]):  # which a run notes
        return
    train, validation = splits
    found = leaks_of(source, train, validation)
    names = " and ".join(found.left_out)
    left_out = f" if {names} {'are' if len(found.left_out) > 1 else 'is'} left out" if names else ""
    whole = f"of {in_rows(len(validation.rows))} of {validation.name}"
    if found.same:
        yield f"{found.same:,} {whole} are also in {train.name}, with the same target{left_out}."
    if found.others:
        yield f"{found.others:,} {whole} have the inputs of rows in {train.name}, and another target{left_out}."


def _faults(by: SplitBy, values: pa.Array, each: Mapping[str, pa.Array]) -> Iterator[Fault]:
    """Yield what is wrong with splits that have no row in common; `values` are those of all rows."""
    if by.by == "group" and (both := set.intersection(*({*_counts(of)} for of in each.values()))):
        found = f"{by.column} {name_values(sorted(both))} in {' and in '.join(each)}"
        remedy = "cut both splits from the same files, as in train[:80%] and train[80%:]"
        yield Fault("", found, "all rows of a value in one split", remedy)
    few = sorted(value for value, count in _counts(values).items() if count < len(each)) if by.by == "stratify" else []
    if few:
        found = f"{by.column} {name_values(few)} in {in_rows(1)}{' each' * (len(few) > 1)}"
        expected = f"a row of each value for {' and for '.join(each)}"
        remedy = "leave these rows out, or name a column of fewer values"
        yield Fault("", found, expected, remedy)


def _counts(values: pa.Array) -> Counter[Value]:
    """Return the number of rows of each value."""
    return Counter({plain(of["values"]): of["counts"] for of in values.value_counts().to_pylist()})


def _of_values(by: SplitBy, source: RowsSource, values: pa.Array) -> Iterator[str]:
    """Yield what the splits of some values are, and how many rows are in none of them."""
    for name, of in by.values.items():
        yield f"{name}: {in_rows(source.counts[name])} of which {by.column} is {_or(of)}."
    taken = {value for of in by.values.values() for value in of}
    others = [value for value in map(plain, values.unique().to_pylist()) if value not in taken]
    if others:
        count = len(values) - sum(source.counts.values())
        yield f"{in_rows(count)} in no split, of which {by.column} is {_or(sorted(others))}."


def _or(values: Sequence[Any]) -> str:
    text = name_values([*values])
    before, comma, last = text.rpartition(", ")
    return f"{before} or {last}" if comma and last != "…" else text


def _told(by: SplitBy, split: str, values: pa.Array, total: int, *, is_time: bool) -> str:
    """Return what a part of a split is, of which these are the values, and which has `total` rows as a whole."""
    rows, different = f"{split}: {in_rows(len(values))}", len(values.unique())
    if by.by == "time":
        found = np.asarray(values)
        low, high = (time_of(int(end)) if is_time else str(end) for end in (found.min(), found.max()))
        return f"{rows} of which {by.column} is from {low} to {high}."
    if by.by == "group":
        of = f"a single value of {by.column}" if different == 1 else f"{different:,} values of {by.column}"
        return f"{rows} ({len(values) / total:.1%}) of {of}, which stay together."
    shares = [f"{value} in {count / len(values):.1%}" for value, count in sorted(_counts(values).items())]
    return f"{rows} of which {by.column} is {name_values(shares)}."


def lengths_noted(spec: RunSpec, source: RowsSource, splits: list[RowSplit], columns: Columns) -> Iterator[str]:
    """Yield how long the sequences of each split are, and what share of its batches is padding, a sentence each.

    Raises:
        ConfigError: A sequence is longer than the last boundary; or a split has no batch.
    """
    if not columns.flow(source.dataset.examples).sequences:
        return
    for split in splits:
        lengths = np.asarray(lengths_of(source, split, columns))
        yield from _too_long(spec.load, split, lengths)
        drops = spec.load.drop_remainder and split is splits[0]
        share, shapes, rows = padding_of(spec, columns, lengths, drops=drops)
        left = np.count_nonzero(lengths <= max(spec.load.boundaries or [lengths.max()])) - rows
        if not rows:
            key, other = ("drop_remainder", "smaller batches") if left else ("drop_long", "add a boundary")
            key, found = spec.load.key(key), f"true, which leaves out all sequences of {split.name}"
            raise ConfigError([Fault(key, found, "at least one batch", f"set {key}=false, or {other}")])
        ends = f"{lengths.min():,} to {lengths.max():,} items, {int(np.median(lengths)):,} in the median"
        yield (
            f"{split.name}: {len(lengths):,} sequence{'s' * (len(lengths) > 1)} of {ends}; {share:.1%} of what batches"
            f" hold is padding, in {shapes:,} shape{'s' * (shapes > 1)}."
        )
        if left:
            yield (
                f"{split.name}: load.drop_remainder leaves out {left:,} of {len(lengths):,} sequences in each pass, in"
                " batches that are not full."
            )


def _too_long(load: Load, split: RowSplit, lengths: npt.NDArray[Any]) -> Iterator[str]:
    """Yield how many sequences are left out; raise `ConfigError` for those that are not to be."""
    last = load.boundaries[-1] if load.boundaries else int(lengths.max())
    places = np.flatnonzero(lengths > last)
    if not len(places):
        return
    if load.drop_long:
        yield f"{split.name}: {len(places):,} of {len(lengths):,} sequences are longer than {last:,} and left out."
        return
    first = split.where(split.shards[0], int(places[0]))
    more = f"{len(places):,} of {len(lengths):,} sequences of {split.name} are longer than {last:,}"
    fault = Fault(
        load.key("boundaries"),
        f"{lengths[places[0]]:,} items in {first}; {more}",
        f"at most {last:,} items, the last boundary",
        f"add {{truncate: {last}}} to the steps of the column, or a boundary, or set load.drop_long=true",
    )
    raise ConfigError([fault])


def padding_of(spec: RunSpec, columns: Columns, lengths: npt.NDArray[Any], *, drops: bool) -> tuple[float, int, int]:
    """Return the share of padding in the batches of a pass, the number of their shapes, and that of their rows.

    Without boundaries the first two differ a little between passes. `drops` says whether batches that are not full are
    left out.
    """
    load = spec.load
    order = FullShuffle.op(len(lengths), spec.trainer.seed) if load.shuffles else np.arange(len(lengths))
    lengths = lengths[order]
    batch = batch_of(load, replace(spec.transform, steps=(columns,)), drops=drops)
    if isinstance(batch, Bucket):
        places, ends = batch.cut(lengths)
        padded_to = [batch.boundaries[at] for at in np.searchsorted(batch.boundaries, lengths[places[ends[:-1]]])]
        lengths = lengths[places]
    else:
        ends = np.unique([*range(0, len(lengths) + 1, batch.batch_size), *([] if drops else [len(lengths)])])
        lengths = lengths[: ends[-1]]
        padded_to = [max(int(lengths[start:end].max()), 1) for start, end in pairwise(ends)]
    sizes = np.diff(ends)
    space = int(np.dot(sizes, padded_to))
    return 1 - lengths.sum() / max(space, 1), len({*zip(sizes.tolist(), padded_to, strict=True)}), int(ends[-1])


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
    dataset = replace(dataset, known=source.kept.known)
    source.dataset = dataset
    require_columns(dataset)
    require_targets(source)
    names = {"split": dataset.split, "eval_split": dataset.eval_split}
    splits = [source.split(name, dataset.key(key)) for key, name in names.items() if name is not None]
    notes = (*notes_of(source, splits), *leaks_noted(source, splits))
    dataset = replace(dataset, known=replace(dataset.found, splits=notes))
    columns = spec.columns
    if columns is None:
        return replace(spec, dataset=dataset)
    if spec.fit is None or spec.fit.device == "cpu" or keras_backend() != "tensorflow":
        leave_gpus()  # which a run can't do after this
    is_trained = any(output.is_of_target for output in columns.outputs)  # as in commands on a run
    columns = of_resumed(spec, dataset.found) or _fitted(columns, source, splits, spec)
    lengths = () if is_trained else tuple(lengths_noted(spec, source, splits, columns))
    known = replace(dataset.found, classes=_classes(columns, dataset), splits=(*notes, *lengths))
    return with_columns(spec, columns, replace(dataset, known=known))


def training_of(spec: RunSpec) -> tuple[RowsSource, RowSplit]:
    """Return the rows of a run, which nothing is fitted to, and those of its training split.

    Raises:
        EtlrunError: They can't be read.
    """
    dataset = cast("Rows", spec.dataset)
    source = cast("type[RowsSource]", source_type(dataset))(dataset)
    source.dataset = replace(dataset, known=source.kept.known)
    require_columns(source.dataset)
    return source, source.split(dataset.split, dataset.key("split"))


def with_columns_of(spec: RunSpec, then: RunSpec, *, reads: bool) -> RunSpec:
    """Return a run of rows with the columns that another one has chosen and fitted, and its target; others as it is.

    `reads` says whether rows are to be read: if not, or if those of the other run are no longer there, what is known of
    them is what that one knows. Those of another table have the types of the columns of that one.
    """
    columns, dataset, before = then.columns, spec.dataset, then.dataset
    if columns is None or not isinstance(dataset, Rows) or not isinstance(before, Rows):
        return spec
    is_there = cast("type[RowsSource]", source_type(dataset)).is_there(dataset)
    same = replace(dataset, split=before.split, eval_split=before.eval_split, dir=before.dir) == before
    if same and not (reads and is_there):
        dataset = replace(dataset, known=before.found)
    elif is_there and isinstance(before, Table) and isinstance(dataset, Table):
        is_equal = same and identity_of(dataset) == before.found.identity
        types = {name: of for name, of in before.types.items() if name in before.examples.features}
        declared = dataset.columns
        named = () if is_equal else names_of(replace(dataset, columns={**types, **declared}))
        types = {name: types[name] for name in named if name in types}
        dataset = replace(dataset, columns={**types, **declared})
    return with_columns(spec, columns, dataset)


def _unread(spec: RunSpec, dataset: Rows) -> RunSpec:
    """Return a run whose rows are not on this machine: outputs are numbers, and targets what they are said to be."""
    step = spec.columns or Columns(outputs=())
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
    columns = replace(step, assumed=tuple(features.items()))
    unread = f"{dataset.title} is not on this machine: its columns are neither checked nor fitted."
    found = Known(columns=known, rows={}, identity="", held_bytes=0, notes=(unread,))
    return with_columns(spec, columns, replace(dataset, known=found))


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
    columns = spec.columns
    if columns is None:
        return spec
    if columns.is_auto:
        remedy = f"set {Columns.path} to a mapping, or null"
        expected = "a dataset of rows"
        raise ConfigError([Fault(Columns.path, "auto", expected, remedy, is_rule=True)])
    flow = spec.dataset.examples
    wrong = misnamed(columns, flow.features, flow.targets, flow.weight)
    faults = [replace(of, is_rule=True) for of in wrong]
    features, outputs = dict(flow.features), list[Output]()
    for output in () if faults else columns.outputs:
        try:
            made, feature = output.fitted(features, nothing)
            outputs.append(made)
            features.setdefault(output.name, feature)
        except UnfitError as unfit:
            faults.append(fault_of(output, unfit.place, unfit))
            features.setdefault(output.name, Feature(dtype="int64", categories=1))
    if faults:
        raise ConfigError(faults)
    _require_input(columns, features.keys() - {*columns.dropped, *flow.targets, flow.weight})
    columns = replace(columns, outputs=tuple(outputs), beside=True)
    spec = with_columns(spec, columns, spec.dataset)
    of_images = {name for output in outputs for name in output.of if features[name].format == "image"}
    if not of_images:
        return spec
    train, evaluation = (  # with the columns last, since the steps decode images
        replace(of, steps=tuple(sorted(of.steps, key=lambda step: isinstance(step, Columns))))
        for of in (spec.transform, spec.eval_transform)
    )
    return replace(spec, transform=train, eval_transform=evaluation)


def _require_input(columns: Columns, inputs: Collection[str], read: Sequence[str] = ()) -> None:
    if not inputs:
        notes = "; ".join(note.removesuffix(".") for note in (*read, *columns.notes))
        notes = f": {notes}" if notes else ""
        remedy = "name columns with their steps in transform.columns"
        raise ConfigError([Fault(Columns.path, f"no input{notes}", "at least one", remedy)])


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
        raise ConfigError([Fault(where, found, expected, remedy)])


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
    columns = replace(columns, outputs=made, dropped=(), shares=_joined(shares, told), is_auto=False)
    require_values(source, columns, splits, "" if spec.fit is None else spec.fit.loss)
    return columns
