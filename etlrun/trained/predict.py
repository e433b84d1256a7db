"""Readings: a run's validation pipeline over image files or a split, or the rows of tables or arrays, by number.

A reading knows the place of each example, whatever is skipped or reordered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import staged, with_tables
from etlrun.planning.plan import Plan, given_to_model, stage_of
from etlrun.remote.copies import name_of
from etlrun.sources import folder
from etlrun.sources.base import Example, Source, Split, open_source
from etlrun.sources.content import Shard
from etlrun.sources.corrupt import corrupt_records
from etlrun.sources.folder import FileSplit
from etlrun.sources.rows.arrays import ArraysSource
from etlrun.sources.rows.fitting import unfit_for
from etlrun.sources.rows.read import OR_REPLACE
from etlrun.sources.rows.source import RowSplit, RowsSource, TableSource, as_tensor
from etlrun.sources.rows.table import files_of
from etlrun.sources.rows.table import names_of as names_in
from etlrun.stages.column_numbers import LARGEST
from etlrun.stages.columns import Columns, Output
from etlrun.stages.dataset import IMAGE, Dataset
from etlrun.stages.extract import readable
from etlrun.stages.flow import NUMBER, Flow
from etlrun.stages.load import Batch, padded
from etlrun.stages.rows import Arrays, Rows, Table, TextFolder
from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError, headline
from etlrun.system.terminal import say_note
from etlrun.system.values import frozen
from etlrun.trained.load import Trained
from etlrun.trained.model import names_of, outputs_of, require_finite, same_classes, tester, unchecked
from etlrun.trained.raw import of_model, of_validation
from etlrun.trained.rows import PATH, ROW, Head, Place, Writer
from etlrun.trained.scores import Array, Ints


class ModelBatch(NamedTuple):
    """Examples as the model takes them.

    Attributes:
        inputs: One tensor, or several by name: (batch, ...).
        numbers: Numbers of the examples in the split, from 0; int64 (batch,).
        targets: Targets (batch, ...), or several by name; None where only predictions are made.
        weights: Weights of the examples (batch,); None if all count the same.
    """

    inputs: Any
    numbers: Ints
    targets: Any = None
    weights: Array | None = None


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
    """

    inputs_spec: Any

    def __init__(self, source: Source, split: Split, header: Place = (PATH,)) -> None:
        self.source, self.split, self.header, self.seen = source, split, header, np.zeros(split.num_examples, bool)
        self._firsts = [0, *accumulate(shard.take for shard in split.shards)]

    def batches(self, skip_with: str) -> Iterator[ModelBatch]:
        """Yield the batches; `skip_with` is what lets the command skip corrupt records, for messages.

        Raises:
            WorldError: A record is corrupt, and `dataset.on_corrupt` is `raise`; or a step refuses a value.
        """
        raise NotImplementedError

    def place(self, number: int) -> str:
        """Return the path of the file of an example, and its record or row there if it has several."""
        shard = self._shard(number)
        return self.split.where(shard, shard.skip)

    def cells(self, number: int) -> Place:
        """Return what tells an example apart, below the header."""
        return (self.place(number),)

    def example(self, number: int) -> Example:
        """Return the features of an example as they are stored."""
        shard = self._shard(number)
        return self.source.parser()(next(iter(self.split.read(shard.path, shard.skip, 1))))

    def image(self, number: int) -> bytes | None:
        """Return the encoded image of an example that has a single one."""
        flow = self.source.dataset.examples
        images = [name for name in flow.inputs if flow.features[name].format == "image"]
        return bytes(self.example(number)[images[0]].numpy()) if len(images) == 1 else None

    def lost(self) -> Iterator[Lost]:
        """Yield the examples that no batch had, in the order of the data, with their reasons."""
        for number in np.flatnonzero(~self.seen).tolist():
            try:
                found = next(corrupt_records(self.source, self.split, [self._shard(number)]), None)
                reason = found.reason if found else "a step can't process it"
            except WorldError as error:
                reason = error.faults[0].found
            yield Lost(place=self.place(number), reason=reason)

    def require_held(self, outputs: Sequence[Output], batch: Mapping[str, Any], numbers: Ints) -> None:
        """Raise `WorldError` for the first row of a batch with an output, of which it has some by name, too large."""
        source, split = self.source, self.split
        if not isinstance(source, RowsSource) or not isinstance(split, RowSplit):
            return
        for output in outputs:
            values = batch.get(output.name)
            if values is None or not values.dtype.is_floating:
                continue
            unheld = np.isinf(np.asarray(values)).reshape(len(numbers), -1).any(axis=1)
            if unheld.any():
                at, found, kept = int(unheld.argmax()), list[str](), source.kept
                for name in output.of:
                    is_column, row = name in kept.known.columns, int(split.rows[numbers[at]])
                    value = kept.arrow(name)[row].as_py() if is_column else np.asarray(batch[name])[at].tolist()
                    found.append(str(max(value, key=abs) if isinstance(value, list) else value))
                where = f"{self.place(int(numbers[at]))}, {', '.join(output.of)}"
                takes = "predicts" if output.is_of_target else "takes"
                expected = f"numbers of at most {LARGEST:.4g}, since a model {takes} float32"
                remedy = "repair the value, or write it in the unit of the training"
                raise WorldError(where, ", ".join(found), expected, remedy)

    def _shard(self, number: int) -> Any:
        """Return the part of a shard that is this example alone."""
        at = int(np.searchsorted(self._firsts, number, "right")) - 1
        shard = self.split.shards[at]
        return dataclasses.replace(shard, skip=shard.skip + number - self._firsts[at], take=1)


