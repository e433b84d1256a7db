"""Folders of examples by class: their splits, their classes, and the files of each, by names alone."""

import hashlib
import itertools
import os
import re
import time
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from shlex import quote

from etlrun.sources.content import SETTLED_NS, Stamp, is_as, stamp_of
from etlrun.stages.dataset import Folder
from etlrun.system.errors import (
    EtlrunError,
    Fault,
    WorldError,
    counted,
    did_you_mean,
    fault,
    printable,
    refuse,
    unreadable_path,
)
from etlrun.system.values import frozen, grouped

TWO = "a folder for each of at least two classes"
_NAMED = 5


def ordered_classes(labels: set[str]) -> list[str]:
    """Return the classes of these labels, sorted; by number if all of them are integers."""
    are_numbers = all(name.isascii() and name.removeprefix("-").isdecimal() for name in labels)
    return sorted(labels, key=(lambda name: (int(name), name)) if are_numbers else None)


def class_faults(
    where: Path, classes: Sequence[str], found: Mapping[str, set[str]], noun: str = "image"
) -> Iterator[Fault]:
    """Yield the faults of the classes of a dataset as a whole, of which each split has those that were `found`.

    `noun` is what an example is in messages.
    """
    if len(classes) < 2:  # noqa: PLR2004 - a class and another
        only = f"{noun}s of one class, {printable(classes[0])}" if classes else f"no {noun}s"
        yield fault(where, only, TWO, "name the folder above those of the classes")
    alike = grouped((" ".join(unicodedata.normalize("NFC", name).casefold().split()), name) for name in classes)
    for names in alike.values():
        if len(names) > 1:
            named = " and ".join(map(ascii, names))
            yield fault(
                where,
                f"the classes {named}, which differ in blanks, case or Unicode normalization alone",
                "names that differ on every file system",
                "merge or rename them",
            )
    training = next((name for name in found if name.lower().startswith("train")), None)
    for name, labels in found.items() if training else ():
        if unknown := sorted(labels - found[training or ""]):
            remedy = f"rename them, or add training {noun}s"
            what = f"{listed_names(unknown)}, not in {training}"
            yield fault(where / name, what, "classes of the training split", remedy)


def listed_names(names: Sequence[str]) -> str:
    """Return the first of these names, for a message."""
    return ", ".join(map(printable, names[:_NAMED])) + (" …" if names[_NAMED:] else "")


SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp")
"""Suffixes of files that TensorFlow decodes, in lower case."""
OTHER_IMAGES = (".heic", ".heif", ".avif", ".tif", ".tiff", ".jxl", ".jp2", ".dng", ".nef", ".cr2", ".arw")
"""Suffixes of other images, in lower case."""
_CONVERT = "convert {}, as by ImageMagick: mogrify -auto-orient -format png {}"
CONVERSION = _CONVERT.format("such images", "FILE")
SPLITS = ("train", "training", "validation", "valid", "val", "test", "testing")
"""Names of folders that are splits if they hold folders, in lower case."""
WHOLE = "train"
"""Name of the split of a folder that is not divided."""
LEFT_BY_SYSTEMS = {
    "thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "@__thumb", "#recycle", "@recycle", "#snapshot",
    "@recently-snapshot", "$recycle.bin", "system volume information", "lost+found", "lost.dir",
}  # fmt: skip
"""Names of what systems and network storage leave in folders, in lower case."""


@frozen
class FileKind:
    """A kind of files that are examples.

    Attributes:
        noun: What one of them is called.
        suffixes: Suffixes of those that are read, in lower case.
        others: Suffixes of those that have to be converted, in lower case.
    """

    noun: str
    suffixes: tuple[str, ...]
    others: tuple[str, ...] = ()


IMAGES = FileKind(noun="image", suffixes=SUFFIXES, others=OTHER_IMAGES)
TEXTS = FileKind(noun="text", suffixes=(".txt",))


@frozen
class ImageFile:
    """An image file, or another one of a class.

    Attributes:
        path: Path relative to the folder of the dataset, with slashes.
        label: Name of its class.
    """

    path: str
    label: str


@frozen
class Walk:
    """What is found on the way through the folders of a dataset.

    Attributes:
        folder: Folder of the dataset.
        suffixes: Suffixes of the files that are looked for.
        faults: What is wrong; none of a folder that is read.
        ignored: Paths of files that are left out because their suffix is another one.
        folders: Paths of the folders within it.
        refused: Why files can't be read, by their paths: links to a file that is gone, pipes, devices.
        stamps: What changes with each folder within, as it was before it was read.
        began_ns: Time of the listing, in nanoseconds since 1970.
    """

    folder: Path
    suffixes: tuple[str, ...] = SUFFIXES
    faults: list[Fault] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, Stamp] = field(default_factory=dict)
    began_ns: int = field(default_factory=time.time_ns)


