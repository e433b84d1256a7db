"""Readings: a run's validation pipeline over image files or a split, or the rows of tables or arrays, by number.

A reading knows the place of each example, whatever is skipped or reordered.
"""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import staged, with_tables
from etlrun.planning.learned import with_step
from etlrun.planning.plan import Plan, given_to_model
from etlrun.remote.copies import name_of
from etlrun.sources import folder
from etlrun.sources.base import Example, Source, Split, open_source
from etlrun.sources.content import stamp_of
from etlrun.sources.corrupt import corrupt_records
from etlrun.sources.folder import FilesSource
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.sources.rows.fitting import unfit_for
from etlrun.sources.rows.kept import KeptColumns, KeptWriter
from etlrun.sources.rows.kinds import Kind, as_kept, field_of, halved, has_any, kind_of_type, shown
from etlrun.sources.rows.read import OR_REPLACE
from etlrun.sources.rows.reader import OutputReader
from etlrun.sources.rows.source import RowsSource, TableSource
from etlrun.sources.rows.table import files_of
from etlrun.sources.rows.table import names_of as names_in
from etlrun.stages.base import Stage
from etlrun.stages.column_categories import Lookup
from etlrun.stages.column_numbers import LARGEST, items
from etlrun.stages.columns import Columns, Output
from etlrun.stages.dataset import IMAGE, Dataset
from etlrun.stages.extract import readable
from etlrun.stages.flow import NUMBER
from etlrun.stages.load import Batch, padded
from etlrun.stages.rows import Arrays, Rows, Table, TextFolder
from etlrun.stages.step import Map
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError, counted, headline, refuse
from etlrun.system.terminal import progress, say_note
from etlrun.system.values import Block, frozen
from etlrun.trained.load import Trained
from etlrun.trained.model import outputs_of, require_finite, same_classes, tester
from etlrun.trained.raw import of_model, of_validation
from etlrun.trained.rows import PATH, ROW, Head, Place, Write
from etlrun.trained.scores import Array, Ints, Tensors

SKIP_WITH = "pass --on-corrupt skip to list and leave out such records"
ROWS = "rows"
"""Where rows in memory are, for messages."""
_AT_ONCE, _SHOWN = 1_024, 3
_BLANK = ("", "NA", "null")
"""Texts without a value in tables, if those of the training were none."""


class ModelBatch(NamedTuple):
    """Examples as the model takes them.

    Attributes:
        inputs: One tensor, or several by name: (batch, ...).
        numbers: Numbers of the examples in the split, from 0; int64 (batch,).
        wanted: Targets (batch, ...), or several by name, and weights (batch,) unless all examples count the same; none
            where only predictions are made.
    """

    inputs: Any
    numbers: Ints
    wanted: Sequence[Any] = ()

    @property
    def weights(self) -> Array:
        """Weights of the examples (batch,), 1 where all count the same."""
        return self.wanted[1].reshape(-1) if self.wanted[1:] else np.ones(len(self.numbers))


@frozen
class Lost:
    """An example that a pass has lost.

    Attributes:
        place: Path of its file, and its record there.
        reason: Why it can't be used.
    """

    place: str
    reason: str


