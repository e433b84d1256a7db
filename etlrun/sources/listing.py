"""Listing of a folder of examples by class: its splits, its classes, and the files of each, without reading them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etlrun.sources.classes import listed_names
from etlrun.sources.layout import IMAGES, LEFT_BY_SYSTEMS, SUFFIXES, FileKind, ImageFile, conversion_of, laid_out
from etlrun.sources.records import SETTLED_NS, Stamp, stamp_of
from etlrun.stages.dataset import Folder
from etlrun.system.errors import EtlrunError, Fault, fault, printable, unreadable_path

SHARDS = 8
"""Groups of files that an interleave reads in turn."""
_GIF = ".gif"
DIGITS = 8
"""Length of the class in a record, before the path."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The image files of a dataset.

    Attributes:
        folder: Folder of the dataset.
        classes: Names of the classes, sorted, numbers by their values: the index of a class is its place.
        splits: Files of each split by name, in the order of the SHA-256 of their paths, so that a slice of a split
            holds examples of all classes.
        ignored: Paths of files that are left out because their suffix is not that of an image.
        outside: Paths of images that are left out because they are in no folder of a class.
        refused: Why images can't be read, by their paths: links to a file that is gone, pipes, devices.
        notes: What a reader may not expect of the classes, a sentence each.
        stamps: What changes with each folder within, as it was before it was read.
        began_ns: Time of the listing, in nanoseconds since 1970.
    """

    folder: Path
    classes: tuple[str, ...]
    splits: Mapping[str, tuple[ImageFile, ...]]
    ignored: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    began_ns: int = 0

    def bytes_of(self, images: Iterable[ImageFile]) -> int:
        """Return the size of image files; `OSError` if one is gone."""
        return sum(os.stat(f"{self.folder}/{image.path}").st_size for image in images)  # noqa: PTH116 - of many files

    @property
    def is_current(self) -> bool:
        """Whether no file has come, gone or been renamed since; a change just before the listing might be hidden."""
        try:
            return all(
                max(stamp[-2:]) < self.began_ns - SETTLED_NS and stamp_of(path) == stamp
                for path, stamp in self.stamps.items()
            )
        except OSError:
            return False


_in_process: dict[tuple[Path, str], Listing] = {}


def listing_of(dataset: Folder) -> Listing:
    """Return the images of a dataset; raise `EtlrunError` with all faults of the folder, see `listed`."""
    return once_listed(dataset.dir, dataset.key("dir"), IMAGES)


def once_listed(folder: str, where: str, kind: FileKind) -> Listing:
    """Return what `listed` does; a folder is listed once in a process, and again if it has changed."""
    path = Path(folder).expanduser().absolute()
    known = _in_process.get((path, kind.noun))
    if known is None or not known.is_current:
        known = _in_process[path, kind.noun] = listed(path, where, kind.suffixes, kind)
    return known


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """What is found on the way through the folders of a dataset.

    Attributes:
        folder: Folder of the dataset.
        suffixes: Suffixes of images.
        faults: What is wrong with it.
        ignored: Paths of files that are no images by their suffix.
        folders: Paths of the folders within it.
        refused: Why what is an image by its suffix can't be read, by its path.
        stamps: What changes with each folder.
    """

    folder: Path
    suffixes: tuple[str, ...] = SUFFIXES
    faults: list[Fault] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, Stamp] = field(default_factory=dict)

    def relative(self, path: Path) -> str:
        """Return a path relative to the folder of the dataset, with slashes."""
        return path.relative_to(self.folder).as_posix()


def listed(folder: Path, where: str, suffixes: tuple[str, ...] = SUFFIXES, kind: FileKind = IMAGES) -> Listing:
    """Return the files of a kind in a folder of classes, which may stand in folders of splits such as `train`.

    `where` is the config key or argument of the folder, for messages. Hidden files are skipped. Links are followed.

    Raises:
        EtlrunError: All faults of the folder: it doesn't exist, has no images, fewer than two classes, splits beside
            classes or taken for classes, classes that look alike or are missing in the training split, or links in a
            circle.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise EtlrunError(
            [fault(where, f"{folder}: {found}", f"a folder of classes with {kind.noun}s", "check the path")]
        )
    walk, began_ns = _Walk(folder=folder, suffixes=suffixes), time.time_ns()
    images = [*_images(folder, (), walk)]
    layout = laid_out(folder, images, walk.folders, walk.ignored, kind)
    faults = [*walk.faults, *(layout.faults if images or not walk.faults else ())]
    if faults:
        raise EtlrunError(faults)
    return Listing(
        folder=folder,
        classes=layout.classes,
        splits={name: ordered(of) for name, of in layout.splits.items()},
        ignored=tuple(walk.ignored),
        outside=layout.outside,
        refused=walk.refused,
        notes=layout.notes,
        stamps=walk.stamps,
        began_ns=began_ns,
    )


