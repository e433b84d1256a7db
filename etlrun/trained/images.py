"""Image files of any place as a source: each is a record, whose target is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import tensorflow as tf

from etlrun.sources import folder
from etlrun.sources.base import Example, Source
from etlrun.sources.content import Shard
from etlrun.sources.file_content import Images
from etlrun.sources.folder import FileSplit
from etlrun.stages.dataset import IMAGE, Dataset


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