class EvaluationPass(Reading):
    """A pass over a split with the stages of a run's validation, in its order and its batches, without a cache.

    A run of `extract=tfds` is read shard by shard, since TFDS does not tell the place of what it reads.

    Attributes:
        wanted_specs: Specs of the targets of a batch, and of the weights if there are any.
    """

    def __init__(self, planned: Plan, source: Source, split: Split) -> None:
        super().__init__(source, split)
        stages, self._columns = of_validation(planned), planned.spec.columns
        batch = stage_of(stages, Batch)  # up to which examples carry their numbers, and in it
        context = Context(source=source, split=split, seed=planned.spec.trainer.seed, numbered_to=batch)
        context.passes_begun.assign(1)
        dataset: Any = None
        for of in stages:
            if of.stage.leaves_out:  # what is missing shows in the numbers
                dataset = readable(dataset, split.num_examples).map(lambda _, example: example)
            else:
                dataset = staged(dataset, of.stage, context)
        self._dataset, self._handed = dataset.with_options(as_written()), stages[-1].gives.handed
        self.inputs_spec, *self.wanted_specs = self._handed(dataset.element_spec)

    def batches(self, skip_with: str) -> Iterator[ModelBatch]:
        try:
            for batch in self._dataset:
                known = batch[NUMBER].numpy()
                self.seen[known] = True
                if self._columns is not None:
                    self.require_held(self._columns.outputs, batch, known)
                inputs, *wanted = self._handed(batch)
                yield ModelBatch(inputs, known, *tf.nest.map_structure(lambda of: of.numpy(), wanted))
            if self.source.dataset.on_corrupt == "raise" and not self.seen.all():  # a file that ends too early
                raise tf.errors.DataLossError(None, None, "examples that are missing")
        except tf.errors.OpError as error:
            for of in corrupt_records(self.source, self.split):
                raise WorldError(of.where, of.reason, of.expected, f"{of.remedy}, or {skip_with}") from error
            expected, remedy = "steps that can process each example", "show the examples after each step: etlrun show"
            raise WorldError("transform", headline(error), expected, remedy) from error


