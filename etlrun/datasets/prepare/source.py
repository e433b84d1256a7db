"""Images to prepare: their entries, and how an entry is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etlrun.datasets.prepare.options import SPLIT, SPLIT_EXPECTED
from etlrun.sources.classes import class_faults, ordered_classes
from etlrun.system.errors import EtlrunError, Fault, fault

LISTED = 20
"""Faults of one kind that a message lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
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


class DamagedError(Exception):
    """An image that can't be read from an archive, since the archive is damaged there."""


class Source:
    """Images of a folder, a list, an archive or TFRecords. Entries may be read by several threads at once.

    Attributes:
        where: Path of the source, for messages.
        entries: All of its images.
        classes: Names of the classes: the index of a class is its place.
        ignored: Names of what is left out because it is no image.
        outside: Names of images that are left out because they are in no folder of a class.
        notes: What a reader may not expect of the classes, a sentence each.
        loose: Links of an archive that are left out because no file is at their end.
        broken: Names of records that are left out because they hold no labelled image, with the reasons.
        unpacked_bytes: Space that `unpack` needs.
        convert: Function from an encoded image to the one that is prepared; None if they are prepared as they are.
    """

    def __init__(self, where: Path, entries: Sequence[Entry], classes: Sequence[str], ignored: Sequence[str]) -> None:
        self.where, self.entries, self.classes, self.ignored = where, entries, tuple(classes), tuple(ignored)
        self.loose: Sequence[str] = ()
        self.outside: Sequence[str] = ()
        self.notes: Sequence[str] = ()
        self.broken: Mapping[str, str] = {}
        self.unpacked_bytes = 0
        self.convert: Callable[[bytes], bytes] | None = None
        faults = list(name_faults(where, entries, self.classes))
        if faults:
            raise EtlrunError(faults)

    def read(self, entry: Entry) -> bytes:
        """Return an encoded image; raise `DamagedError` if its archive is damaged, `OSError` if it can't be read."""
        raise NotImplementedError

    def prepared(self, entry: Entry) -> bytes:
        """Return an encoded image as it is prepared; raises as `read` does."""
        data = self.read(entry)
        return data if self.convert is None else self.convert(data)

    def name_of(self, entry: Entry) -> str:
        """Return how messages name an image: the path of its file, or its archive and its path there."""
        return f"{self.where}, {entry.path}"

    def unpack(self, folder: Path) -> None:
        """Unpack what can't be read in place into an empty folder, which the caller removes."""

    def close(self) -> None:
        """Close the files that are open."""


def first(faults: Sequence[Fault], where: object, things: str) -> list[Fault]:
    """Return the first faults of a kind, and, if some are left out, one with the number of all of them."""
    if len(faults) <= LISTED:
        return list(faults)
    all_of_them = fault(where, f"{len(faults):,} {things}, of which {LISTED} are listed", "none", faults[0].remedy)
    return [*faults[:LISTED], all_of_them]


def classes_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the classes of these labels, sorted; by number if all of them are integers."""
    return tuple(ordered_classes(set(labels)))


def by_split(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each split, in the order in which splits occur."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.split, []).append(entry)
    return found


def of_classes(where: Path, entries: Sequence[Entry], classes: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of the classes as a whole, as for a folder of classes."""
    return class_faults(where, tuple(classes), by_split(entries))


def name_faults(where: Path, entries: Iterable[Entry], classes: Iterable[str]) -> Iterator[Fault]:
    """Yield the names of splits and classes that TFDS doesn't read back as they are."""
    for name in sorted({entry.split for entry in entries}):
        if not SPLIT.fullmatch(name):
            yield fault(where, f"the split {name!r}", SPLIT_EXPECTED, "rename the split")
    for name in classes:
        if not name.isprintable() or name != name.strip() or not name:
            yield fault(
                where,
                f"the class {name!a}",
                "a printable name that neither begins nor ends with a space",
                "rename the class",
            )