class Reading:
    """Examples of a split by their numbers, which are read in batches as a model takes them.

    Attributes:
        source: The dataset.
        split: Examples to read.
        seen: Whether each example has been in a batch; bool (num_examples,).
        header: Names of what tells examples apart.
        inputs_spec: Specs of the inputs of a batch.
        wanted_specs: Specs of the targets of a batch, and of the weights if there are any.
    """

    def __init__(
        self,
        split: Split,
        columns: Columns | None,
        dataset: tf.data.Dataset,
        handed: Callable[[Any], tuple[Any, ...]],
        header: Sequence[str] = (PATH,),
    ) -> None:
        """Read batches of a dataset by name, which `columns` made, of which a model is `handed` what it takes."""
        self.source, self.split, self.header = split.source, split, header
        self.seen = np.zeros(split.num_examples, bool)
        self._columns, self._dataset, self._handed = columns, dataset.with_options(as_written()), handed
        self.inputs_spec, *self.wanted_specs = handed(dataset.element_spec)
        self._firsts = [0, *accumulate(shard.take for shard in split.shards)]

    def batches(self, skip_with: str) -> Iterator[ModelBatch]:
        """Yield the batches; `skip_with` is what lets the command skip corrupt records, for messages.

        Raises:
            EtlrunError: A record is corrupt, and `dataset.on_corrupt` is `raise`, of image files all that are; or a
                step refuses a value.
        """
        try:
            for batch in self._dataset:
                known = batch[NUMBER].numpy()
                self.seen[known] = True
                self._require_held(batch, known)
                inputs, *wanted = self._handed(batch)
                yield ModelBatch(inputs, known, tf.nest.map_structure(lambda of: of.numpy(), wanted))
            if self.source.dataset.on_corrupt == "raise" and not self.seen.all():  # a file that ends too early
                raise tf.errors.DataLossError(None, None, "examples that are missing")
        except tf.errors.OpError as error:
            self._require_known(error)
            corrupt = corrupt_records(self.split)
            found = [*corrupt] if isinstance(self.source, ImageFiles) else [*islice(corrupt, 1)]
            if found:
                faults = [Fault(of.where, of.reason, of.expected, f"{of.remedy}, or {skip_with}") for of in found]
                raise EtlrunError(faults) from error
            expected, remedy = "steps that can process each example", "show the examples after each step: etlrun show"
            raise WorldError("transform", headline(error), expected, remedy) from error

    def place(self, number: int) -> str:
        """Return the path of the file of an example, and its record or row there if it has several."""
        shard = self._shard(number)
        return self.split.where(shard, shard.skip)

    def cells(self, number: int) -> Place:
        """Return what tells an example apart, below the header."""
        if ROW not in self.header:
            return (self.place(number),)
        path, row = self.split.place(self.split.shards[0], number)
        return (path, row or 0)[-len(self.header) :]

    def stored(self, names: Sequence[str]) -> Example:
        """Return features of all examples as they are stored, tensors (examples, ...) in the order of their numbers."""
        source, blocks = self.source, list[Example]()
        parse = source.parser(names) if isinstance(source, RowsSource) else source.parser()  # which reads no others
        for shard in self.split.shards:
            records = self.split.read(shard.path, shard.skip, shard.take).batch(_AT_ONCE)
            blocks += records.map(lambda some: {name: of for name, of in parse(some).items() if name in names})
        with tf.device("CPU"):  # whole columns, which a GPU may not hold
            return {name: tf.concat([block[name] for block in blocks], 0) for name in names}

    def example(self, number: int) -> Example:
        """Return the features of an example as they are stored."""
        shard = self._shard(number)
        return self.source.parser()(next(iter(self.split.read(shard.path, shard.skip, 1))))

    def lost(self) -> Iterator[Lost]:
        """Yield the examples that no batch had, in the order of the data, with their reasons."""
        for number in np.flatnonzero(~self.seen).tolist():
            try:
                found = next(corrupt_records(self.split, [self._shard(number)]), None)
                reason = found.reason if found else "a step can't process it"
            except WorldError as error:
                reason = error.faults[0].found
            yield Lost(place=self.place(number), reason=reason)

    def _require_held(self, batch: Tensors, numbers: Ints) -> None:
        """Raise `WorldError` for the first row of a batch with an output, of which it has some by name, too large."""
        for output in self._columns.outputs if self._columns and isinstance(self.source, RowsSource) else ():
            values = batch.get(output.name)
            if values is None or not values.dtype.is_floating:
                continue
            unheld = np.isinf(np.asarray(values)).reshape(len(numbers), -1).any(axis=1)
            if unheld.any():
                at = int(unheld.argmax())
                others = {name: batch[name][at].numpy() for name in output.of if name in batch}
                takes = "predicts" if output.is_of_target else "takes"
                expected = f"numbers of at most {LARGEST:.4g}, since a model {takes} float32"
                remedy = "repair the value, or write it in the unit of the training"
                raise self._unfit(int(numbers[at]), output, others, expected, remedy)

    def _require_known(self, error: Exception) -> None:
        """Raise `WorldError` for the first row that is left with a value that a step of its columns refuses."""
        if not isinstance(self.source, RowsSource) or self._columns is None:
            return
        outputs = [of for of in self._columns.outputs if of.image is None]  # whose files would be read, too
        parse = self.source.parser({name for output in outputs for name in output.of})

        def fits(numbers: Ints, count: int | None = None) -> bool:
            places = np.array([self._shard(number).skip for number in numbers])
            example = parse(tf.constant(self.split.numbered(places)))
            try:
                padded(Columns(outputs=(*outputs[:count],)).given(example))
            except tf.errors.InvalidArgumentError:
                return False
            return True

        left = np.flatnonzero(~self.seen)[:_AT_ONCE]  # the next batch
        if (place := halved(left, fits)) is not None:
            at = next(at for at in range(len(outputs)) if not fits(left[place : place + 1], at + 1))
            expected = f"values that the steps of {outputs[at].name} accept, as in the training"
            remedy = "repair the value, or train with a `lookup` whose `oov` is 1"
            raise self._unfit(int(left[place]), outputs[at], {}, expected, remedy) from error

    def _unfit(self, number: int, output: Output, others: Tensors, expected: str, remedy: str) -> WorldError:
        """Return the error of the values that an output is made of: those of columns, or of `others`, by name."""
        stored, values = {**others, **{name: of.numpy() for name, of in self.example(number).items()}}, list[str]()
        for value in (stored[name] for name in output.of if name in stored):
            largest = value[np.abs(value).argmax()] if np.ndim(value) and len(value) else value
            values.append(largest.decode(errors="replace") if isinstance(largest, bytes) else str(largest))
        return WorldError(f"{self.place(number)}, {', '.join(output.of)}", ", ".join(values), expected, remedy)

    def _shard(self, number: int) -> Any:
        """Return the part of a shard that is this example alone."""
        at = int(np.searchsorted(self._firsts, number, "right")) - 1
        shard = self.split.shards[at]
        return dataclasses.replace(shard, skip=shard.skip + number - self._firsts[at], take=1)


