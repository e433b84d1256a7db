"""Images to prepare: their entries, and how one is read; those of a folder of classes, or of a list in CSV."""

import csv
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from etlrun.datasets.prepare.conversion import CONVERTED, converted, require_heic
from etlrun.datasets.prepare.options import SPLIT, SPLIT_EXPECTED, Options
from etlrun.sources.listing import SUFFIXES, WHOLE, class_faults, list_files, ordered_classes
from etlrun.system.errors import EtlrunError, Fault, fault, one_line, printable, refuse, unreadable_path

LISTED = 20
"""Faults of one kind that a message lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEntry:
    """One image with its class.

    Attributes:
        path: Name of the image in its source, unique there.
        label: Name of its class.
        split: Name of its split in the source.
        size: Size of the encoded image in bytes.
        refused: Why there is no file to read, such as a link to one that is gone; empty if there is.
    """

    path: str
    label: str
    split: str
    size: int
    refused: str = ""


class ImageSource:
    """Image files below a folder. Entries may be read by several threads at once.

    Attributes:
        where: Path of the source, for messages.
        folder: Folder to which the paths of entries are relative.
        entries: All of its images.
        classes: Names of the classes: the index of a class is its place.
        ignored: Names of what is left out because it is no image.
        outside: Names of images that are left out because they are in no folder of a class.
        notes: What a reader may not expect of the classes, a sentence each.
        converts: Whether images of other formats, of frames, or not upright are converted.
    """

    outside: Sequence[str] = ()
    notes: Sequence[str] = ()
    converts = False

    def __init__(
        self,
        where: Path,
        folder: Path,
        entries: Sequence[ImageEntry],
        classes: Sequence[str],
        ignored: Sequence[str] = (),
    ) -> None:
        self.where, self.folder, self.entries = where, folder, entries
        self.classes, self.ignored = tuple(classes), ignored
        refuse(name_faults(where, entries, self.classes), EtlrunError)

    def read(self, entry: ImageEntry) -> bytes:
        """Return an encoded image as it is prepared; raise `OSError` if it can't be read."""
        data = (self.folder / entry.path).read_bytes()
        return converted(data) if self.converts else data

    def name_of(self, entry: ImageEntry) -> str:
        """Return the path of an image."""
        return str(self.folder / entry.path)


def first(faults: Sequence[Fault], where: object, things: str) -> list[Fault]:
    """Return the first faults of a kind, and, if some are left out, one with the number of all of them."""
    if len(faults) <= LISTED:
        return list(faults)
    all_of_them = fault(where, f"{len(faults):,} {things}, of which {LISTED} are listed", "none", faults[0].remedy)
    return [*faults[:LISTED], all_of_them]


def classes_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the classes of these labels, sorted; by number if all of them are integers."""
    return tuple(ordered_classes(set(labels)))


def of_classes(where: Path, entries: Sequence[ImageEntry], classes: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of the classes as a whole, as for a folder of classes."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        found.setdefault(entry.split, set()).add(entry.label)
    return class_faults(where, tuple(classes), found)


def name_faults(where: Path, entries: Iterable[ImageEntry], classes: Iterable[str]) -> Iterator[Fault]:
    """Yield the names of splits and classes that TFDS doesn't read back as they are."""
    for name in sorted({entry.split for entry in entries}):
        if not SPLIT.fullmatch(name):
            yield fault(where, f"the split {name!r}", SPLIT_EXPECTED, "rename the split")
    for name in classes:
        if not name.isprintable() or name != name.strip() or not name:
            expected = "a printable name that neither begins nor ends with a space"
            yield fault(where, f"the class {name!a}", expected, "rename the class")


def of_folder(folder: Path, suffixes: tuple[str, ...]) -> ImageSource:
    """Return the images in a folder of classes, by their suffixes; raise `EtlrunError` with all faults."""
    listing = list_files(folder, "SOURCE", suffixes)
    images = [(image.path, image.label, split) for split, files in listing.splits.items() for image in files]
    entries = entries_of(folder, folder, images, listing.refused)
    found = ImageSource(folder, folder, entries, listing.classes, listing.ignored)
    found.outside, found.notes = listing.outside, listing.notes
    return found


