"""Runs of rows: what is read before they are planned, and the columns that are chosen and fitted then."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.planning.columns import misnamed, unknown_column
from etlrun.planning.learned import of_resumed, with_columns
from etlrun.planning.plan import with_defaults
from etlrun.planning.spec import RunSpec
from etlrun.remote.copies import name_of
from etlrun.sources.base import Split, source_type
from etlrun.sources.rows.dividing import (
    as_text,
    leaks_of,
    name_values,
    plain,
    time_of,
    values_of,
    without_value,
)
from etlrun.sources.rows.fitting import LONGEST, chosen, fault_of, fitted, unfit_for
from etlrun.sources.rows.kinds import has_fraction
from etlrun.sources.rows.reader import lengths_of
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.rows.table import identity_of, names_of
from etlrun.stages.column_categories import Classes
from etlrun.stages.columns import TARGET_STEPS, Binary, Columns, Number, Output, Weight, labels_in, nothing
from etlrun.stages.dataset import SplitBy, Target, Value
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.load import Bucket, FullShuffle, Load, batch_of
from etlrun.stages.rows import Column, Known, Rows, Table
from etlrun.stages.step import Map
from etlrun.system.errors import ConfigError, Fault, Overrides, counted, override, placed, refuse
from etlrun.system.loading import keras_backend, leave_gpus


def notes_of(source: RowsSource, splits: Sequence[Split]) -> tuple[str, ...]:
    """Return what the splits are, a sentence each, if a column decides it; `ConfigError` for a group in two of them."""
    by = source.dataset.splits_by
    if by is None:
        return ()
    values = values_of(source.kept, source.dataset, by)
    each = {split.name: values.take(pa.array(split.numbers)) for split in splits}
    for other in (of for of in splits[1:] if not splits[0].shared(of)):
        both = {name: each[name] for name in (splits[0].name, other.name)}
        refuse(_faults(by, f"{source.dataset.key('split_by')}.{by.by}", values, both))
    if by.by != "column":
        is_time = source.kept.known.columns[by.column].feature.format == "timestamp"
        return tuple(_told(by, name, of, len(values), is_time=is_time) for name, of in each.items())
    parts = ((name, source.counts[name], name_values([*of])) for name, of in by.values.items())
    found = [f"{name}: {counted(count, 'row')} with {by.column} {of}." for name, count, of in parts]
    taken = {value for of in by.values.values() for value in of}
    if others := [value for value in map(plain, values.unique().to_pylist()) if value not in taken]:
        count = len(values) - sum(source.counts.values())
        found.append(f"{counted(count, 'row')} in no split, with {by.column} {name_values(sorted(others))}.")
    return tuple(found)


def leaks_noted(source: RowsSource, splits: Sequence[Split]) -> Iterator[str]:
    """Yield the notes on rows of the validations that the training has, too, by their values."""
    train = splits[0]
    for validation in (of for of in splits[1:] if not train.shared(of)):  # which a run notes
        digests = [of.content.digest for of in (train, validation)]
        same, others, left_out = leaks_of(source.kept, source.dataset, digests, train.numbers, validation.numbers)
        without = f" if {' and '.join(left_out)} {'are' if len(left_out) > 1 else 'is'} left out" if left_out else ""
        whole = f"of {counted(len(validation.numbers), 'row')} of {validation.name}"
        if same:
            yield f"{same:,} {whole} are also in {train.name}, with the same target{without}."
        if others:
            yield f"{others:,} {whole} have the inputs of rows in {train.name}, and another target{without}."


def _faults(by: SplitBy, where: str, values: pa.Array, each: Mapping[str, pa.Array]) -> Iterator[Fault]:
    """Yield what is wrong with splits that have no row in common; `values` are those of all rows."""
    if by.by == "group" and (both := set.intersection(*({*_counts(of)} for of in each.values()))):
        found = f"{by.column} {name_values(sorted(both))} in {' and in '.join(each)}"
        remedy = "cut both splits from the same files, as in train[:80%] and train[80%:]"
        yield Fault(where, found, "all rows of a value in one split", remedy)
    few = sorted(value for value, count in _counts(values).items() if count < len(each)) if by.by == "stratify" else []
    if few:
        found = f"{by.column} {name_values(few)} in 1 row{' each' * (len(few) > 1)}"
        expected = f"a row of each value for {' and for '.join(each)}"
        yield Fault(where, found, expected, "leave these rows out, or name a column of fewer values")


def _counts(values: pa.Array) -> Counter[Value]:
    """Return the number of rows of each value."""
    return Counter({plain(of["values"]): of["counts"] for of in values.value_counts().to_pylist()})


def _told(by: SplitBy, split: str, values: pa.Array, total: int, *, is_time: bool) -> str:
    """Return what a part of a split is, of which these are the values, and which has `total` rows as a whole."""
    rows, different = f"{split}: {counted(len(values), 'row')}", len(values.unique())
    if by.by == "time":
        found = np.asarray(values)
        low, high = (time_of(int(end)) if is_time else str(end) for end in (found.min(), found.max()))
        return f"{rows} of which {by.column} is from {low} to {high}."
    if by.by == "group":
        of = f"a single value of {by.column}" if different == 1 else f"{different:,} values of {by.column}"
        return f"{rows} ({len(values) / total:.1%}) of {of}, which stay together."
    shares = [f"{value} in {count / len(values):.1%}" for value, count in sorted(_counts(values).items())]
    return f"{rows} of which {by.column} is {name_values(shares)}."


def lengths_noted(
    spec: RunSpec, source: RowsSource, splits: list[Split], columns: Columns, train: Split | None = None
) -> Iterator[str]:
    """Yield notes on the sequences of splits; `ConfigError` for one beyond the last boundary, or without a batch.

    `train` is that of the training among them, if it is there.
    """
    if not columns.flow(source.dataset.examples).sequences:
        return
    for split in splits:
        lengths = np.asarray(lengths_of(source, split, columns))
        yield from _too_long(spec.load, split, lengths)
        drops = spec.load.drop_remainder and split is train
        share, shapes, rows = padding_of(spec, columns, lengths, drops=drops)
        left = np.count_nonzero(lengths <= max(spec.load.boundaries or [lengths.max()])) - rows
        if not rows:
            key, other = ("drop_remainder", "smaller batches") if left else ("drop_long", "add a boundary")
            key, found = spec.load.key(key), f"true, which leaves out all sequences of {split.name}"
            raise ConfigError([Fault(key, found, "at least one batch", f"set {key}=false, or {other}")])
        low, high = int(lengths.min()), int(lengths.max())
        ends = f"{low:,} to {high:,} items (median {np.median(lengths):,.0f})" if low < high else counted(low, "item")
        padded = f"{share:.1%} of the batches is padding; they have {counted(shapes, 'shape')}"
        yield f"{split.name}: {counted(len(lengths), 'sequence')} of {ends}; {padded}."
        if left:
            out = f"load.drop_remainder leaves out {left:,} of {counted(len(lengths), 'sequence')} in each pass"
            yield f"{split.name}: {out}, in batches that are not full."


def _too_long(load: Load, split: Split, lengths: npt.NDArray[Any]) -> Iterator[str]:
    """Yield how many sequences are left out; raise `ConfigError` for those that are not to be."""
    last = load.boundaries[-1] if load.boundaries else int(lengths.max())
    places = np.flatnonzero(lengths > last)
    counts = f"{len(places):,} of {counted(len(lengths), 'sequence')}"
    if len(places) and not load.drop_long:
        first = f"{lengths[places[0]]:,} items in {split.where(split.shards[0], int(places[0]))}"
        found = f"{first}; {counts} of {split.name} are longer than {last:,}"
        remedy = f"add {{truncate: {last}}} to the steps of the column, or a boundary, or set load.drop_long=true"
        raise ConfigError([Fault(load.key("boundaries"), found, f"at most {last:,} items, the last boundary", remedy)])
    if len(places):
        yield f"{split.name}: {counts} are longer than {last:,} and left out."


def padding_of(spec: RunSpec, columns: Columns, lengths: npt.NDArray[Any], *, drops: bool) -> tuple[float, int, int]:
    """Return the share of padding in a pass, the number of shapes, and that of rows; it `drops` a last small batch."""
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
    """Return a run of rows that have been read, with fitted columns; not fitted if the rows are on another machine."""
    dataset = cast("Rows", spec.dataset)
    spec = with_defaults(spec, [target.kind for target in dataset.targets])
    if dataset.known is not None:
        return spec
    if not _type_of(dataset).is_there(dataset):
        return _unread(spec, dataset)
    source = _read(dataset)
    dataset, columns = source.dataset, spec.columns
    is_trained = columns is not None and any(of.is_of_target for of in columns.outputs)  # as in commands on a run
    read = [target for target in dataset.targets if target.name not in dataset.found.left_out]
    faults = [*_unfit_inputs(dataset), *(fault for target in read for fault in _unfit(source, target))]
    faults += _unfit_weights(source)
    refuse(faults if is_trained else (*faults, *_unfit_exclude(dataset), *_misnamed(columns, dataset)))
    names = {name: split for name, split in dataset.splits.items() if dataset.read_by(name) is dataset}
    splits = [source.split(split, dataset.key_of(name)) for name, split in names.items()]
    notes = (*notes_of(source, splits), *leaks_noted(source, splits))
    dataset = replace(dataset, known=replace(dataset.found, splits=notes))
    if columns is None:
        return replace(spec, dataset=dataset)
    if spec.fit is None or spec.fit.device == "cpu" or keras_backend() != "tensorflow":
        leave_gpus()  # which a run can't do after this
    columns = of_resumed(spec, dataset.found) or _fitted(columns, source, splits, spec)
    lengths = () if is_trained else tuple(lengths_noted(spec, source, splits, columns, splits[0]))
    steps = next(output.steps for output in columns.outputs if output.name in dataset.target)
    step = steps[0] if steps and len(dataset.target) == 1 else None  # several targets have theirs in their features
    classes = tuple(map(str, step.values or ())) if isinstance(step, Classes) else ()
    known = replace(dataset.found, classes=classes, splits=(*notes, *lengths))
    spec = with_columns(spec, columns, replace(dataset, known=known))
    others = {name: _of_set(spec, name) for name in dataset.sets if name not in names}
    lengths = tuple(chain(known.splits, *(of.splits for of in others.values())))
    return replace(spec, dataset=replace(dataset, known=replace(known, splits=lengths, sets=others)))


def _of_set(spec: RunSpec, name: str) -> Known:
    """Return what is known of the other rows of a named validation set, which the columns of a run are to fit."""
    dataset = cast("Rows", spec.dataset)
    with placed(dataset.key_of(name)):
        other = replace(dataset.read_by(name), eval_split=dataset.splits[name])  # whose values are to be known ones
        other = cast("Rows", resolved(with_columns_of(replace(spec, dataset=other), spec, reads=True)).dataset)
        if not other.found.identity:
            return replace(other.found, splits=other.found.notes)
        if spec.columns is None:
            return other.found
        source = _type_of(other)(other)
        split = source.split(other.split, dataset.key_of(name))
        return replace(other.found, splits=tuple(lengths_noted(spec, source, [split], spec.columns)))


def _type_of(dataset: Rows) -> type[RowsSource]:
    return cast("type[RowsSource]", source_type(dataset))


def _read(dataset: Rows) -> RowsSource:
    """Return the source of rows, with what is known of them."""
    source = _type_of(dataset)(dataset)
    source.dataset = replace(dataset, known=source.kept.known)
    return source


def _unfit_inputs(dataset: Rows) -> Iterator[Fault]:
    """Yield the faults of columns that can't be read, or are named and not there."""
    known, named = dataset.found.columns, (*(dataset.inputs or ()), *dataset.target, *getattr(dataset, "columns", ()))
    for name, what in dataset.found.left_out.items():
        if name not in dataset.excluded and (dataset.inputs is None or name in named):
            where = dataset.key("target" if name in dataset.target else "inputs")
            expected = "a number, truth value, text, date, timestamp, or list of numbers or of texts in each row"
            can_do_without = name not in dataset.target and dataset.inputs != (name,)
            remedy = f"set {dataset.without([name])}, or " * can_do_without + "write its parts as columns of their own"
            if what.startswith("values of type") and "<" not in what:  # as that of a struct has
                remedy += f"; it is read as text by {override('dataset.columns', name, 'text')}"
            yield Fault(where, f"{name}, which has {what}", expected, remedy)
    there = {*known, *dataset.found.left_out}
    missing = (name for name in dict.fromkeys(dataset.inputs or ()) if name not in there)
    yield from (unknown_column("dataset.inputs", name, known) for name in missing)


