"""Folder of images as a source: each file is a record, and is read where it is."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from etlrun.remote.names import name_of
from etlrun.sources.base import Example, Source, Split
from etlrun.sources.content import Shard
from etlrun.sources.file_content import FileContent, Images
from etlrun.sources.identified import Identified, Records
from etlrun.sources.layout import ImageFile, conversion_of
from etlrun.sources.listing import DIGITS, SHARDS, listing_of, notes_on
from etlrun.sources.on_disk import OnDisk
from etlrun.sources.slices import slices
from etlrun.sources.usable import Problem
from etlrun.stages.dataset import IMAGE, LABEL, Folder
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, Fault, printable

_LONGEST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FileSplit(Split):
    """A subset of the images of a folder.

    Attributes:
        images: The files.
    """

    images: Images
    noun: ClassVar[str] = "file"
    is_read_by_parser: ClassVar[bool] = True

    @cached_property
    def content(self) -> Identified:
        """Content of the files at the time of the first access."""
        return FileContent(self.images)

    @property
    def numbered(self) -> Records:
        """The records by number."""
        return self.images

    @cached_property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in self.images.paths if path not in self.images.no_files)

    def read(self, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(self._records[skip : skip + take])

    @cached_property
    def _records(self) -> tf.Tensor:
        with tf.init_scope():  # one constant for all graphs
            return tf.constant(self.images.records.tolist(), tf.string)

    def part(self, start: int, stop: int) -> FileSplit:
        paths, labels = self.images.paths[start:stop], self.images.labels[start:stop]
        images = Images(paths=paths, labels=labels, no_files=self.images.no_files)
        shards = tuple(_shards(self.shards[0].path, stop - start))
        return replace(self, shards=shards, num_examples=stop - start, images=images)

    def shared(self, other: Split) -> int:
        return len({*self.paths} & {*other.paths})

    def labels(self, source: Source) -> npt.NDArray[np.int64]:
        return np.array(self.images.labels, np.int64)

    def refused(self, number: int) -> Problem | None:
        return self.images.refused.get(number)

    def place(self, shard: Shard, number: int) -> tuple[str, int | None]:
        return name_of(self.images.paths[number]), None


class FolderSource(Source):
    """A folder of images, with a folder for each class."""

    dataset: Folder
    repair: ClassVar[str] = "restore or remove the file"

    def __init__(self, dataset: Folder) -> None:
        """List the images; raise `EtlrunError` if the folder isn't one of classes."""
        self.dataset = dataset
        self.listing = listing_of(dataset)
        self.full_name, self.identity = str(self.listing.folder), "folder"
        self.class_names, self.num_classes = self.listing.classes, len(self.listing.classes)
        self.notes = tuple(notes_on(self.listing))

    @classmethod
    def on_disk(cls, dataset: Folder) -> OnDisk:
        try:
            listing = listing_of(dataset)
            sizes = {name: (len(images), listing.bytes_of(images)) for name, images in listing.splits.items()}
        except (EtlrunError, OSError):
            return OnDisk()
        return OnDisk(full_name=str(listing.folder), sizes=sizes)

    @classmethod
    def by_class(cls, dataset: Folder, split: str) -> dict[str, int] | None:
        try:
            listing = listing_of(dataset)
        except EtlrunError:
            return None
        parts = slices(split, {name: len(images) for name, images in listing.splits.items()})
        counts = Counter(image.label for name, start, end in parts for image in listing.splits[name][start:end])
        return {label: counts[label] for label in listing.classes} if parts else None

    @property
    def conversion(self) -> str:
        return f"convert it, as by: {conversion_of(self.listing.folder)}"

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(images) for name, images in self.listing.splits.items()}

    def split(self, name: str, where: str) -> Split:
        parts = slices(name, self.counts)
        if not parts:
            raise self.unknown_split(name, where)
        files = [image for part, start, end in parts for image in self.listing.splits[part][start:end]]
        if not files:
            raise self.empty_split(name, where)
        no_files = self._no_files(files)
        places = {label: place for place, label in enumerate(self.listing.classes)}
        images = Images(
            paths=tuple(str(self.listing.folder / image.path) for image in files),
            labels=tuple(places[image.label] for image in files),
            no_files=no_files,
        )
        shards = tuple(_shards(str(self.listing.folder), len(files)))
        return FileSplit(name=name, shards=shards, num_examples=len(files), images=images)

    def _no_files(self, images: Sequence[ImageFile]) -> dict[str, str]:
        """Return why some of the images can't be read; `EtlrunError` with all of them if a run doesn't skip such."""
        refused, folder = self.listing.refused, self.listing.folder
        found = {str(folder / image.path): refused[image.path] for image in images if image.path in refused}
        if found and self.dataset.on_corrupt == "raise":
            remedy = f"remove it, or set {self.dataset.key('on_corrupt')}=skip to skip and count such files"
            faults = [Fault(printable(path), reason, "an image file", remedy) for path, reason in found.items()]
            raise EtlrunError(faults)
        return found

    def parser(self) -> Callable[[tf.Tensor], Example]:
        return parse

    def file_of(self, path: str) -> str:
        return f"an image of {self.full_name}"


def parse(record: tf.Tensor) -> Example:
    """Return the bytes of the file and the class of a record (string scalar), or of a batch of them."""
    path = tf.strings.substr(record, DIGITS, _LONGEST)
    return {
        IMAGE: tf.map_fn(tf.io.read_file, path) if record.shape.rank else tf.io.read_file(path),
        LABEL: tf.strings.to_number(tf.strings.substr(record, 0, DIGITS), tf.int64),
    }


def _shards(folder: str, count: int) -> Sequence[Shard]:
    """Return up to `SHARDS` parts of nearly equal size."""
    bounds = [count * place // SHARDS for place in range(SHARDS + 1)]
    sizes = [(start, end - start) for start, end in itertools.pairwise(bounds) if end > start]
    return [Shard(path=folder, skip=start, take=size) for start, size in sizes]