@frozen
class Listing(Walk):
    """The image files of a dataset.

    Attributes:
        classes: Names of the classes, sorted, numbers by their values: the index of a class is its place.
        splits: Files of each split by name, in the order of the SHA-256 of their paths, so that a slice of a split
            holds examples of all classes.
        outside: Paths of images that are left out because they are in no folder of a class.
        notes: What a reader may not expect of the classes, a sentence each.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[ImageFile]]
    outside: Sequence[str]
    notes: Sequence[str]

    @property
    def is_current(self) -> bool:
        """Whether no file has come, gone or been renamed since; a change just before the listing might be hidden."""
        settled_ns = self.began_ns - SETTLED_NS
        return all(max(stamp[-2:]) < settled_ns and is_as(path, stamp) for path, stamp in self.stamps.items())


def _laid_out(walk: Walk, images: Sequence[str], kind: FileKind) -> Listing:
    """Return the splits and classes of images: a folder named like a split is one if it holds folders."""
    where, names, faults, num_faults = walk.folder, walk.folders, walk.faults, len(walk.faults)
    tops = [*dict.fromkeys(name.partition("/")[0] for name in names)]
    named = [top for top in tops if top.lower() in SPLITS]
    parents = {name.partition("/")[0] for name in names if "/" in name}
    divided = [*filter(parents.__contains__, named)]
    beside = [top for top in tops if top not in named]
    found = by_split(images, divided) if divided or beside else {}
    splits = {name: tuple(ImageFile(path=path, label=label) for path, label in of) for name, of in found.items()}
    outside, level = list[str](), 1 + bool(divided)
    within: dict[str, set[str]] = defaultdict(set)
    for path in images:
        parts = path.split("/")
        if parts[level:] and (parts[0] in found if divided else found):
            within["/".join(parts[:level])].add(parts[level] if parts[level + 1 :] else "")
        else:
            outside.append(path)
    labels = {name: {label for _, label in of} for name, of in found.items()}
    classes = tuple(ordered_classes(set[str]().union(*labels.values())))
    if divided and beside:
        what = f"the splits {', '.join(divided)} beside {', '.join(map(printable, beside))}"
        expected = "either folders of splits, each with a folder for each class, or folders of classes"
        faults.append(fault(where, what, expected, "move the other folders into a split"))
    what, expected = "an unprintable character in the name of a class", "a printable name"
    faults += [fault(where / name, what, expected, "rename the folder") for name in within if not name.isprintable()]
    for name in sorted(names if classes else ()):  # without files that are read
        if name.count("/") == bool(divided) and name not in within and name.partition("/")[0] in (divided or tops):
            others = [of for of in walk.ignored if of.startswith(f"{name}/")]
            what, expected = f"a class without {kind.noun}s", f"files with {', '.join(kind.suffixes)}"
            faults.append(
                fault(where / name, what, expected, CONVERSION if _has_others(others, kind) else "remove the folder")
            )
    faults += [] if divided else _splits_as_classes(where, within)
    if not classes:
        faults.append(_unlabelled(where, divided or named, outside, walk.ignored, kind))
    elif len(classes) > 1 or len(faults) == num_faults:
        faults += class_faults(where, classes, labels, kind.noun)
    notes = []
    if named and not divided:
        notes.append(f"{listed_names(named)}: read as classes, not as splits, since they hold no folders.")
    return Listing(**vars(walk), splits=splits, classes=classes, outside=outside, notes=notes)


def by_split(paths: Iterable[str], splits: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return path and class of files that are in folders of classes, by split, in the order of SHA-256 of the paths.

    Without `splits`, which are folders above those of the classes, all are WHOLE.
    """
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in splits or [WHOLE]}
    for path in sorted(paths, key=lambda path: hashlib.sha256(os.fsencode(path)).digest()):
        split, *parts = path.split("/") if splits else (WHOLE, *path.split("/"))
        if split in found and parts[1:]:
            found[split].append((path, parts[0]))
    return found


def _has_others(paths: Sequence[str], kind: FileKind) -> bool:
    return any(path.lower().endswith(kind.others) for path in paths)


def _unlabelled(
    where: Path, splits: Sequence[str], outside: Sequence[str], others: Sequence[str], kind: FileKind
) -> Fault:
    if not outside:
        remedy = CONVERSION if _has_others(others, kind) else "name the folder above those of the classes"
        return fault(where, f"no {kind.noun}s", TWO, remedy)
    found = f"{counted(len(outside), kind.noun)} in no folder of a class, such as {printable(outside[0])}"
    expected = f"a folder for each class in {', '.join(splits)}" if splits else TWO
    return fault(where, found, expected, "put each into the folder of its class; if this is one class, name its parent")