def _misnamed(columns: Columns | None, dataset: Rows) -> Iterator[Fault]:
    """Yield the faults of names in `transform.columns`."""
    if columns is not None:
        known = (*dataset.found.columns, *dataset.found.left_out)
        inputs = {*(dataset.inputs or known)}.difference(dataset.excluded)
        names = dict.fromkeys(name for name in known if name in inputs)  # of thousands, in which names are looked up
        yield from misnamed(columns, names, tuple(dataset.target), dataset.weight or "", dataset.excluded)


def training_of(spec: RunSpec) -> tuple[RowsSource, Split]:
    """Return the rows of a run, which nothing is fitted to, and those of its training split."""
    source = _read(cast("Rows", spec.dataset))
    refuse(_unfit_inputs(source.dataset))
    return source, source.split(source.dataset.split, source.dataset.key("split"))


def with_columns_of(spec: RunSpec, then: RunSpec, *, reads: bool) -> RunSpec:
    """Return a run with the columns of another one, and, unless it `reads` rows that are there, what that one knows."""
    columns, dataset, before = then.columns, spec.dataset, then.dataset
    if columns is None or not isinstance(dataset, Rows) or not isinstance(before, Rows):
        return spec
    is_there = _type_of(dataset).is_there(dataset)
    splits: dict[str, Any] = {name: getattr(before, name) for name in ("split", "eval_split", "eval_splits")}
    same = replace(dataset, **splits, dir=before.dir) == before
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
    number = Feature(dtype="float32")
    features = dict.fromkeys(filter(None, (*dataset.target, dataset.weight)), number)
    of_items = {output.name: output.has_sequences for output in step.outputs}
    sequence = Feature(dtype="int64", shape=(None,), categories=2, embedding=1)
    takes_sequences = spec.load.boundaries is not None
    features |= {name: sequence if takes_sequences and of_items.get(name, True) else number for name in names}
    for of in dataset.targets:
        if of.kind == "labels":
            features[of.name] = Feature(dtype="float32", shape=(1,), is_labels=True)
        elif of.kind != "number":
            features[of.name] = Feature(dtype="int64", is_class=True, is_binary=of.kind == "binary")
    all_features = dict.fromkeys(dataset.inputs or (), number) | features
    known = {name: Column(feature=of) for name, of in all_features.items()}
    columns = replace(step, assumed=tuple(features.items()))
    unread = f"{dataset.title} is not on this machine: its columns are not checked, and nothing is fitted."
    found = Known(columns=known, rows={}, identity="", held_bytes=0, notes=(unread,))
    return with_columns(spec, columns, replace(dataset, known=found))


