"""Images to prepare: those of a folder of classes, and how one is read."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from etlrun.datasets.prepare.options import SPLIT, SPLIT_EXPECTED, Options
from etlrun.sources.listing import Listing, list_files
from etlrun.system.errors import EtlrunError, Fault, fault, refuse
from etlrun.system.values import frozen

LISTED = 20
"""Faults of one kind that a message lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEntry:
    """One image with its class.

    Attributes:
        path: Path of the image below the folder.
        label: Name of its class.
        split: Name of its split in the source.
        size: Size of the encoded image in bytes; 0 if it is unknown.
        refused: Why there is no file to read, such as a link to one that is gone; empty if there is.
    """

    path: str
    label: str
    split: str
    size: int
    refused: str = ""


@frozen
class ImageSource:
    """Image files below a folder. Entries may be read by several threads at once.

    Attributes:
        listing: The folder, with its classes, and what is left out.
        entries: All of its images.
    """

    listing: Listing
    entries: Sequence[ImageEntry]

    def path_of(self, entry: ImageEntry) -> Path:
        """Return the path of an image."""
        return self.listing.folder / entry.path

    def read(self, entry: ImageEntry) -> bytes:
        """Return an encoded image; raise `OSError` if it can't be read."""
        return self.path_of(entry).read_bytes()


def first(faults: Sequence[Fault], where: object, things: str) -> list[Fault]:
    """Return the first faults of a kind, and, if some are left out, one with the number of all of them."""
    if len(faults) <= LISTED:
        return list(faults)
    all_of_them = fault(where, f"{len(faults):,} {things}, of which {LISTED} are listed", "none", faults[0].remedy)
    return [*faults[:LISTED], all_of_them]


def opened(options: Options) -> ImageSource:
    """Return the images of the source; raise `EtlrunError` with all of its faults."""
    folder = Path(options.source).expanduser().absolute()
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        remedy = "unpack an archive before; dataset=tfrecord reads TFRecords where they are, and dataset=table a list"
        remedy = remedy if folder.exists() else "check the path"
        raise EtlrunError([fault(folder, found, "a folder of classes", remedy)])
    if options.url is None and options.family.resolve().is_relative_to(folder.resolve()):
        found, remedy = f"{options.data_dir}, in the source", "choose another --data-dir"
        raise EtlrunError([fault("--data-dir", found, "a folder outside of it", remedy)])
    listing = list_files(folder, "SOURCE")
    faults = [
        fault(folder, f"the split {name!r}", SPLIT_EXPECTED, "rename the split")
        for name in sorted(listing.splits)
        if not SPLIT.fullmatch(name)
    ]
    expected = "a printable name that neither begins nor ends with a space"
    odd = (name for name in listing.classes if not name.isprintable() or name != name.strip())
    refuse(
        (*faults, *(fault(folder, f"the class {name!a}", expected, "rename the class") for name in odd)), EtlrunError
    )
    entries = []
    for split, images in listing.splits.items():
        for image in images:
            size, refused = 0, listing.refused.get(image.path, "")
            with suppress(OSError):  # which the check reports
                size = 0 if refused else (folder / image.path).stat().st_size
            entries.append(ImageEntry(path=image.path, label=image.label, split=split, size=size, refused=refused))
    return ImageSource(listing=listing, entries=entries)