def _splits_as_classes(where: Path, within: Mapping[str, set[str]]) -> Iterator[Fault]:
    """Yield the fault of classes whose names are those of splits, and whose images are all in folders within them."""
    words = "train", "val", "test"
    splits = {
        name: word
        for name, inner in within.items()
        for word in words
        if "" not in inner and re.search(rf"(?<![a-z]){word}(ing|id|idation)?(set|data)?(?![a-z])", name.lower())
    }
    if "train" in splits.values() and len({*splits.values()}) > 1:
        yield fault(
            where,
            f"the classes {', '.join(map(printable, splits))}: folders of folders, with names like those of splits",
            f"folders of splits ({', '.join(SPLITS)}), each with a folder for each class",
            "rename them to names of splits",
        )


SHARDS = 8
"""Groups of files that an interleave reads in turn."""


def groups_of(count: int) -> list[tuple[int, int]]:
    """Return up to `SHARDS` groups of nearly equal size of so many files: how many are before it, and its size."""
    bounds = [count * place // SHARDS for place in range(SHARDS + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(bounds) if end > start]


DIGITS = 8
"""Length of the class in a record, before the path."""


_in_process: dict[tuple[Path, str], Listing] = {}


def listing_of(dataset: Folder) -> Listing:
    """Return the images of a dataset; raise `EtlrunError` with all faults of the folder, see `listed`."""
    return once_listed(dataset.dir, dataset.key("dir"), IMAGES)


def once_listed(folder: str, where: str, kind: FileKind) -> Listing:
    """Return what `listed` does; a folder is listed once in a process, and again if it has changed."""
    path = Path(folder).expanduser().absolute()
    known = _in_process.get((path, kind.noun))
    if known is None or not known.is_current:
        known = _in_process[path, kind.noun] = list_files(path, where, kind)
    return known


def list_files(folder: Path, where: str, kind: FileKind = IMAGES) -> Listing:
    """Return the files of a kind in a folder of classes, which may stand in folders of splits such as `train`.

    `where` is the config key or argument of the folder, for messages. Hidden files are skipped. Links are followed.

    Raises:
        EtlrunError: All faults of the folder: it doesn't exist, has no images, fewer than two classes, splits beside
            classes or taken for classes, classes that look alike or are missing in the training split, or links in a
            circle.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        beside = [of.name for of in folder.parent.glob("*/")]  # none if that is no folder, or can't be read
        remedy = did_you_mean(folder.name, beside, f"`{folder.with_name('{}')}`", otherwise="check the path")
        raise WorldError(where, f"{folder}: {found}", f"a folder of classes with {kind.noun}s", remedy)
    walk = Walk(folder=folder, suffixes=kind.suffixes)
    images = [*_images(folder, (), walk)]
    refuse(walk.faults if not images else (), EtlrunError)
    listing = _laid_out(walk, images, kind)
    refuse(walk.faults, EtlrunError)
    return listing


def below(folder: Path, faults: list[Fault], ignored: list[str], refused: dict[str, str]) -> Iterator[str]:
    """Yield the paths of all images in `folder` and the folders within it; links are followed.

    Folders that can't be read and circles of links are added to `faults`, files of other suffixes to `ignored`, and
    why images can't be read to `refused`: see `Listing`.
    """
    walk = Walk(folder=folder, faults=faults, ignored=ignored)
    yield from (str(folder / path) for path in _images(folder, (), walk))
    refused.update({str(folder / path): reason for path, reason in walk.refused.items()})


def conversion_of(path: str) -> str:
    """Return the remedy for an image of a format that TensorFlow doesn't decode."""
    return _CONVERT.format("it", quote(path))


def notes_on(listing: Listing, kind: FileKind = IMAGES) -> Iterator[str]:
    """Yield what a run has to say of a listing of files of a kind, a sentence each."""
    yield from listing.notes
    foreign = tuple(path for path in listing.ignored if path.lower().endswith(kind.others))
    if foreign:
        what = f"{counted(len(foreign), 'file')} of formats that TensorFlow doesn't decode: {listed_names(foreign)}"
        yield f"Left out: {what}; {CONVERSION}."
    if paths := tuple(path for path in listing.ignored if path not in foreign):
        what = f"{counted(len(paths), 'file')} without the suffix of {kind.noun}s ({', '.join(kind.suffixes)})"
        yield f"Left out: {what}: {listed_names(paths)}."
    if outside := listing.outside:
        yield f"Left out: {counted(len(outside), 'file')} in no folder of a class: {listed_names(outside)}."


def _images(folder: Path, above: tuple[str, ...], walk: Walk) -> Iterator[str]:
    """Yield the paths of images in a folder and in the folders within it, relative to that of the dataset."""
    real = os.path.realpath(folder)
    within = "" if folder == walk.folder else f"{folder.relative_to(walk.folder).as_posix()}/"
    if any(real == other or other.startswith(f"{real}{os.sep}") for other in above):
        walk.faults.append(fault(folder, "a link to a folder above it", "folders without a circle", "remove the link"))
        return
    try:
        walk.stamps[str(folder)] = stamp_of(str(folder))
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        walk.faults.append(unreadable_path(str(folder), error, "a folder that can be read"))
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in LEFT_BY_SYSTEMS:
            continue
        path = f"{within}{entry.name}"
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
