"""Listing of a folder of images: its splits, its classes, and the files of each, without reading them."""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from etlrun.sources.records import SETTLED_NS, Stamp, stamp_of
from etlrun.stages.dataset import Folder
from etlrun.system.errors import EtlrunError, Fault, printable, unreadable_path

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
"""Suffixes of files that TensorFlow decodes, in lower case."""
SPLITS = ("train", "training", "validation", "valid", "val", "test", "testing")
"""Names of folders that are splits and no classes, in lower case."""
SHARDS = 8
"""Groups of files that an interleave reads in turn."""
DIGITS = 8
"""Length of the class in a record, before the path."""
WHOLE = "train"
"""Name of the split of a folder that is not divided."""
LEFT_BY_SYSTEMS = {"thumbs.db", "desktop.ini", "__macosx"}
"""Names of what systems leave in folders, in lower case."""
_NAMED = 5


class Labelled(Protocol):
    """An image with a class."""

    @property
    def label(self) -> str:
        """Name of its class."""


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """An image file.

    Attributes:
        path: Path relative to the folder of the dataset, with slashes.
        label: Name of its class.
    """

    path: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The image files of a dataset.

    Attributes:
        folder: Folder of the dataset.
        classes: Names of the classes, sorted: the index of a class is its place.
        splits: Files of each split by name, in the order of the SHA-256 of their paths, so that a slice of a split
            holds examples of all classes.
        ignored: Paths of files that are left out because their suffix is not that of an image.
        stamps: What changes with each folder within, as it was before it was read.
        began_ns: Time of the listing, in nanoseconds since 1970.
    """

    folder: Path
    classes: tuple[str, ...]
    splits: Mapping[str, tuple[ImageFile, ...]]
    ignored: tuple[str, ...] = ()
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    began_ns: int = 0

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


_in_process: dict[Path, Listing] = {}


def listing_of(dataset: Folder) -> Listing:
    """Return the images of a dataset; a folder is listed once in a process, and again if it has changed.

    Raises:
        EtlrunError: All faults of the folder; see `listed`.
    """
    folder = Path(dataset.dir).expanduser().absolute()
    known = _in_process.get(folder)
    if known is None or not known.is_current:
        known = _in_process[folder] = listed(folder, dataset.key("dir"))
    return known


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """What is found on the way through the folders of a dataset.

    Attributes:
        folder: Folder of the dataset.
        faults: What is wrong with it.
        ignored: Paths of files that are no images by their suffix.
        stamps: What changes with each folder.
    """

    folder: Path
    faults: list[Fault] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    stamps: dict[str, Stamp] = field(default_factory=dict)

    def relative(self, path: Path) -> str:
        """Return a path relative to the folder of the dataset, with slashes."""
        return path.relative_to(self.folder).as_posix()


def listed(folder: Path, where: str) -> Listing:
    """Return the images in a folder of classes, which may stand in folders of splits such as `train`.

    `where` is the config key or argument of the folder, for messages. Hidden files are skipped. Links are followed.

    Raises:
        EtlrunError: All faults of the folder: it doesn't exist, has no images, fewer than two classes, splits beside
            classes, classes that differ in case alone or are missing in the training split, or links in a circle.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise EtlrunError([_fault(where, f"{folder}: {found}", "a folder of classes with images", "check the path")])
    walk, began_ns = _Walk(folder=folder), time.time_ns()
    tops = [entry.name for entry in _entries(folder, walk) if entry.is_dir()]
    divided = [name for name in tops if name.lower() in SPLITS]
    if divided and len(divided) < len(tops):
        others = ", ".join(printable(name) for name in tops if name not in divided)
        walk.faults.append(
            _fault(
                str(folder),
                f"the splits {', '.join(divided)} beside {others}",
                "either folders of splits, each with a folder for each class, or folders of classes",
                "move the other folders into a split",
            )
        )
    roots = {name: folder / name for name in divided} if divided else {WHOLE: folder}
    images_of = {name: list(_of_classes(root, walk)) for name, root in roots.items()}
    classes = tuple(sorted({image.label for images in images_of.values() for image in images}))
    walk.faults.extend(class_faults(folder, classes, images_of))
    if walk.faults:
        raise EtlrunError(walk.faults)
    return Listing(
        folder=folder,
        classes=classes,
        splits={name: ordered(images) for name, images in images_of.items()},
        ignored=tuple(walk.ignored),
        stamps=walk.stamps,
        began_ns=began_ns,
    )