def beside(spec: RunSpec) -> RunSpec:
    """Return a run of other examples than rows, whose columns stand beside other features; `ConfigError` if unfit."""
    columns, flow = cast("Columns", spec.columns), spec.dataset.examples
    if columns.is_auto:
        remedy = f"set {Columns.path} to a mapping, or null"
        raise ConfigError([Fault(Columns.path, "auto", "a dataset of rows", remedy, is_rule=True)])
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
    refuse(faults)
    _require_input(columns, features.keys() - {*columns.dropped, *flow.targets, flow.weight})
    columns = replace(columns, outputs=tuple(outputs), beside=True)
    spec = with_columns(spec, columns, spec.dataset)
    if not any(features[name].format == "image" for output in outputs for name in output.of):
        return spec

    def columns_last(of: Map) -> Map:  # since the steps decode images
        return replace(of, steps=tuple(sorted(of.steps, key=lambda step: isinstance(step, Columns))))

    return spec.with_maps(columns_last)


def _require_input(columns: Columns, inputs: Collection[str], read: Sequence[str] = (), ends: Overrides = ()) -> None:
    if not inputs:
        notes = "; ".join(note.removesuffix(".") for note in (*read, *columns.notes))
        notes = f": {notes}" if notes else ""
        remedy = "name columns with their steps in transform.columns"
        raise ConfigError([Fault(Columns.path, f"no input{notes}", "at least one", remedy, overrides=ends)])


