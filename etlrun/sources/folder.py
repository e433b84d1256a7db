"""Folder of images as a source: each file is a record, is read where it is, and known by its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from etlrun.cache.keeper import Identified
from etlrun.remote.copies import name_of
from etlrun.sources.base import Example, OnDisk, Problem, Slice, Source, Split, slices
from etlrun.sources.content import Stamp, digest, known, stamp_of
from etlrun.sources.corrupt import SKIPPING, refused
from etlrun.sources.listing import DIGITS, ImageFile, conversion_of, groups_of, listing_of, notes_on
from etlrun.stages.dataset import Folder
from etlrun.stages.lazy import tf
from etlrun.system.errors import EtlrunError, Fault, WorldError, printable

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


class FilesSource(Source):
    """Image files. A record is the class in decimal digits, and the path.

    Attributes:
        files: Paths of the files.
        classes: Classes of the images.
        no_files: Why paths can't be read, which are no files or links to none.
    """

    files: Sequence[str]
    classes: Sequence[int]
    no_files: Mapping[str, str]
    noun: ClassVar[str] = "an image"
    noun_of_shards: ClassVar[str] = "file"
    repair: ClassVar[str] = "restore or remove the file"
    is_read_by_parser: ClassVar[bool] = True
    knows_refused: ClassVar[bool] = True

    def conversion(self, place: str) -> str:
        return conversion_of(place)

    def content(self, split: Split) -> Identified:
        numbers = split.numbers.tolist()
        files, classes = [self.files[number] for number in numbers], [self.classes[number] for number in numbers]
        return FileContent(files, classes, split.paths)

    def paths(self, split: Split) -> Iterator[str]:
        return (path for path in map(self.files.__getitem__, split.numbers) if path not in self.no_files)

    def refused(self, split: Split) -> Callable[[int], Problem | None]:
        found = {path: Problem(reason, "an image file") for path, reason in self.no_files.items()}
        with contextlib.suppress(OSError):  # reading the examples reports it
            held = held_of({path: stamp_of(path) for path in split.paths})
            problems = {path: of[_SHA_BYTES:].decode() for path, of in held.items()}
            found |= {path: Problem(*of.split(_BETWEEN)) for path, of in problems.items() if of}
        return lambda place: found.get(self.files[split.numbers[place]])

    def records(self, split: Split) -> npt.NDArray[Any]:
        """Return all records; those of images that are refused name an empty file, which is decoded to an error."""
        found = []
        for place, number in enumerate(split.numbers):
            path = os.devnull if split.refused(place) else self.files[number]
            found.append(b"%0*d%s" % (DIGITS, self.classes[number], os.fsencode(path)))
        return np.array(found, dtype=object)

    def read(self, split: Split, path: Any, skip: Any, take: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(split.constant[skip : skip + take])

    def labels(self, split: Split) -> npt.NDArray[np.int64]:
        return np.array(self.classes, np.int64)[split.numbers]

    def place(self, number: int) -> tuple[str, int | None]:
        return name_of(self.files[number]), None


class FolderSource(FilesSource):
    """A folder of images, with a folder for each class."""

    dataset: Folder

    def __init__(self, dataset: Folder) -> None:
        """List the images; raise `EtlrunError` if the folder isn't one of classes."""
        self.dataset = dataset
        self.listing = listing_of(dataset)
        self.full_name, self.identity = str(self.listing.folder), "folder"
        self.class_names, self.num_classes = self.listing.classes, len(self.listing.classes)
        self.notes = tuple(notes_on(self.listing))
        self.counts = {name: len(images) for name, images in self.listing.splits.items()}
        images, self._firsts = list[ImageFile](), dict[str, int]()
        for name, of_split in self.listing.splits.items():
            self._firsts[name] = len(images)
            images += of_split
        folder, places = self.listing.folder, {label: place for place, label in enumerate(self.listing.classes)}
        self.files, self.classes = [str(folder / of.path) for of in images], [places[of.label] for of in images]
        self.no_files = {str(folder / path): reason for path, reason in self.listing.refused.items()}
        self.home = str(folder)

    @classmethod
    def is_there(cls, dataset: Folder) -> bool:
        return Path(dataset.dir).expanduser().exists()

    @classmethod
    def on_disk(cls, dataset: Folder) -> OnDisk:
        try:
            listing = listing_of(dataset)
            sizes = {
                name: (len(images), sum(os.stat(f"{listing.folder}/{image.path}").st_size for image in images))  # noqa: PTH116 - of many files
                for name, images in listing.splits.items()
            }
        except EtlrunError as error:
            return OnDisk(unfit=f"{error.faults[0].where}: {error.faults[0].found}")
        except OSError:
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

    def combine(self, name: str, parts: Sequence[Slice]) -> Split:
        numbers = [self._firsts[part] + np.arange(start, end) for part, start, end in parts]
        split = self.numbered(name, np.concatenate(numbers))
        found = [path for path in map(self.files.__getitem__, split.numbers) if path in self.no_files]
        if found and self.dataset.on_corrupt == "raise":
            remedy = f"remove it, or set {self.dataset.key('on_corrupt')}=skip to skip and count such files"
            unfit = partial(Fault, expected="an image file", remedy=remedy, overrides=SKIPPING, decide=True)
            raise EtlrunError([unfit(printable(of), self.no_files[of]) for of in found])
        return split

    def groups(self, count: int) -> list[tuple[int, int]]:
        return groups_of(count)

    def parser(self) -> Callable[[tf.Tensor], Example]:
        return parse


def stored(record: bytes) -> tuple[int, bytes]:
    """Return the class of a record and the bytes of its file; raise `OSError` if it can't be read."""
    return int(record[:DIGITS]), Path(os.fsdecode(record[DIGITS:])).read_bytes()


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the bytes of the file and the class of a record (string scalar), or of a batch of them."""
    path = tf.strings.substr(record, DIGITS, 1 << 20)
    image = tf.map_fn(tf.io.read_file, path) if record.shape.rank else tf.io.read_file(path)
    return {"image": image, "label": tf.strings.to_number(tf.strings.substr(record, 0, DIGITS), tf.int64)}
