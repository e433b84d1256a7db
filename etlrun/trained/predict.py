"""Predictions of a run's model for image files or a split, batch by batch, with the run's validation pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from etlrun.sources import folder
from etlrun.sources.base import Example, Source
from etlrun.sources.content import Shard
from etlrun.sources.file_content import Images
from etlrun.sources.folder import FileSplit
from etlrun.sources.open import open_source
from etlrun.stages.dataset import IMAGE, Dataset
from etlrun.system.errors import EtlrunError
from etlrun.system.terminal import say_note
from etlrun.trained.load import Trained
from etlrun.trained.model import class_names, outputs_of, predictor, require_finite, same_classes
from etlrun.trained.numbered import Lost, Pass, opened
from etlrun.trained.order import unchecked
from etlrun.trained.rows import Writer

SKIP_WITH = "pass --on-corrupt skip to list and leave out such records"


class ImageFiles(Source):
    """Images with the features of a dataset: its one input is the image, and its target is zero."""

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
        target = flow.features[flow.target]

        def parse(record: tf.Tensor) -> Example:
            shape = [*([tf.shape(record)[0]] if record.shape.rank else []), *target.shape]
            blank = tf.fill(shape, "") if target.dtype == "string" else tf.zeros(shape, target.dtype)
            return {flow.inputs[0]: folder.parse(record)[IMAGE], flow.target: blank}

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
    same_classes(run, source, outputs_of(model))
    if text := unchecked(run, source):
        say_note(text)
    return Pass(run.plan, source, split)


def names(run: Trained, model: Any) -> tuple[str, ...] | None:
    """Return the names of the classes in the order of the outputs; None if the target is no class.

    A run that did not note them takes those of its dataset, where that is there, and else numbers.
    """
    found = class_names(run, outputs_of(model))
    if found is None or run.class_names is not None:
        return found
    try:
        of_data = open_source(run.then.spec.dataset.as_it_is()).class_names
    except EtlrunError:
        of_data = None
    if of_data is not None and len(of_data) == len(found):
        return of_data
    say_note("The run did not note the names of its classes: they are named by their numbers.")
    return found


def predict(run: Trained, reading: Pass, model: Any, writer: Writer, done: Callable[[int], None]) -> list[Lost]:
    """Write a row for each example of a pass, and return the examples that could not be read; `done` counts batches.

    Raises:
        WorldError: A record is corrupt, and the plan does not skip such records; or predictions are not finite.
    """
    compute = predictor(model, reading.inputs_spec)
    for batch in reading.batches(SKIP_WITH):
        outputs = compute(batch.inputs)
        places = [reading.place(int(number)) for number in batch.numbers]
        require_finite(run, outputs, places.__getitem__)
        writer.write([(place,) for place in places], outputs)
        done(len(batch.numbers))
    return [*reading.lost()]