def require_inputs(source: RowsSource, outputs: Sequence[Output]) -> None:
    """Raise `ConfigError` if rows lack columns that the outputs of another run are made of."""
    known, needed, missing = {*source.kept.known.columns}, dict[str, None](), dict[str, None]()
    for output in outputs:
        missing |= dict.fromkeys(name for name in output.of if name not in known)
        needed |= dict.fromkeys(output.of)
        known.add(output.name)
    if missing:
        where, remedy = ", ".join(map(name_of, source.kept.stamps)), "name the columns as in the table of the training"
        expected = f"the columns of the training, {', '.join(needed)}"
        raise ConfigError([Fault(where, f"no column {', '.join(missing)}", expected, remedy)])


def _fitted(columns: Columns, source: RowsSource, splits: list[Split], spec: RunSpec) -> Columns:
    """Return the columns of rows that have been read: chosen, if they are to be, and fitted."""
    dataset, ends = source.dataset, Overrides()
    if columns.is_auto:
        boundaries = spec.load.boundaries
        longest = None if boundaries is None else boundaries[-1] if boundaries else LONGEST
        columns = chosen(source, splits[0], longest)
        if not columns.outputs and chosen(source, splits[0], LONGEST).outputs:
            ends = (("load=bucketed", "model=text"),)
    outputs = columns.outputs
    if not any(output.is_of_target for output in outputs):  # else another run has fitted them
        _require_input(columns, columns.output_names, dataset.found.notes, ends)
        steps = {of.name: TARGET_STEPS[of.kind](**of.options) for of in dataset.targets}
        steps |= {dataset.weight: Weight()} if dataset.weight is not None else {}
        outputs += tuple(Output(name=name, of=(name,), steps=(step,)) for name, step in steps.items())
    else:
        require_inputs(source, outputs)
        inputs = [output for output in outputs if not output.is_of_target]
        refuse(unfit_for(source, inputs) if spec.learner is not None else ())
    made, shares = fitted(outputs, source, splits)
    columns = replace(columns, outputs=made, dropped=(), shares=shares, is_auto=False)
    require_values(source, columns, splits)
    return columns


