"""Predictions of a run's model for image files or a split, batch by batch, with the run's validation pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from etlrun.planning.plan import given_to_model
from etlrun.sources import folder
from etlrun.sources.base import Example, Source, open_source
from etlrun.sources.content import Shard
from etlrun.sources.folder import FileSplit, Images
from etlrun.stages.dataset import IMAGE, Dataset
from etlrun.stages.flow import Feature
from etlrun.system.errors import EtlrunError
from etlrun.system.terminal import say_note
from etlrun.trained.load import Trained
from etlrun.trained.model import class_names, outputs_of, predictor, require_finite, same_classes
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
    if not targets_of(run):
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


def targets_of(run: Trained) -> dict[str, Feature]:
    """Return the targets of a run that has several, or several labels, by name; none of any other run."""
    flow = given_to_model(run.then.train)
    is_other = len(flow.targets) > 1 or flow.features[flow.target].is_labels
    return {name: flow.features[name] for name in flow.targets if is_other}


def _names_of(run: Trained, targets: Mapping[str, Feature]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes or labels of targets: those of the config, and of data of TFDS its own."""
    dataset, found = run.then.spec.dataset, {name: of.classes for name, of in targets.items()}
    if not dataset.is_of_tfds or not any(found.values()):
        return found
    try:
        source = open_source(dataset.as_it_is())
    except EtlrunError:
        say_note("The dataset of the run is not there: classes are named by their numbers.")
        return found
    return {name: source.names_of(name) for name in targets}


def heads(run: Trained, model: Any, top: int | None) -> list[Head]:
    """Return what a model predicts of each target; of classes the `top` likeliest ones, or all."""
    found = []
    targets = targets_of(run)
    names_of = _names_of(run, targets)
    for name, of in targets.items():
        outputs = 2 if of.is_binary else len(of.classes) or math.prod(side or 1 for side in of.shape)
        target, most = name if len(run.then.spec.dataset.examples.targets) > 1 else "", top and min(top, outputs)
        own = names_of[name] or None
        found.append(Head(target=target, names=own, outputs=outputs, is_labels=of.is_labels, top=most))
    if found:
        return found
    outputs = outputs_of(model)
    return [Head(target="", names=names(run, model), outputs=outputs, top=top and min(top, outputs))]


def of_heads(run: Trained, found: Any) -> list[npt.NDArray[np.float32]]:
    """Return the predictions of a model for each of its heads."""
    flow = given_to_model(run.then.train)
    if len(flow.targets) == 1:
        return [found]
    pairs = ((found[name], flow.features[name].is_binary) for name in flow.targets)
    return [np.concatenate([1 - of, of], axis=1) if is_binary else of for of, is_binary in pairs]


def predict(run: Trained, reading: Pass | Rows, model: Any, writer: Writer, done: Callable[[int], None]) -> list[Lost]:
    """Write a row for each example of a pass, or of tables; return those that could not be read; `done` counts them.

    Raises:
        WorldError: A record is corrupt, and the plan does not skip such records; a step refuses a value of a row; or
            predictions are not finite.
    """
    compute = predictor(model, reading.inputs_spec)
    for batch in reading.batches(SKIP_WITH):
        outputs, numbers = of_heads(run, compute(batch.inputs)), batch.numbers.tolist()
        for of in outputs:
            require_finite(run, of, lambda row, numbers=numbers: reading.place(numbers[row]))  # type: ignore[misc]
        writer.write([*map(reading.cells, numbers)], outputs)
        done(len(numbers))
    return [*reading.lost()]