def below(folder: Path, faults: list[Fault], ignored: list[str], refused: dict[str, str]) -> Iterator[str]:
    """Yield the paths of all images in `folder` and the folders within it; links are followed.

    Folders that can't be read and circles of links are added to `faults`, files of other suffixes to `ignored`, and
    why images can't be read to `refused`: see `Listing`.
    """
    walk = _Walk(folder=folder)
    yield from (str(folder / path) for path in _images(folder, (), walk))
    faults.extend(walk.faults)
    ignored.extend(walk.ignored)
    refused.update({str(folder / path): reason for path, reason in walk.refused.items()})


def ordered(images: Iterable[ImageFile]) -> tuple[ImageFile, ...]:
    """Return images in the order of the SHA-256 of their paths."""
    return tuple(sorted(images, key=lambda image: hashlib.sha256(os.fsencode(image.path)).digest()))


def notes_on(listing: Listing, kind: FileKind = IMAGES) -> Iterator[str]:
    """Yield what a run has to say of a listing of files of a kind, a sentence each."""
    yield from listing.notes
    foreign = tuple(path for path in listing.ignored if path.lower().endswith(kind.others))
    if foreign:
        is_one = len(foreign) == 1
        yield (
            f"{len(foreign):,} image{'' if is_one else 's'} of {'a format' if is_one else 'formats'} that TensorFlow "
            f"doesn't decode {'is' if is_one else 'are'} left out: {listed_names(foreign)}. "
            f"Convert {'it' if is_one else 'them'}: {conversion_of(listing.folder)}"
        )
    if paths := tuple(path for path in listing.ignored if path not in foreign):
        has, are = ("file of the folder has", "is") if len(paths) == 1 else ("files of the folder have", "are")
        kinds, noun = ", ".join(kind.suffixes), "an image" if kind is IMAGES else f"a {kind.noun}"
        yield f"{len(paths):,} {has} no suffix of {noun} ({kinds}) and {are} left out: {listed_names(paths)}."
    if paths := listing.outside:
        are = f"{kind.noun} is" if len(paths) == 1 else f"{kind.noun}s are"
        yield f"{len(paths):,} {are} in no folder of a class, and left out: {listed_names(paths)}."
    images = (image.path for of in listing.splits.values() for image in of)
    if paths := tuple(path for path in images if path.lower().endswith(_GIF)):
        yield f"Of GIFs the first frame is read: {listed_names(paths)}."


def _entries(folder: Path, walk: _Walk) -> list[os.DirEntry[str]]:
    try:
        walk.stamps[str(folder)] = stamp_of(str(folder))
        with os.scandir(folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        walk.faults.append(unreadable_path(str(folder), error, "a folder that can be read"))
        return []
    kept = [entry for entry in visible if entry.name.lower() not in LEFT_BY_SYSTEMS]
    return sorted(kept, key=lambda entry: os.fsencode(entry.name))


def _images(folder: Path, above: tuple[str, ...], walk: _Walk) -> Iterator[str]:
    """Yield the paths of images in a folder and in the folders within it, relative to that of the dataset."""
    real, within = os.path.realpath(folder), walk.relative(folder)
    if any(real == other or other.startswith(f"{real}{os.sep}") for other in above):
        walk.faults.append(fault(folder, "a link to a folder above it", "folders without a circle", "remove the link"))
        return
    for entry in _entries(folder, walk):
        path = entry.name if within == "." else f"{within}/{entry.name}"
        if entry.is_dir():
            walk.folders.append(path)
            yield from _images(Path(entry.path), (*above, real), walk)
        elif not entry.name.lower().endswith(walk.suffixes):
            walk.ignored.append(path)
        else:
            if not entry.is_file():
                walk.refused[path] = why_no_file(entry.path)
            yield path


def why_no_file(path: str) -> str:
    """Return why a path that is no folder is no file, either: reading a pipe or a device may wait for ever."""
    if os.path.exists(path):  # noqa: PTH110 - of many files
        return "not a regular file"
    return f"a link to a file that is gone: {printable(os.readlink(path))}"  # noqa: PTH115 - of many files