def _unfit(source: RowsSource, target: Target) -> Iterator[Fault]:
    """Yield the first fault of a column to predict."""
    name, kind, columns = target.name, target.kind, source.dataset.found.columns
    column = columns.get(name)
    if column is None:
        yield unknown_column("dataset.target", name, columns)
        return
    is_text, is_time = column.feature.dtype == "string", column.feature.format == "timestamp"
    if column.missing and (target.separator is None or column.is_joined):
        yield without_value(source.kept, source.dataset, name, "dataset.target", "a value in each row to learn from")
    elif kind == "labels":
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
        shown = as_text(source.kept, name, "number") if is_text else "a timestamp"
        remedy = f"set {override('dataset.target', name, 'class')}, or correct its values"
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
    if target.separator is not None:
        if not is_text:
            expected = "a column of text, in which the separator divides the labels"
            yield _fault(f"{name}, which is {feature}", expected, f"set {override('dataset.target', name, 'labels')}")
    elif is_text:
        value = next((of for of in source.kept.arrow(name).to_pylist() if of), b"").decode(errors="replace")
        remedy = "set " + override("dataset.target", name, '{labels: ","}')
        yield _fault(f"{name}, which is text, such as {value!r}", "the text between two labels", remedy)
    elif feature.is_sequence:
        remedy = f"set {override('dataset.columns', name, 'text')}, which reads them as labels, or name another column"
        yield _fault(f"{name}, which is lists of numbers", "lists of texts as labels", remedy)
    elif len(feature.shape) != 1 or (feature.low or 0, feature.high or 1) != (0, 1):
        found = f"{name} of shape {list(feature.shape)}, {feature}"
        yield _fault(found, "an array with a 0 or a 1 for each label", "save such an array, or name another column")


def _unfit_exclude(dataset: Rows) -> Iterator[Fault]:
    """Yield the faults of `dataset.exclude`: names of no column, and no input that is left."""
    known = {**dataset.found.columns, **dataset.found.left_out}
    unknown = [name for name in dataset.excluded if name not in known]
    yield from (unknown_column("dataset.exclude", name, known) for name in unknown)
    others = {*dataset.target, dataset.weight, *dataset.excluded}
    if dataset.excluded and not unknown and others.issuperset(dataset.inputs or dataset.found.columns):
        yield Fault("dataset.exclude", "all columns but the target", "one input at least", "leave one out of it")


