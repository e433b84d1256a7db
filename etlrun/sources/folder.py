"""Folder of images as a source: each file is a record, is read where it is, and known by its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from etlrun.cache.keeper import Identified
from etlrun.remote.copies import name_of
from etlrun.sources.base import Example, OnDisk, Problem, Read, Slice, Source, Split, slices
from etlrun.sources.content import Shard, Stamp, digest, known, stamp_of
from etlrun.sources.corrupt import refused
from etlrun.sources.listing import DIGITS, conversion_of, groups_of, listing_of, notes_on
from etlrun.stages.dataset import Folder
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, Fault, WorldError, printable
from etlrun.system.values import frozen

_SHA_BYTES, _BETWEEN = 8, "\0"
"""Bytes of a SHA-256 that identify a file; what stands between the parts of the problem behind them."""


class FileContent:
    """Content of files with their classes, by SHA-256. Files that were hashed before are not read again."""

    def __init__(self, files: Sequence[str], classes: Sequence[int], paths: Iterable[str]) -> None:
        """Hold the content of those files that are `paths`; the others can't be read."""
        self._files, self._classes, self._paths = files, classes, paths
        self._stamps: dict[str, Stamp] = {}
        self._differing: str | None = None

    @property
    def digest(self) -> str | None:
        try:
            return self._digest
        except OSError:  # reading the examples reports it
            return None

    def files(self, *, whole: bool) -> list[list[object]]:
        try:
            return [["images", [len(self._files), self._digest]]]
        except OSError as error:
            remedy = "restore it, or check its permissions"
            found = str(error.strerror or error)
            raise WorldError(error.filename, found, "an image that can be read", remedy) from error

    def compared(self) -> Callable[[Any, Any], None]:
        """Return what compares the files of a pass with those that were hashed, of which `changed` takes notice."""
        self._differing = None
        held_of_names = {os.fsencode(path): of[:_SHA_BYTES] for path, of in self._held.items()}

        def compare(record: Any, data: Any) -> None:
            for one, read in [(record, data)] if isinstance(record, bytes) else zip(record, data, strict=True):
                held = held_of_names.get(one[DIGITS:])  # None for the empty file in the place of a large image
                if held is not None and hashlib.sha256(read).digest()[:_SHA_BYTES] != held:
                    self._differing = os.fsdecode(one[DIGITS:])

        return compare

    def changed(self) -> str | None:
        if self._differing is not None:
            return self._differing
        for path, stamp in self._stamps.items():
            try:
                now = stamp_of(path)
                if now != stamp and held_of({path: now}) != held_of({path: stamp}):
                    return path
            except OSError:
                return path
        return None

    @cached_property
    def _held(self) -> dict[str, bytes]:
        self._stamps = {path: stamp_of(path) for path in self._paths}
        return held_of(self._stamps)

    @cached_property
    def _digest(self) -> str:
        each = zip(self._files, self._classes, strict=True)
        return digest([[label, self._held.get(path, b"")[:_SHA_BYTES].hex()] for path, label in each])


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
    """A subset of the images of a folder. A record is the class in decimal digits, and the path.

    Attributes:
        files: Paths of the files.
        classes: Classes of the images.
        no_files: Why paths can't be read, which are no files or links to none.
    """

    files: tuple[str, ...]
    classes: tuple[int, ...]
    no_files: Mapping[str, str] = field(default_factory=dict)
    noun: ClassVar[str] = "file"
    is_read_by_parser: ClassVar[bool] = True
    knows_refused: ClassVar[bool] = True

    @cached_property
    def content(self) -> Identified:
        """Content of the files at the time of the first access."""
        return FileContent(self.files, self.classes, self.paths)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in self.files if path not in self.no_files)

    @cached_property
    def _refused(self) -> dict[int, Problem]:
        """Why an image is not to be decoded, by its number; known before any is read."""
        found = {path: Problem(reason, "an image file") for path, reason in self.no_files.items()}
        with contextlib.suppress(OSError):  # reading the examples reports it
            held = held_of({path: stamp_of(path) for path in self.paths})
            problems = {path: of[_SHA_BYTES:].decode() for path, of in held.items()}
            found |= {path: Problem(*of.split(_BETWEEN)) for path, of in problems.items() if of}
        return {number: found[path] for number, path in enumerate(self.files) if path in found}

    @cached_property
    def _records(self) -> npt.NDArray[Any]:
        """All records; those of images that are refused name an empty file, which is decoded to an error at once."""
        paths = [os.devnull if number in self._refused else path for number, path in enumerate(self.files)]
        each = zip(self.classes, paths, strict=True)
        return np.array([b"%0*d%s" % (DIGITS, label, os.fsencode(path)) for label, path in each], dtype=object)

    @property
    def numbered(self) -> Read:
        """The records by number."""
        return self._records.__getitem__

    def read(self, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(self._constant[skip : skip + take])

    @cached_property
    def _constant(self) -> tf.Tensor:
        with tf.init_scope():  # one for all graphs
            return tf.constant(self._records.tolist(), tf.string)

    def part(self, start: int, stop: int) -> FileSplit:
        shards, count = _shards(self.shards[0].path, stop - start), stop - start
        files, classes = self.files[start:stop], self.classes[start:stop]
        return replace(self, shards=shards, num_examples=count, files=files, classes=classes)

    def shared(self, other: Split) -> int:
        return len({*self.paths} & {*other.paths})

    def labels(self, source: Source) -> npt.NDArray[np.int64]:
        return np.array(self.classes, np.int64)

    def refused(self, number: int) -> Problem | None:
        return self._refused.get(number)

    def place(self, shard: Shard, number: int) -> tuple[str, int | None]:
        return name_of(self.files[number]), None


class FolderSource(Source):
    """A folder of images, with a folder for each class."""

    dataset: Folder
    repair: ClassVar[str] = "restore or remove the file"
    noun: ClassVar[str] = "an image"

    def __init__(self, dataset: Folder) -> None:
        """List the images; raise `EtlrunError` if the folder isn't one of classes."""
        self.dataset = dataset
        self.listing = listing_of(dataset)
        self.full_name, self.identity = str(self.listing.folder), "folder"
        self.class_names, self.num_classes = self.listing.classes, len(self.listing.classes)
        self.notes = tuple(notes_on(self.listing))
        self.counts = {name: len(images) for name, images in self.listing.splits.items()}

    @classmethod
    def on_disk(cls, dataset: Folder) -> OnDisk:
        try:
            listing = listing_of(dataset)
            sizes = {
                name: (len(images), sum(os.stat(f"{listing.folder}/{image.path}").st_size for image in images))  # noqa: PTH116 - of many files
                for name, images in listing.splits.items()
            }
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

    def combine(self, name: str, parts: Sequence[Slice]) -> FileSplit:
        images = [image for part, start, end in parts for image in self.listing.splits[part][start:end]]
        refused, folder = self.listing.refused, self.listing.folder
        found = {str(folder / image.path): refused[image.path] for image in images if image.path in refused}
        if found and self.dataset.on_corrupt == "raise":
            remedy = f"remove it, or set {self.dataset.key('on_corrupt')}=skip to skip and count such files"
            faults = [Fault(printable(path), reason, "an image file", remedy) for path, reason in found.items()]
            raise EtlrunError(faults)
        places = {label: place for place, label in enumerate(self.listing.classes)}
        return FileSplit(
            name=name,
            shards=_shards(str(folder), len(images)),
            num_examples=len(images),
            files=tuple(str(folder / image.path) for image in images),
            classes=tuple(places[image.label] for image in images),
            no_files=found,
        )

    def parser(self) -> Callable[[tf.Tensor], Example]:
        return parse


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the bytes of the file and the class of a record (string scalar), or of a batch of them."""
    path = tf.strings.substr(record, DIGITS, 1 << 20)
    image = tf.map_fn(tf.io.read_file, path) if record.shape.rank else tf.io.read_file(path)
    return {"image": image, "label": tf.strings.to_number(tf.strings.substr(record, 0, DIGITS), tf.int64)}


def _shards(folder: str, count: int) -> tuple[Shard, ...]:
    return tuple(Shard(path=folder, skip=skip, take=take) for skip, take in groups_of(count))