def of_plan(planned: Plan, split: Split) -> Reading:
    """Return the reading of a split with the stages of a run's validation, in its order and its batches, uncached.

    A run of `extract=tfds` is read shard by shard, since TFDS does not tell the place of what it reads.
    """
    stages = of_validation(planned)
    dataset = _numbered([of.stage for of in stages], split, planned.spec.trainer.seed)
    return Reading(split, planned.spec.columns, dataset, stages[-1].gives.handed)


def _numbered(stages: Sequence[Stage], split: Split, seed: int) -> tf.data.Dataset:
    """Return the batches of a split behind stages, by name, with the numbers of their examples."""
    batch = next(stage for stage in stages if isinstance(stage, Batch))  # up to which examples carry them, and in it
    context = Context(split=split, seed=seed, numbered_to=batch)
    context.passes_begun.assign(1)
    dataset: Any = None
    for stage in stages:
        if stage.leaves_out:  # what is missing shows in the numbers
            dataset = readable(dataset, split.num_examples).map(lambda _, example: example)
        else:
            dataset = staged(dataset, stage, context)
    return dataset


def opened(planned: Plan, key: str) -> Split:
    """Return the split that the validation of a plan reads; `key` names it in messages."""
    return open_source(planned.spec.dataset).split(planned.spec.dataset.eval_split or "", key)


class ImageFiles(FilesSource):
    """Images with the features of a dataset: its one input is the image, and its targets are zero."""

    def __init__(self, dataset: Dataset, paths: Sequence[str], no_files: Mapping[str, str]) -> None:
        """Read images as the examples of `dataset`, whose only input is an encoded image."""
        self.dataset, self.num_classes, self.full_name = dataset, None, "the images"
        self.files, self.classes, self.no_files = paths, (0,) * len(paths), no_files

    @property
    def whole(self) -> Split:
        """All files as one split, in their order."""
        return self.numbered("", np.arange(len(self.files)))

    def parser(self) -> Callable[[tf.Tensor], Example]:
        """Return the parser of the records."""
        flow = self.dataset.examples

        def parse(record: tf.Tensor) -> Example:
            example = {flow.inputs[0]: folder.parse(record)[IMAGE]}
            for name in flow.columns[1:]:
                of = flow.features[name]
                shape = [*([tf.shape(record)[0]] if record.shape.rank else []), *of.shape]
                example[name] = tf.zeros(shape, of.dtype)  # of texts empty ones
            return example

        return parse

    def file_of(self, path: str) -> str:
        return "an image"