def below(folder: Path, faults: list[Fault], ignored: list[str]) -> Iterator[str]:
    """Yield the paths of all images in `folder` and the folders within it; links are followed.

    Folders that can't be read and circles of links are added to `faults`, files of other suffixes to `ignored`.
    """
    walk = _Walk(folder=folder)
    yield from (str(folder / image.path) for image in _images(folder, "", (), walk))
    faults.extend(walk.faults)
    ignored.extend(Path(path).as_posix() for path in walk.ignored)


def ordered(images: Iterable[ImageFile]) -> tuple[ImageFile, ...]:
    """Return images in the order of the SHA-256 of their paths."""
    return tuple(sorted(images, key=lambda image: hashlib.sha256(os.fsencode(image.path)).digest()))


def _fault(where: str, found: str, expected: str, remedy: str) -> Fault:
    return Fault(where=where, found=found, expected=expected, remedy=remedy)


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


def _of_classes(root: Path, walk: _Walk) -> Iterator[ImageFile]:
    """Yield the images of the folders in `root`, which are classes."""
    for entry in _entries(root, walk):
        if not entry.is_dir():
            walk.ignored.append(walk.relative(Path(entry.path)))
            continue
        if not entry.name.isprintable():
            walk.faults.append(
                _fault(
                    printable(entry.path),
                    "an unprintable character in the name of a class",
                    "a name that a list of classes, one a line, can hold",
                    "rename the folder",
                )
            )
            continue
        images = list(_images(Path(entry.path), entry.name, (os.path.realpath(root),), walk))
        if not images:
            kinds = ", ".join(SUFFIXES)
            walk.faults.append(_fault(entry.path, "a class without images", f"files with {kinds}", "remove the folder"))
        yield from images


def _images(folder: Path, label: str, above: tuple[str, ...], walk: _Walk) -> Iterator[ImageFile]:
    """Yield the images in a folder of a class and in the folders within it."""
    real, within = os.path.realpath(folder), walk.relative(folder)
    if any(real == other or other.startswith(f"{real}{os.sep}") for other in above):
        walk.faults.append(
            _fault(str(folder), "a link to a folder above it", "folders without a circle", "remove the link")
        )
        return
    for entry in _entries(folder, walk):
        if entry.is_dir():
            yield from _images(Path(entry.path), label, (*above, real), walk)
        elif entry.name.lower().endswith(SUFFIXES):
            yield ImageFile(path=f"{within}/{entry.name}", label=label)
        else:
            walk.ignored.append(f"{within}/{entry.name}")


def class_faults(folder: Path, classes: tuple[str, ...], found: Mapping[str, Sequence[Labelled]]) -> Iterator[Fault]:
    """Yield the faults of the classes of a folder as a whole."""
    if len(classes) < 2:  # noqa: PLR2004 - a class and another
        what = f"images of one class, {classes[0]}" if classes else "no images"
        yield _fault(
            str(folder), what, "a folder for each of at least two classes", "name the folder above those of the classes"
        )
    alike: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        alike[name.casefold()].append(name)
    for names in alike.values():
        if len(names) > 1:
            yield _fault(
                str(folder),
                f"the classes {' and '.join(names)}, which differ in case alone",
                "names that differ on every file system",
                "merge or rename them",
            )
    training = next((name for name in found if name.lower().startswith("train")), None)
    trained = {image.label for image in found.get(training or "", [])}
    for name, images in found.items() if training else ():
        unknown = sorted({image.label for image in images} - trained)
        if unknown:
            yield _fault(
                str(folder / name),
                f"{', '.join(unknown[:_NAMED])}{' …' if unknown[_NAMED:] else ''}, not in {training}",
                "classes of the training split",
                "rename them, or add training images",
            )