def opened(planned: Plan, key: str) -> tuple[Source, Split]:
    """Return the dataset of a plan and the split that its validation reads; `key` names that split in messages."""
    source = open_source(planned.spec.dataset)
    return source, source.split(planned.spec.dataset.eval_split or "", key)


SKIP_WITH = "pass --on-corrupt skip to list and leave out such records"


class ImageFiles(Source):
    """Images with the features of a dataset: its one input is the image, and its targets are zero."""

    repair: ClassVar[str] = "restore or remove the file"
    conversion: ClassVar[str] = "convert the file, as to PNG"

    def __init__(self, dataset: Dataset) -> None:
        """Read images as the examples of `dataset`, whose only input is an encoded image."""
        self.dataset, self.num_classes, self.full_name = dataset, None, "the images"

    def files(self, paths: Sequence[str], no_files: Mapping[str, str]) -> FileSplit:
        """Return these files as one split, in this order; `no_files` says why some of them can't be read."""
        count = len(paths)
        shards, files = (Shard(path="", skip=0, take=count),), tuple(paths)
        return FileSplit(
            name="", shards=shards, num_examples=count, files=files, classes=(0,) * count, no_files=no_files
        )

    def parser(self) -> Callable[[tf.Tensor], Example]:
        """Return the parser of the records of `files`."""
        flow = self.dataset.examples

        def parse(record: tf.Tensor) -> Example:
            example = {flow.inputs[0]: folder.parse(record)[IMAGE]}
            for name in flow.columns[1:]:
                of = flow.features[name]
                shape = [*([tf.shape(record)[0]] if record.shape.rank else []), *of.shape]
                example[name] = tf.fill(shape, "") if of.dtype == "string" else tf.zeros(shape, of.dtype)
            return example

        return parse

    def file_of(self, path: str) -> str:
        return "an image"


def of_split(run: Trained, model: Any) -> EvaluationPass:
    """Return the pass over the split of the plan; `EtlrunError` if it is missing or has other classes."""
    source, split = opened(run.plan, run.split_key)
    same_classes(run, source, outputs_of(model, run.flow))
    if text := unchecked(run, source):
        say_note(text)
    return EvaluationPass(run.plan, source, split)


def heads(run: Trained, model: Any, top: int | None) -> list[Head]:
    """Return what a model predicts of each target; of classes the `top` likeliest ones, or all."""
    flow, outputs, dataset, source = run.flow, outputs_of(model, run.flow), run.then.spec.dataset, None
    if dataset.is_of_tfds and (len(flow.targets) > 1 or flow.features[flow.target].is_labels):
        try:
            source = open_source(dataset.as_it_is())
        except EtlrunError:
            say_note("The dataset, which has the names of its classes, is not here: they are named by their numbers.")
    names = names_of(run, source, outputs)
    return [
        Head(
            name if len(flow.targets) > 1 else "",
            names[name],
            outputs[name],
            flow.features[name].is_labels,
            top and min(top, outputs[name]),
        )
        for name in flow.targets
    ]


def predict(run: Trained, reading: Reading, model: Any, writer: Writer, done: Callable[[int], None]) -> list[Lost]:
    """Write a row for each example of a pass, or of tables; return those that could not be read; `done` counts them.

    Raises:
        WorldError: A record is corrupt, and the plan does not skip such records; a step refuses a value of a row; or
            predictions are not finite.
    """
    compute = tester(model, run.flow, reading.inputs_spec)
    for batch in reading.batches(SKIP_WITH):
        outputs = [*compute(batch.inputs)[0].values()]
        for of in outputs:
            require_finite(run, of, batch.numbers, reading)
        writer.write([*map(reading.cells, batch.numbers.tolist())], outputs)
        done(len(batch.numbers))
    return [*reading.lost()]


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


def opened_rows(run: Trained, given: Sequence[str]) -> TableRows:
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
            _require_columns(paths[0], names_in(table), [*known, *dataset.found.left_out], needed)
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