def of_split(run: Trained, model: Any) -> Reading:
    """Return the pass over the split of the plan; `EtlrunError` if it is missing or has other classes."""
    split = opened(run.plan, run.split_key)
    same_classes(run, split.source, outputs_of(model, run.flow))
    return of_plan(run.plan, split)


def heads(run: Trained, model: Any, top: int | None, source: Source | None = None) -> list[Head]:
    """Return what a model predicts of each target; of classes the `top` likeliest ones, or all.

    Names of a single target are in the run, or numbers; those of several, and of labels, are in the dataset `source`,
    which is opened if that may be, or in the config of the run.
    """
    flow, outputs, dataset = run.flow, outputs_of(model, run.flow), run.then.spec.dataset
    targets, features = flow.targets, flow.features
    if len(targets) > 1 or features[flow.target].is_labels:
        if source is None and dataset.is_of_tfds:
            try:
                source = open_source(dataset.as_it_is())
            except EtlrunError:
                say_note("The dataset, which has the names of the classes, is not here: they are shown as numbers.")
        names = {name: (source and source.names_of(name)) or features[name].classes or None for name in targets}
    else:
        is_class = dataset.examples.features[flow.target].is_class
        numbers = tuple(map(str, range(outputs[flow.target])))
        names = {flow.target: (run.class_names or numbers) if is_class else None}
    return [
        Head(
            name if len(targets) > 1 else "",
            names[name],
            outputs[name],
            features[name].is_labels,
            top and min(top, outputs[name]),
        )
        for name in targets
    ]


def predict(run: Trained, reading: Reading, model: Any, write: Write) -> int:
    """Write a row for each example; list those that could not be read on standard error, and return their number.

    Raises:
        WorldError: A record is corrupt, and the plan does not skip such records; a step refuses a value of a row; or
            predictions are not finite.
    """
    compute = tester(model, run.flow, reading.inputs_spec)
    with progress() as begin:
        done = begin("predicted", reading.split.num_examples)
        for batch in reading.batches(SKIP_WITH):
            outputs = [*compute(batch.inputs)[0].values()]
            for of in outputs:
                require_finite(run, of, batch.numbers, reading)
            write([*map(reading.cells, batch.numbers.tolist())], outputs)
            done(len(batch.numbers))
    lost = [*reading.lost()]
    for example in lost:
        print(f"skipped   {example.place}: {example.reason}", file=sys.stderr)
    return len(lost)


def plain_value(value: Any) -> Any:
    """Return a value as Arrow takes it: of NumPy and pandas those of Python, times as texts, NaN as a missing value."""
    if "[ns]" in str(getattr(value, "dtype", "")):
        value = value.astype("datetime64[us]")  # Python's times have no nanoseconds
    value = float(value) if isinstance(value, Decimal) else value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [plain_value(of) for of in value]
    if type(value).__name__ == "NAType" or value != value:  # noqa: PLR0124 - NaN, NaT
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


def _column(rows: Sequence[Block], name: str, table: Table) -> pa.Array | None:
    """Return the values of a column as they are kept; None if one is not of its type."""
    kind = cast("Kind", table.columns[name])
    try:
        values = pa.array([plain_value(row.get(name)) for row in rows])
        if kind != "image":
            kind_of_type(values.type)  # an error for bytes, durations and mappings
        found = as_kept(values, kind, strip=table.strip)
    except (ValueError, TypeError, OverflowError, NotImplementedError, RecursionError):
        return None
    numbers = items(found)
    return None if pa.types.is_floating(numbers.type) and has_any(pc.is_inf(numbers)) else found


