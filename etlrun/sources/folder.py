"""Folder of images as a source: each file is a record, is read where it is, and known by its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from etlrun.remote.copies import name_of
from etlrun.sources.base import Example, Identified, Problem, Records, Source, Split
from etlrun.sources.content import Shard, Stamp, digest, known, stamp_of
from etlrun.sources.corrupt import refused
from etlrun.sources.listing import DIGITS, conversion_of, groups_of, listing_of, notes_on
from etlrun.sources.on_disk import OnDisk
from etlrun.sources.slices import slices
from etlrun.stages.dataset import Folder
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, Fault, WorldError, printable
from etlrun.system.values import frozen

_SHA_BYTES, _BETWEEN = 8, "\0"
"""Bytes of a SHA-256 that identify a file; what stands between the parts of the problem behind them."""


class FilesRead:
    """Comparison of the files that a pass reads with their checksums.

    Attributes:
        differing: Path of a file that held other bytes; None if there is none.
    """

    def __init__(self, held: Mapping[str, bytes]) -> None:
        """Begin a pass over files of which `sha256_and_refusal` is known, by path."""
        self._held = {os.fsencode(path): of[:_SHA_BYTES] for path, of in held.items()}
        self.differing: str | None = None

    def add(self, record: Any, data: Any) -> None:
        """Compare the bytes of the file that a record names, or of each of several."""
        for one, read in [(record, data)] if isinstance(record, bytes) else zip(record, data, strict=True):
            held = self._held.get(one[DIGITS:])  # None for the empty file in the place of a large image
            if held is not None and hashlib.sha256(read).digest()[:_SHA_BYTES] != held:
                self.differing = os.fsdecode(one[DIGITS:])


@frozen
class FolderImages:
    """Image files by number, as records: the class in decimal digits, and the path.

    Attributes:
        paths: Paths of the files.
        labels: Classes of the images.
        no_files: Why paths can't be read, which are no files or links to none.
    """

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    no_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of files."""
        return len(self.paths)

    @cached_property
    def refused(self) -> dict[int, Problem]:
        """Why an image is not to be decoded, by its number; known before any is read."""
        found = {path: Problem(reason, "an image file") for path, reason in self.no_files.items()}
        with contextlib.suppress(OSError):  # reading the examples reports it
            held = held_of({path: stamp_of(path) for path in self.paths if path not in found})
            problems = {path: of[_SHA_BYTES:].decode() for path, of in held.items()}
            found |= {path: Problem(*of.split(_BETWEEN)) for path, of in problems.items() if of}
        return {number: found[path] for number, path in enumerate(self.paths) if path in found}

    @cached_property
    def records(self) -> npt.NDArray[Any]:
        """All records; those of images that are refused name an empty file, which is decoded to an error at once."""
        paths = [os.devnull if number in self.refused else path for number, path in enumerate(self.paths)]
        each = zip(self.labels, paths, strict=True)
        return np.array([b"%0*d%s" % (DIGITS, label, os.fsencode(path)) for label, path in each], dtype=object)

    def read(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return these records."""
        return self.records[numbers]


class FileContent:
    """Content of files at the time of construction, by SHA-256. Files that were hashed before are not read again."""

    def __init__(self, images: FolderImages) -> None:
        self._images = images
        self._stamps: dict[str, Stamp] = {}
        self._digest: str | None = None
        self._read: FilesRead | None = None

    @property
    def digest(self) -> str | None:
        try:
            return self._identified()
        except OSError:  # reading the examples reports it
            return None

    def files(self, *, whole: bool) -> list[list[object]]:
        try:
            return [["images", [self._images.count, self._identified()]]]
        except OSError as error:
            raise WorldError(
                str(error.filename),
                str(error.strerror or error),
                "an image that can be read",
                "restore it, or check its permissions",
            ) from error

    def compared(self) -> FilesRead:
        """Return a comparison of the files of a pass with those that were hashed, of which `changed` takes notice."""
        self._identified()
        self._read = FilesRead(held_of(self._stamps))
        return self._read

    def changed(self) -> str | None:
        if self._read is not None and self._read.differing is not None:
            return self._read.differing
        for path, stamp in self._stamps.items():
            try:
                now = stamp_of(path)
                if now != stamp and held_of({path: now}) != held_of({path: stamp}):
                    return path
            except OSError:
                return path
        return None

    def _identified(self) -> str:
        if self._digest is None:
            self._stamps = {path: stamp_of(path) for path in self._images.paths if path not in self._images.no_files}
            held = held_of(self._stamps)
            self._digest = _digest(self._images, held)
        return self._digest


def _digest(images: FolderImages, held: Mapping[str, bytes]) -> str:
    each = [
        [label, held.get(path, b"")[:_SHA_BYTES].hex()] for path, label in zip(images.paths, images.labels, strict=True)
    ]
    return digest(each)


def held_of(stamps: Mapping[str, Stamp]) -> dict[str, bytes]:
    """Return `sha256_and_refusal` of each file; those that were read before are not read again."""
    return {path: of or b"" for path, of in known(stamps, sha256_and_refusal).items()}


def sha256_and_refusal(path: str) -> bytes:
    """Return the first 8 bytes of a SHA-256 over a file; and behind them, why it is not to be decoded, if it isn't."""
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()[:_SHA_BYTES]
        found = refused(file, file.tell())
    return digest if found is None else digest + _BETWEEN.join(found).encode()


@frozen
class FileSplit(Split):
    """A subset of the images of a folder.

    Attributes:
        images: The files.
    """

    images: FolderImages
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
        images = FolderImages(paths=paths, labels=labels, no_files=self.images.no_files)
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
        refused, folder = self.listing.refused, self.listing.folder
        found = {str(folder / image.path): refused[image.path] for image in files if image.path in refused}
        if found and self.dataset.on_corrupt == "raise":
            remedy = f"remove it, or set {self.dataset.key('on_corrupt')}=skip to skip and count such files"
            faults = [Fault(printable(path), reason, "an image file", remedy) for path, reason in found.items()]
            raise EtlrunError(faults)
        no_files = found
        places = {label: place for place, label in enumerate(self.listing.classes)}
        images = FolderImages(
            paths=tuple(str(self.listing.folder / image.path) for image in files),
            labels=tuple(places[image.label] for image in files),
            no_files=no_files,
        )
        shards = tuple(_shards(str(self.listing.folder), len(files)))
        return FileSplit(name=name, shards=shards, num_examples=len(files), images=images)

    def parser(self) -> Callable[[tf.Tensor], Example]:
        return parse

    def file_of(self, path: str) -> str:
        return f"an image of {self.full_name}"


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the bytes of the file and the class of a record (string scalar), or of a batch of them."""
    path = tf.strings.substr(record, DIGITS, 1 << 20)
    image = tf.map_fn(tf.io.read_file, path) if record.shape.rank else tf.io.read_file(path)
    return {"image": image, "label": tf.strings.to_number(tf.strings.substr(record, 0, DIGITS), tf.int64)}


def _shards(folder: str, count: int) -> Sequence[Shard]:
    return [Shard(path=folder, skip=skip, take=take) for skip, take in groups_of(count)]
