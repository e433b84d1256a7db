"""One pass of a run's validation pipeline over image files or a split, and predictions batch by batch.

It knows the place of each example, whatever is skipped or reordered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.graph.build import as_written
from etlrun.graph.context import Context
from etlrun.graph.datasets import staged
from etlrun.planning.plan import Plan, stage_of
from etlrun.sources import folder
from etlrun.sources.base import Example, Source, Split, open_source
from etlrun.sources.content import Shard
from etlrun.sources.corrupt import corrupt_records
from etlrun.sources.folder import FileSplit
from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.kept import KeptColumns
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.stages.column_numbers import LARGEST
from etlrun.stages.columns import Output
from etlrun.stages.dataset import IMAGE, Dataset
from etlrun.stages.extract import readable
from etlrun.stages.flow import NUMBER
from etlrun.stages.load import Batch
from etlrun.system.errors import EtlrunError, WorldError, headline
from etlrun.system.terminal import say_note
from etlrun.system.values import frozen
from etlrun.trained.load import Trained
from etlrun.trained.model import names_of, outputs_of, predictor, require_finite, same_classes, unchecked
from etlrun.trained.raw import of_validation
from etlrun.trained.rows import Head, Writer


def require_held(
    kept: KeptColumns, outputs: Sequence[Output], batch: Mapping[str, Any], rows: Numbers, places: Iterable[str]
) -> None:
    """Raise `WorldError` for the first of the kept `rows` of a batch with an output that is infinite.

    `batch` has the outputs by name; `places` name its rows.
    """
    for output in outputs:
        if output.name not in batch or not batch[output.name].dtype.is_floating:
            continue
        unheld = np.isinf(np.asarray(batch[output.name])).reshape(len(rows), -1).any(axis=1)
        if unheld.any():
            at, found = int(unheld.argmax()), list[str]()
            for name in output.of:
                is_column = name in kept.known.columns
                value = kept.arrow(name)[int(rows[at])].as_py() if is_column else np.asarray(batch[name])[at].tolist()
                found.append(str(max(value, key=abs) if isinstance(value, list) else value))
            takes = "predicts" if output.is_of_target else "takes"
            expected = f"numbers of at most {LARGEST:.4g}, since a model {takes} float32"
            remedy = "repair the value, or write it in the unit of the training"
            raise WorldError(f"{[*places][at]}, {', '.join(output.of)}", ", ".join(found), expected, remedy)


@frozen
class ModelBatch:
    """Examples as the model takes them.

    Attributes:
        inputs: One tensor, or several by name: (batch, ...).
        targets: Targets (batch, ...), or several by name.
        weights: Weights of the examples (batch,); None if all count the same.
        numbers: Numbers of the examples in the split, from 0; int64 (batch,).
    """

    inputs: Any
    targets: Any
    weights: npt.NDArray[Any] | None
    numbers: npt.NDArray[np.int64]


@frozen
class Lost:
    """An example that a pass has lost.

    Attributes:
        place: Path of its file, and its record there.
        reason: Why it can't be used.
    """

    place: str
    reason: str


class EvaluationPass:
    """A pass over a split with the stages of a run's validation, in its order and its batches, without a cache.

    A run of `extract=tfds` is read shard by shard, since TFDS does not tell the place of what it reads.

    Attributes:
        source: The dataset.
        split: Examples to read.
        seen: Whether each example has been in a batch; bool (num_examples,).
        header: Name of what tells examples apart.
    """

    header: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, planned: Plan, source: Source, split: Split) -> None:
        self.source, self.split = source, split
        self._firsts = [0, *accumulate(shard.take for shard in split.shards)]
        self._same = np.arange(split.num_examples)  # the same shard again has the numbers of the first
        for at, shard in enumerate(split.shards):
            first = self._firsts[split.shards.index(shard)]
            self._same[self._firsts[at] : self._firsts[at + 1]] = np.arange(first, first + shard.take)
        self.seen = self._same != np.arange(split.num_examples)
        stages, self._columns = of_validation(planned), planned.spec.columns
        batch = stage_of(stages, Batch)  # up to which examples carry their numbers, and in it
        context = Context(source=source, split=split, seed=planned.spec.trainer.seed, numbered_to=batch)
        context.passes_begun.assign(1)
        dataset = None
        for of in stages:
            if of.stage.leaves_out:  # what is missing shows in the numbers
                dataset = readable(dataset, split.num_examples).map(lambda _, example: example)
            else:
                dataset = staged(dataset, of.stage, context)
        assert dataset is not None  # noqa: S101 - for mypy
        self._dataset, self._handed = dataset.with_options(as_written()), stages[-1].gives.handed

    @property
    def inputs_spec(self) -> Any:
        """Specs of the inputs of a batch."""
        return self._handed(self._dataset.element_spec)[0]

    @property
    def wanted_specs(self) -> tuple[Any, ...]:
        """Specs of the targets of a batch, and of the weights if there are any."""
        return tuple(self._handed(self._dataset.element_spec)[1:])

    def batches(self, skip_with: str) -> Iterator[ModelBatch]:
        """Yield the batches; `skip_with` is what lets the command skip corrupt records, for messages.

        Raises:
            WorldError: A record is corrupt, and `dataset.on_corrupt` is `raise`.
        """
        try:
            for batch in self._dataset:
                known = self._same[batch[NUMBER].numpy()]
                self.seen[known] = True
                split, places = self.split, (self.place(int(number)) for number in known)
                if isinstance(self.source, RowsSource) and isinstance(split, RowSplit) and self._columns is not None:
                    require_held(self.source.kept, self._columns.outputs, batch, split.rows[known], places)
                inputs, *wanted = self._handed(batch)
                targets, *weight = tf.nest.map_structure(lambda of: of.numpy(), wanted)
                yield ModelBatch(inputs=inputs, targets=targets, weights=weight[0] if weight else None, numbers=known)
        except tf.errors.OpError as error:
            raise self._cause(headline(error), skip_with) from error
        if self.source.dataset.on_corrupt == "raise" and not self.seen.all():  # a file that ends too early
            raise self._cause("examples that are missing", skip_with)

    def _cause(self, reason: str, skip_with: str) -> WorldError:
        for of in corrupt_records(self.source, self.split):
            return WorldError(of.where, of.reason, of.expected, f"{of.remedy}, or {skip_with}")
        expected, remedy = "steps that can process each example", "show the examples after each step: etlrun show"
        return WorldError("transform", reason, expected, remedy)

    def place(self, number: int) -> str:
        """Return the path of the file of an example, and its record there if it has several."""
        shard = self._shard(number)
        return self.split.where(shard, shard.skip)

    def cells(self, number: int) -> tuple[str, ...]:
        """Return what tells an example apart, below the header."""
        return (self.place(number),)

    def example(self, number: int) -> Example:
        """Return the features of an example as they are stored."""
        shard = self._shard(number)
        record = next(iter(self.split.read(shard.path, shard.skip, 1)))
        return self.source.parser()(record)

    def image(self, number: int) -> bytes | None:
        """Return the encoded image of an example that has a single one."""
        flow = self.source.dataset.examples
        images = [name for name in flow.inputs if flow.features[name].format == "image"]
        return bytes(self.example(number)[images[0]].numpy()) if len(images) == 1 else None

    def lost(self) -> Iterator[Lost]:
        """Yield the examples that no batch had, in the order of the data, with their reasons."""
        for number in np.flatnonzero(~self.seen):
            try:
                found = next(corrupt_records(self.source, self.split, [self._shard(int(number))]), None)
                reason = found.reason if found else "a step can't process it"
            except WorldError as error:
                reason = error.faults[0].found
            yield Lost(place=self.place(int(number)), reason=reason)

    def _shard(self, number: int) -> Any:
        """Return the part of a shard that is this example alone."""
        at = int(np.searchsorted(self._firsts, number, "right")) - 1
        shard = self.split.shards[at]
        return dataclasses.replace(shard, skip=shard.skip + number - self._firsts[at], take=1)


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
        others = {name: of for name, of in flow.features.items() if name not in flow.inputs}

        def parse(record: tf.Tensor) -> Example:
            example = {flow.inputs[0]: folder.parse(record)[IMAGE]}
            for name, of in others.items():
                shape = [*([tf.shape(record)[0]] if record.shape.rank else []), *of.shape]
                example[name] = tf.fill(shape, "") if of.dtype == "string" else tf.zeros(shape, of.dtype)
            return example

        return parse

    def file_of(self, path: str) -> str:
        """Return what the file at `path` is."""
        return "an image"


def of_files(run: Trained, paths: Sequence[str], no_files: Mapping[str, str] | None = None) -> EvaluationPass:
    """Return the pass over image files, as the validation of the run would read them.

    `no_files` says why some of them can't be read, by their paths.
    """
    source = ImageFiles(run.plan.spec.dataset)
    return EvaluationPass(run.plan, source, source.files(paths, no_files or {}))


def of_split(run: Trained, model: Any) -> EvaluationPass:
    """Return the pass over the split of the plan; `EtlrunError` if it is missing or has other classes."""
    source, split = opened(run.plan, run.split_key)
    same_classes(run, source, outputs_of(model, run.flow))
    if text := unchecked(run, source):
        say_note(text)
    return EvaluationPass(run.plan, source, split)


def heads(run: Trained, model: Any, top: int | None) -> list[Head]:
    """Return what a model predicts of each target; of classes the `top` likeliest ones, or all."""
    flow, outputs = run.flow, outputs_of(model, run.flow)
    names = names_of(run, _source_of_names(run), outputs)
    return [
        Head(
            target=name if len(flow.targets) > 1 else "",
            names=names[name],
            outputs=outputs[name],
            is_labels=flow.features[name].is_labels,
            top=top and min(top, outputs[name]),
        )
        for name in flow.targets
    ]


def _source_of_names(run: Trained) -> Source | None:
    """Return the dataset of a run if it alone may know the names of its classes, and if it is there."""
    dataset = run.then.spec.dataset
    targets = [dataset.examples.features[name] for name in dataset.examples.targets]
    is_noted = run.class_names is not None if len(targets) == 1 and targets[0].is_class else not dataset.is_of_tfds
    if is_noted or not any(of.is_class or of.is_labels for of in targets):
        return None
    try:
        return open_source(dataset.as_it_is())
    except EtlrunError:
        say_note("The run did not note the names of its classes: they are named by their numbers.")
        return None


def predict(run: Trained, reading: Any, model: Any, writer: Writer, done: Callable[[int], None]) -> list[Lost]:
    """Write a row for each example of a pass, or of tables; return those that could not be read; `done` counts them.

    Raises:
        WorldError: A record is corrupt, and the plan does not skip such records; a step refuses a value of a row; or
            predictions are not finite.
    """
    compute = predictor(model, run.flow, reading.inputs_spec)
    for batch in reading.batches(SKIP_WITH):
        outputs = [*compute(batch.inputs).values()]
        for of in outputs:
            require_finite(run, of, batch.numbers, reading)
        writer.write([*map(reading.cells, batch.numbers.tolist())], outputs)
        done(len(batch.numbers))
    return [*reading.lost()]
