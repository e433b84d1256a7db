"""Images in files: those of a folder of classes, or of a list."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from etlrun.datasets.prepare.source import Entry, Source, first
from etlrun.sources.listing import listed
from etlrun.system.errors import EtlrunError, Fault, fault, unreadable_path


class Files(Source):
    """Image files below a folder.

    Attributes:
        folder: Folder to which the paths of entries are relative.
    """

    def __init__(
        self, where: Path, folder: Path, entries: Sequence[Entry], classes: Sequence[str], ignored: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        super().__init__(where, entries, classes, ignored)

    def read(self, entry: Entry) -> bytes:
        return (self.folder / entry.path).read_bytes()

    def name_of(self, entry: Entry) -> str:
        return str(self.folder / entry.path)


def of_folder(folder: Path, suffixes: tuple[str, ...]) -> Files:
    """Return the images in a folder of classes, by their suffixes; raise `EtlrunError` with all faults."""
    listing = listed(folder, "SOURCE", suffixes)
    images = [(image.path, image.label, split) for split, files in listing.splits.items() for image in files]
    entries = entries_of(folder, folder, images, listing.refused)
    found = Files(folder, folder, entries, listing.classes, listing.ignored)
    found.outside, found.notes = listing.outside, listing.notes
    return found


def entries_of(
    where: Path, folder: Path, images: Iterable[tuple[str, str, str]], refused: Mapping[str, str]
) -> list[Entry]:
    """Return an entry for each image, given as path, label and split; `refused` says why some are broken, by path.

    Raises:
        EtlrunError: Files that don't exist, or are no files, such as pipes, which would be waited for.
    """
    entries: list[Entry] = []
    faults: list[Fault] = []
    for path, label, split in images:
        if path in refused:
            entries.append(Entry(path=path, label=label, split=split, size=0, refused=refused[path]))
            continue
        try:
            found = (folder / path).stat()
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, OSError) else OSError(0, str(error))
            faults.append(unreadable_path(str(folder / path), reason, "an image file"))
            continue
        if not stat.S_ISREG(found.st_mode):
            faults.append(fault(folder / path, "not a regular file", "an image file", "remove it"))
        entries.append(Entry(path=path, label=label, split=split, size=found.st_size))
    if faults:
        raise EtlrunError(first(faults, where, "files that can't be read"))
    return entries
