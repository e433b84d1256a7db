"""Folders of text files by class as rows: their texts are read once, and kept by the content of the files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from etlrun.sources.content import digest
from etlrun.sources.framing import POINTER
from etlrun.sources.listing import TEXTS, ImageFile, Listing, notes_on, once_listed
from etlrun.sources.rows.kept import KeptColumns, KeptWriter, contents_of, kept_as, stamps_of
from etlrun.sources.rows.lines import encoding_fault, format_fault
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.rows import TextFolder
from etlrun.system.errors import EtlrunError, Fault, printable, unreadable_path
from etlrun.system.progress import progress

_FORMAT = 1
"""Version of how texts are read."""
_AT_ONCE, _AT_ONCE_BYTES = 4_096, 32_000_000
_NAMED = 5
_SCHEMA = pa.schema([("text", pa.large_string()), ("label", pa.large_string())])


class TextFolderSource(RowsSource):
    """Rows of text files in a folder for each class."""

    @classmethod
    def files(cls, dataset: TextFolder) -> dict[str, list[str]]:
        listing = _listing(dataset)
        return {name: [str(listing.folder / of.path) for of in files] for name, files in listing.splits.items()}

    @classmethod
    def is_there(cls, dataset: TextFolder) -> bool:
        return Path(dataset.folder).expanduser().exists()

    @classmethod
    def opened(cls, dataset: TextFolder) -> KeptColumns:
        listing, stamps = _listing(dataset), stamps_of(cls.files(dataset), "a text")
        contents = contents_of(stamps, "a text")
        content = [contents[str(listing.folder / of.path)] for of in _all(listing)]
        listed = {name: [[file.path, file.label] for file in files] for name, files in listing.splits.items()}
        notes = [*notes_on(listing, TEXTS)]
        identity = digest([_FORMAT, dataset.errors, listed, content, notes])
        return kept_as(dataset, identity, stamps, partial(_write, dataset, listing, identity, notes), KeptColumns)


def _all(listing: Listing) -> list[ImageFile]:
    return [file for files in listing.splits.values() for file in files]


def _listing(dataset: TextFolder) -> Listing:
    """Return the texts of a dataset; raise `EtlrunError` for faults of the folder, and for what is no file."""
    listing = once_listed(dataset.folder, dataset.key("folder"), TEXTS)
    if listing.refused:
        faults = [
            Fault(printable(str(listing.folder / path)), why, "a text", "remove it")
            for path, why in listing.refused.items()
        ]
        raise EtlrunError(faults)
    return listing


def text_of(data: bytes, errors: str) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; `errors` are as in `bytes.decode`."""
    return data.decode("utf-8-sig", errors)


def _write(dataset: TextFolder, listing: Listing, identity: str, notes: list[str], folder: Path) -> None:
    """Read all texts, and write them with the names of their classes."""
    files, writer = _all(listing), KeptWriter(folder, _SCHEMA)
    try:
        for batch in _batches(dataset, listing.folder, files, notes):
            writer.add(batch)
        rows = {name: len(of) for name, of in listing.splits.items()}
        writer.finish(rows=rows, identity=identity, title=dataset.title, notes=notes, file_rows=[1] * len(files))
    finally:
        writer.close()


def _batches(
    dataset: TextFolder, folder: Path, files: Sequence[ImageFile], notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the texts and the names of the classes of files, some at once; add to `notes` how many are repaired.

    Raises:
        EtlrunError: A file can't be read, or is not in UTF-8.
    """
    texts, labels, held, broken = list[str](), list[str](), 0, list[str]()
    with progress() as begin:
        advance = begin("Reading texts", len(files))
        for number, file in enumerate(files, 1):
            path = str(folder / file.path)
            data = _read(path)
            if data.startswith(POINTER) and (fault := format_fault(path)) is not None:
                raise EtlrunError([fault])
            try:
                texts.append(text_of(data, "strict"))
            except UnicodeDecodeError:
                broken.append(path)
                texts.append(text_of(data, "replace"))
            labels.append(file.label)
            held += len(data)
            if number == len(files) or len(texts) == _AT_ONCE or held > _AT_ONCE_BYTES:
                yield pa.RecordBatch.from_arrays(
                    [pa.array(of, pa.large_string()) for of in (texts, labels)], schema=_SCHEMA
                )
                advance(len(texts))
                texts, labels, held = [], [], 0
    if broken and dataset.errors == "strict":
        raise EtlrunError([*_not_utf8(broken)])
    if broken:
        notes.append(f"{_count(broken)} not in UTF-8: U+FFFD is read for what can't be decoded.")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise EtlrunError([unreadable_path(path, error, "a text")]) from error


def _not_utf8(paths: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of the first of these files that are not in UTF-8."""
    more = f"; {_count(paths)} not in UTF-8" if paths[1:] else ""
    for path in paths[:_NAMED]:
        if (fault := format_fault(path) or encoding_fault(path)) is not None:
            yield dataclasses.replace(fault, found=f"{fault.found}{more}")


def _count(paths: Sequence[str]) -> str:
    return f"{len(paths):,} text{'s are' if paths[1:] else ' is'}"