def in_memory(rows: Sequence[Block], table: Table, folder: Path) -> TableSource:
    """Return the columns of a table of rows, mappings to values of Python, NumPy or pandas; they are kept in `folder`.

    Raises:
        EtlrunError: Values are not of the types of their columns.
    """
    arrays, faults = {name: _column(rows, name, table) for name in table.columns}, list[Fault]()
    for name in [name for name, values in arrays.items() if values is None]:
        place = halved(rows, lambda some, name=name: _column(some, name, table) is not None) or 0  # type: ignore[misc]
        found, remedy = shown(rows[place].get(name)) or "an empty text", "repair it, or leave it out as missing"
        expected = f"a finite value of type {table.columns[name]}, as before"
        faults.append(Fault(f"{ROWS}, row {place}, {name}", found, expected, remedy))
    refuse(faults, EtlrunError)
    schema = pa.schema([field_of(name, cast("Kind", of)) for name, of in table.columns.items()])
    batch = pa.record_batch(arrays, schema)
    with closing(KeptWriter(folder, batch.schema)) as writer:
        writer.add(batch)
        writer.finish(rows={"train": len(rows)}, identity="", title=table.title, file_rows=[len(rows)])
    kept = KeptColumns(folder)
    kept.stamps = {ROWS: stamp_of(str(folder))}
    return TableSource(table, kept)


def opened_rows(run: Trained, given: Sequence[str], rows: Sequence[Block], folder: Path) -> Reading:
    """Return the rows of tables, of arrays or in memory, which are kept in a new `folder`, for the model of a run.

    `given` are patterns of tables, the path of an `.npz`, or those of an `.npy` for each column, named as it is; or
    there are `rows`.

    Raises:
        EtlrunError: One can't be read, lacks columns or values that the model needs, or has columns that the rows of
            the training do not have.
    """
    dataset, now, columns = run.then.spec.dataset, run.plan.spec.dataset, of_model(run.then)
    assert isinstance(dataset, Rows)  # noqa: S101 - for mypy
    known, declared = dataset.found.columns, getattr(dataset, "columns", {})
    needed = [*dict.fromkeys(name for output in columns.outputs for name in output.of if name in known)]
    values = {of.name: getattr(dataset, of.name) for of in dataclasses.fields(Rows)}
    values |= {"order": "file", "split_by": None, "known": None, "storage": run.storage}
    values |= {"target": {}, "weight": None, "inputs": None}  # rows that are read in order
    is_archive = len(given) == 1 and given[0].endswith(".npz")
    try:
        if is_archive or (given and all(path.endswith(".npy") for path in given)):
            files: Any = given[0] if is_archive else {Path(path).stem: path for path in given}
            source, paths = cast("RowsSource", ArraysSource(Arrays(**values, files=files))), given
            refuse(_lacking(", ".join(paths), [*source.kept.known.columns], [*known], needed))
        else:
            table = Table(
                **values,
                files=tuple(given),
                errors=getattr(now, "errors", "strict"),
                csv=getattr(now, "csv", None),
                columns={name: declared.get(name, known[name].type) for name in needed},
                missing=getattr(dataset, "missing", _BLANK),
                strip=getattr(dataset, "strip", False),
            )
            names, paths = [*dict.fromkeys(name for row in rows for name in row)], [ROWS]
            if not rows:
                paths = [name_of(path) for of in files_of(table).values() for path in of]
                names = [*names_in(table)]
            faults = [*_lacking(paths[0], names, [*known, *dataset.found.left_out], needed)]
            there = {name: of for name, of in table.columns.items() if name in names}
            source = _with_columns(dataclasses.replace(table, columns=there), rows, folder, faults)
    except ConfigError:
        raise
    except EtlrunError as error:
        raise EtlrunError([_named(of, dataset) for of in error.faults]) from error
    split, found = source.split("train", "PATH"), source.kept.known.columns
    refuse(
        Fault(
            ", ".join(paths),
            f"{name} of shape {found[name].feature.shape} in each row",
            f"{known[name].feature.shape}, as in the training",
            "save the column as an array of this shape, in an .npz or an .npy",
        )
        for name in needed
        if found[name].feature.shape != known[name].feature.shape
    )
    refuse(unfit_for(source, columns.outputs))
    source.dataset = dataclasses.replace(source.dataset, known=source.kept.known)
    for note in _unknown(columns, source, split) if given else ():
        say_note(note)
    flow, header = given_to_model(run.then.train), (PATH, ROW) if len(source.kept.ends) > 1 else (ROW,)  # of each all
    if any(of.feature.format == "image" for of in found.values()):  # whose steps stand behind the columns
        read = (of.stage for of in of_validation(run.then))
        stages = [with_step(columns, of) if isinstance(of, Map) else of for of in read]
        dataset = _numbered(stages, split, run.then.spec.trainer.seed)
        return Reading(split, columns, dataset, lambda batch: (flow.given(batch),), header)
    parse, made = source.parser(needed), with_tables(columns)[0]
    records = split.read(split.shards[0].path, 0, split.num_examples).batch(_AT_ONCE)
    dataset = records.map(lambda rows: padded(made.given({**parse(rows), NUMBER: rows})))
    return Reading(split, columns, dataset, lambda batch: (flow.given(batch),), header)


