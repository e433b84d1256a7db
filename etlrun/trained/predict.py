"""Predictions of a run's model for image files or a split, batch by batch, with the run's validation pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf

from etlrun.sources import folder
from etlrun.sources.base import Example, Source, open_source
from etlrun.sources.content import Shard
from etlrun.sources.folder import FileSplit, Images
from etlrun.stages.dataset import IMAGE, Dataset
from etlrun.system.errors import EtlrunError
from etlrun.system.terminal import say_note
from etlrun.trained.load import Trained
from etlrun.trained.model import names_of, outputs_of, predictor, require_finite, same_classes
from etlrun.trained.numbered import Lost, Pass, opened
from etlrun.trained.order import unchecked
from etlrun.trained.rows import Head, Writer

if TYPE_CHECKING:
    from etlrun.trained.tables import Rows  # imports Arrow

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
        images = Images(paths=tuple(paths), labels=(0,) * len(paths), no_files=no_files)
        shard = Shard(path="", skip=0, take=len(paths))
        return FileSplit(name="", shards=(shard,), num_examples=len(paths), images=images)

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


def of_files(run: Trained, paths: Sequence[str], no_files: Mapping[str, str] | None = None) -> Pass:
    """Return the pass over image files, as the validation of the run would read them.

    `no_files` says why some of them can't be read, by their paths.
    """
    source = ImageFiles(run.plan.spec.dataset)
    return Pass(run.plan, source, source.files(paths, no_files or {}))


def of_split(run: Trained, model: Any) -> Pass:
    """Return the pass over the split of the plan; `EtlrunError` if it is missing or has other classes."""
    source, split = opened(run.plan, run.split_key)
    same_classes(run, source, outputs_of(model, run.flow))
    if text := unchecked(run, source):
        say_note(text)
    return Pass(run.plan, source, split)


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


def predict(run: Trained, reading: Pass | Rows, model: Any, writer: Writer, done: Callable[[int], None]) -> list[Lost]:
    """Write a row for each example of a pass, or of tables; return those that could not be read; `done` counts them.

    Raises:
        WorldError: A record is corrupt, and the plan does not skip such records; a step refuses a value of a row; or
            predictions are not finite.
    """
    compute = predictor(model, run.flow, reading.inputs_spec)
    for batch in reading.batches(SKIP_WITH):
        outputs, numbers = [*compute(batch.inputs).values()], batch.numbers.tolist()
        for of in outputs:
            require_finite(run, of, lambda row, numbers=numbers: reading.place(numbers[row]))  # type: ignore[misc]
        writer.write([*map(reading.cells, numbers)], outputs)
        done(len(numbers))
    return [*reading.lost()]