def _unfit_weights(source: RowsSource) -> Iterator[Fault]:
    """Yield the fault of a column of weights."""
    name, columns = source.dataset.weight, source.dataset.found.columns
    if name is None:
        return
    where, remedy = "dataset.weight", f"correct the column, or set {source.dataset.key('weight')}=null"
    column = columns.get(name)
    if column is None:
        yield unknown_column(where, name, columns)
    elif column.feature.dtype == "string" or column.feature.format == "timestamp" or column.feature.shape:
        yield Fault(where, f"{name}, which is {column.feature}", "a column with a number in each row", remedy)
    elif column.missing:
        missing = without_value(source.kept, source.dataset, name, where, "a weight of each row")
        yield replace(missing, remedy=remedy)
    elif (column.feature.low or 0) < 0:
        values = source.kept.arrow(name)
        row = pc.index(pc.less(values, 0), value=True).as_py()
        yield Fault(where, f"{name} of {values[row].as_py():g} in row {row}", "weights of at least 0", remedy)


def require_values(source: RowsSource, columns: Columns, splits: list[Split]) -> None:
    """Raise `ConfigError` if the values to learn from are all the same, or those of the validation are new classes."""
    weight, faults = source.dataset.weight, list[Fault]()
    for name in source.dataset.target:
        step: Any = next(of.steps[0] for of in columns.outputs if of.name == name)
        faults += [*_unfit_values(name, step, splits[0]), *_unknown(name, source, step, splits)]
    for split in splits if weight is not None else ():
        if not source.kept.take(weight or "", split.numbers).any():
            found = f"{weight}, which is 0 in each of the {counted(split.num_examples, 'row')} of {split.name}"
            remedy = f"choose another split, or set {source.dataset.key('weight')}=null"
            faults.append(Fault("dataset.weight", found, "a positive weight of some row", remedy))
    refuse(faults)


def _unfit_values(name: str, step: Any, train: Split) -> Iterator[Fault]:
    values = list(step.values or ()) if isinstance(step, Classes) else []
    if (isinstance(step, Number) and step.std == 0) or len(values) == 1:
        value = values[0] if values else f"{step.mean:g}"
        found = f"{name}, which is {value} in each of the {counted(train.num_examples, 'row')} of {train.name}"
        yield _fault(found, "values that differ", "predict another column, or train on another split")
    elif isinstance(step, Binary) and len(values) != 2:  # noqa: PLR2004
        found = f"{name} of {counted(len(values), 'value')} in {train.name}: {name_values(values)}"
        yield _fault(found, "two values for binary", f"set {override('dataset.target', name, 'class')}")


def _unknown(name: str, source: RowsSource, step: Any, splits: list[Split]) -> Iterator[Fault]:
    """Yield the fault of each split with classes or labels that the first one, of the training, lacks."""
    train, separator = splits[0], getattr(step, "separator", None)
    if not (isinstance(step, Classes) or separator is not None):
        return
    noun, nouns = ("class", "classes") if separator is None else ("label", "labels")
    known = {*(step.values or ())}
    for split in splits[1:] if known else ():
        if separator is None:
            found = source.kept.take(name, split.numbers).tolist()
            each: Iterable[Any] = ((value.decode() if isinstance(value, bytes) else int(value),) for value in found)
        else:
            found = source.kept.arrow(name, split.numbers)
            count = len(found) if {*labels_in(found, separator)} - known else 0
            each = [labels_in(found[place : place + 1], separator) for place in range(count)]
        new = [(place, value) for place, values in enumerate(each) for value in values if value not in known]
        if new:
            places = [*{place for place, _ in new}]
            rows = f"{counted(len(places), 'row')} of {split.name} (first: row {np.min(split.numbers[places])})"
            expected = f"values that {train.name} has, since no other {noun} is learned"
            remedy = f"choose splits that have all {nouns}, such as a larger training split, or leave these rows out"
            yield _fault(
                f"{name} of {name_values(list(dict.fromkeys(value for _, value in new)))} in {rows}", expected, remedy
            )


def _fault(found: str, expected: str, remedy: str) -> Fault:
    return Fault("dataset.target", found, expected, remedy)