def _unknown(columns: Columns, source: RowsSource, split: Split) -> Iterator[str]:
    """Yield the notes on values of columns that the training did not have, of which a model knows just that."""
    above = dict[str, Output]()
    for output in columns.outputs:
        place = next((at for at, step in enumerate(output.steps) if type(step) is Lookup and step.oov != "error"), None)
        if place is not None and not output.has_sequences:
            step, count, named = cast("Lookup", output.steps[place]), 0, dict[Any, None]()
            for values in OutputReader(output, above, source, split).parts(output.steps[:place]):
                unknown = step.unknown(values)
                count += len(unknown)
                named |= dict.fromkeys(unknown.unique()[:_SHOWN].to_pylist())
            if count:
                texts = (of.decode(errors="replace") if isinstance(of, bytes) else of for of in islice(named, _SHOWN))
                share = f"in {count:,} of {counted(split.num_examples, 'row')}"
                such = ", ".join(map(repr, texts))
                yield f"{output.of[0]}: values that the training did not have, such as {such}, {share}."
        above[output.name] = output


def _named(fault: Fault, dataset: Rows) -> Fault:
    """Return the fault of rows as one of the command line, which has neither splits nor types of its own."""
    where = "PATH" if fault.where == Table.key("files") else fault.where
    remedy = fault.remedy if isinstance(dataset, Table | TextFolder) else fault.remedy.removesuffix(OR_REPLACE)
    if Table.key("columns") in remedy:
        remedy = remedy.partition(", or set another type")[0]
        remedy += ": the column has the type of the training" * (remedy == "repair the value")
    if Table.key("csv") in remedy and not isinstance(dataset, Table):
        remedy = "write it as csv with commas, and with a quote at the end of each value in quotes"
    found = fault.found.removesuffix(" for train")
    if isinstance(dataset, TextFolder) and Path(folder := found.removeprefix("no file ")).is_dir():
        remedy = f"write {shlex.quote(f'dataset.folder={folder}')} dataset.split=train, which reads each file as a text"
    return dataclasses.replace(fault, where=where, found=found, remedy=remedy)


def _with_columns(table: Table, rows: Sequence[Block], folder: Path, faults: Sequence[Fault]) -> TableSource:
    """Return the columns of a table that are there, of its files or `rows`; raise `EtlrunError` with all faults."""
    try:
        source = in_memory(rows, table, folder) if rows else TableSource(table)
    except EtlrunError as error:
        raise EtlrunError([*faults, *error.faults]) from error
    refuse(faults)
    return source


def _lacking(where: str, found: Sequence[str], trained: Sequence[str], needed: Sequence[str]) -> Iterator[Fault]:
    """Yield the fault of columns that are missing, and those that are unknown."""
    missing, unknown = (
        [name for name in these if name not in those] for these, those in ((needed, found), (found, trained))
    )
    parts = [f"no column {', '.join(missing)}"] if missing else []
    parts += [f"the unknown {', '.join(unknown)}"] if unknown else []
    expected = f"the columns that the model takes ({', '.join(needed)}), and none that its training did not have"
    remedy = "name the columns as in the table of the training, and leave out others"
    if parts:
        yield Fault(where, " and ".join(parts), expected, remedy)
