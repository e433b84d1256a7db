"""Images to prepare: their entries, and how one is read; those of a folder of classes, or of a list in CSV or JSON."""

from __future__ import annotations

import csv
import json
import posixpath
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun.datasets.prepare.options import SPLIT, SPLIT_EXPECTED
from etlrun.sources.listing import WHOLE, class_faults, list_files, ordered_classes
from etlrun.system.errors import EtlrunError, Fault, fault, one_line, printable, unreadable_path

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
    """Images of a folder, a list or TFRecords. Entries may be read by several threads at once.

    Attributes:
        where: Path of the source, for messages.
        entries: All of its images.
        classes: Names of the classes: the index of a class is its place.
        ignored: Names of what is left out because it is no image.
        outside: Names of images that are left out because they are in no folder of a class.
        notes: What a reader may not expect of the classes, a sentence each.
        broken: Names of records that are left out because they hold no labelled image, with the reasons.
        convert: Function from an encoded image to the one that is prepared; None if they are prepared as they are.
    """

    def __init__(
        self, where: Path, entries: Sequence[ImageEntry], classes: Sequence[str], ignored: Sequence[str]
    ) -> None:
        self.where, self.entries, self.classes, self.ignored = where, entries, tuple(classes), tuple(ignored)
        self.outside: Sequence[str] = ()
        self.notes: Sequence[str] = ()
        self.broken: Mapping[str, str] = {}
        self.convert: Callable[[bytes], bytes] | None = None
        faults = list(name_faults(where, entries, self.classes))
        if faults:
            raise EtlrunError(faults)

    def read(self, entry: ImageEntry) -> bytes:
        """Return an encoded image; raise `OSError` if it can't be read."""
        raise NotImplementedError

    def prepared(self, entry: ImageEntry) -> bytes:
        """Return an encoded image as it is prepared; raises as `read` does."""
        data = self.read(entry)
        return data if self.convert is None else self.convert(data)

    def name_of(self, entry: ImageEntry) -> str:
        """Return how messages name an image: the path of its file, or of that of its record, and its number."""
        raise NotImplementedError


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


class Files(ImageSource):
    """Image files below a folder.

    Attributes:
        folder: Folder to which the paths of entries are relative.
    """

    def __init__(
        self,
        where: Path,
        folder: Path,
        entries: Sequence[ImageEntry],
        classes: Sequence[str],
        ignored: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        super().__init__(where, entries, classes, ignored)

    def read(self, entry: ImageEntry) -> bytes:
        return (self.folder / entry.path).read_bytes()

    def name_of(self, entry: ImageEntry) -> str:
        return str(self.folder / entry.path)


def of_folder(folder: Path, suffixes: tuple[str, ...]) -> Files:
    """Return the images in a folder of classes, by their suffixes; raise `EtlrunError` with all faults."""
    listing = list_files(folder, "SOURCE", suffixes)
    images = [(image.path, image.label, split) for split, files in listing.splits.items() for image in files]
    entries = entries_of(folder, folder, images, listing.refused)
    found = Files(folder, folder, entries, listing.classes, listing.ignored)
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


LISTS = (".csv", ".jsonl")
_COLUMNS = ("path", "label")
_EXPECTED = "the columns path and label, and optionally split"
_SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'"}
_Row = tuple[str, Mapping[str, Any]]


def of_list(path: Path) -> Files:
    """Return the images of a list, whose paths are relative to its folder; raise `EtlrunError` with all faults."""
    faults: list[Fault] = []
    try:
        rows = list(_csv(path, faults) if path.suffix.lower() == ".csv" else _json_lines(path, faults))
    except (UnicodeDecodeError, csv.Error) as error:
        raise EtlrunError([fault(path, one_line(error), "a list in UTF-8", "save it as UTF-8")]) from error
    has_splits = any("split" in row for _, row in rows)
    images = [image for where, row in rows if (image := _image(where, row, has_splits, faults))]
    if not faults and not images:
        faults.append(fault(path, "no images", f"{_EXPECTED}, and a line for each image", "add lines to the list"))
    if faults:
        raise EtlrunError(first(faults, path, "faults"))
    entries = entries_of(path, path.parent, images, {})
    classes = classes_of(entry.label for entry in entries)
    faults += of_classes(path, entries, classes)
    if faults:
        raise EtlrunError(faults)
    return Files(path, path.parent, entries, classes)


def _csv(path: Path, faults: list[Fault]) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        columns = rows.fieldnames or ()
        again = [name for name in (*_COLUMNS, "split") if columns.count(name) > 1]
        if again:
            found, remedy = f"several columns {' and '.join(again)}", "remove or rename all but one"
            faults.append(fault(f"{path}:1", found, "each column once", remedy))
            return
        missing = [name for name in _COLUMNS if name not in columns]
        if missing:
            found = f"the columns {', '.join(map(printable, columns))}" if columns else "no line"
            remedy = f"add {' and '.join(missing)} to the first line"
            if columns and len(missing) == len(_COLUMNS):
                remedy += ", or train on a table as it is: etlrun experiment=table dataset.files=FILE"
            if mark := next((of for of in _SEPARATORS if len(columns) == 1 and of in columns[0]), ""):
                found = f"one column, {columns[0]!r}, which looks separated by {_SEPARATORS[mark]}"
                remedy = "save the list with commas between the columns"
            faults.append(fault(f"{path}:1", found, _EXPECTED, remedy))
            return
        for row in rows:
            more: Any = row.pop(None, ())  # values behind the last column
            if any(more):
                found = f"{len(columns) + len(more)} values for {len(columns)} columns"
                remedy = 'put a value that has a comma in quotation marks, as "a, b"'
                faults.append(fault(f"{path}:{rows.line_num}", found, "a value for each column", remedy))
                continue
            yield f"{path}:{rows.line_num}", row


def _json_lines(path: Path, faults: list[Fault]) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where, pairs = f"{path}:{number}", None
            with suppress(ValueError):
                pairs = json.loads(line, object_pairs_hook=tuple)
            if not isinstance(pairs, tuple):  # as only an object is
                example = '{"path": "rose.jpg", "label": "rose"}'
                faults.append(fault(where, printable(line.strip()[:60]), f"an object: {example}"))
            elif again := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
                faults.append(fault(where, f"several values of {again[0]}", "each key once", "remove all but one"))
            else:
                yield where, dict(pairs)


def _image(where: str, row: Mapping[str, Any], has_splits: bool, faults: list[Fault]) -> tuple[str, str, str] | None:  # noqa: FBT001 - of the whole list
    wanted = (*_COLUMNS, "split") if has_splits else _COLUMNS
    found = {key: row.get(key) for key in wanted}
    values = {key: str(of) for key, of in found.items() if isinstance(of, str | int) and not isinstance(of, bool)}
    if missing := [key for key in wanted if not values.get(key)]:
        wrong = (f"{key}={found[key]!r}" if found[key] not in (None, "") else f"no {key}" for key in missing)
        expected = f"text for {', '.join(wanted)}"
        faults.append(fault(where, ", ".join(wrong), expected, "complete the line or remove it"))
        return None
    path = posixpath.normpath(values["path"])
    if path.startswith(("/", "../")) or path == "..":
        expected, remedy = "a path within the folder of the list", "put the list into a folder above all of its images"
        faults.append(fault(where, printable(values["path"]), expected, remedy))
        return None
    return path, values["label"], values.get("split", WHOLE)