def entries_of(
    where: Path, folder: Path, images: Iterable[tuple[str, str, str]], refused: Mapping[str, str]
) -> list[ImageEntry]:
    """Return an entry for each image, given as path, label and split; `refused` says why some are broken, by path.

    Raises:
        EtlrunError: Files that don't exist, or are no files, such as pipes, which would be waited for.
    """
    entries: list[ImageEntry] = []
    faults: list[Fault] = []
    for path, label, split in images:
        if path in refused:
            entries.append(ImageEntry(path=path, label=label, split=split, size=0, refused=refused[path]))
            continue
        try:
            found = (folder / path).stat()
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, OSError) else OSError(0, str(error))
            faults.append(unreadable_path(str(folder / path), reason, "an image file"))
            continue
        if not stat.S_ISREG(found.st_mode):
            faults.append(fault(folder / path, "not a regular file", "an image file", "remove it"))
        entries.append(ImageEntry(path=path, label=label, split=split, size=found.st_size))
    if faults:
        raise EtlrunError(first(faults, where, "files that can't be read"))
    return entries


_COLUMNS = ("path", "label")
_EXPECTED = "the columns path and label, and optionally split"


def of_list(path: Path) -> ImageSource:
    """Return the images of a list, whose paths are relative to its folder; raise `EtlrunError` with all faults."""
    faults: list[Fault] = []
    try:
        images = [*_listed(path, faults)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise EtlrunError([fault(path, one_line(error), "a list in UTF-8", "save it as UTF-8")]) from error
    if not faults and not images:
        faults.append(fault(path, "no images", f"{_EXPECTED}, and a line for each image", "add lines to the list"))
    refuse(first(faults, path, "faults"), EtlrunError)
    entries = entries_of(path, path.parent, images, {})
    classes = classes_of(entry.label for entry in entries)
    refuse(of_classes(path, entries, classes), EtlrunError)
    return ImageSource(path, path.parent, entries, classes)


def _listed(path: Path, faults: list[Fault]) -> Iterator[tuple[str, str, str]]:
    """Yield path, label and split of each line of a list; add the faults of others."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        columns = rows.fieldnames or ()
        wanted = (*_COLUMNS, *["split"] * ("split" in columns))
        if again := [name for name in wanted if columns.count(name) > 1]:
            found, remedy = f"several columns {' and '.join(again)}", "remove or rename all but one"
            faults.append(fault(f"{path}:1", found, "each column once", remedy))
            return
        if missing := [name for name in _COLUMNS if name not in columns]:
            found = f"the columns {', '.join(map(printable, columns))}" if columns else "no line"
            faults.append(fault(f"{path}:1", found, _EXPECTED, f"add {' and '.join(missing)} to the first line"))
            return
        for row in rows:
            where, more = f"{path}:{rows.line_num}", cast("Any", row).pop(None, ())  # values behind the last column
            inside = posixpath.normpath(row["path"] or "")
            if any(more):
                found = f"{len(columns) + len(more)} values for {len(columns)} columns"
                remedy = 'put a value that has a comma in quotation marks, as "a, b"'
                faults.append(fault(where, found, "a value for each column", remedy))
            elif lacks := [f"no {name}" for name in wanted if not row[name]]:
                expected = f"text for {', '.join(wanted)}"
                faults.append(fault(where, ", ".join(lacks), expected, "complete the line or remove it"))
            elif inside.startswith(("/", "../")) or inside == "..":
                expected = "a path within the folder of the list"
                remedy = "put the list into a folder above all of its images"
                faults.append(fault(where, printable(row["path"]), expected, remedy))
            else:
                yield inside, row["label"], row.get("split", WHOLE)


_KINDS = "a folder of classes, or a list (.csv)"


def opened(options: Options) -> ImageSource:
    """Return the images of the source; raise `EtlrunError` with all of its faults."""
    path = Path(options.source).expanduser().absolute()
    if path.is_dir():
        if options.url is None and options.family.resolve().is_relative_to(path.resolve()):
            found, remedy = f"{options.data_dir}, in the source", "choose another --data-dir"
            raise EtlrunError([fault("--data-dir", found, "a folder outside of it", remedy)])
        source = of_folder(path, (*SUFFIXES, *CONVERTED) if options.converts else SUFFIXES)
    elif path.is_file() and path.suffix.lower() == ".csv":
        source = of_list(path)
    else:
        found = "a file of another kind" if path.is_file() else "neither a file nor a folder"
        remedy = "unpack an archive before; dataset=tfrecord reads TFRecords where they are"
        if not path.exists():
            found, remedy = "no such file or folder", "check the path"
        raise EtlrunError([fault(path, found, _KINDS, remedy)])
    source.converts = options.converts
    if options.converts:
        require_heic([entry.path for entry in source.entries])
    return source
