"""Files of rows: those that patterns name on this machine, and copies of those that URLs name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from etlrun.cache.store import folder_of
from etlrun.remote.copies import Copies, copied, named_by_url
from etlrun.remote.objects import Object, UnreachableError, listed
from etlrun.sources.named import named
from etlrun.sources.rows.lines import document_fault, format_fault
from etlrun.sources.rows.table import ENDS, has_format, of_folders, opened_file
from etlrun.sources.shards import matched, unmatched
from etlrun.stages.paths import is_remote
from etlrun.stages.rows import Arrays, FileRows, Table
from etlrun.system.errors import EtlrunError, Fault
from etlrun.system.hidden import is_closed


def files_of(dataset: Table) -> dict[str, list[str]]:
    """Return the paths of the files of each split; objects that URLs name are fetched first, each once.

    Raises:
        EtlrunError: A pattern names no file or not all shards, or a file that is no table, or one of another split; or
            an object can't be fetched.
    """
    files: dict[str, list[str]] = {}
    objects: dict[str, Object] = {}
    faults: list[Fault] = []
    expected = f"a pattern of files that end in {ENDS}"
    for split, patterns in dataset.patterns.items():
        missing = Fault(dataset.key("files"), f"no file {{}} for {split}", expected)
        files[split] = named(patterns, dataset.storage, missing, objects, faults)
    faults += [
        Fault(path, "a file of another name", f"one that ends in {ENDS}", _otherwise(path))
        for path in dict.fromkeys(path for paths in files.values() for path in paths)
        if not has_format(objects[path].name if path in objects else path)
    ]
    if faults := [*faults, *_of_two_splits(dataset, files)]:
        raise EtlrunError(faults)
    places = _copies(dataset, objects)
    return {split: [places.get(path, path) for path in paths] for split, paths in files.items()}


def _otherwise(path: str) -> str:
    """Return what to do with a file of another name."""
    with suppress(OSError):
        if (fault := format_fault(path) or document_fault(path)) is not None:
            return fault.remedy
    return "rename it"


def _of_two_splits(dataset: Table, files: Mapping[str, list[str]]) -> Iterator[Fault]:
    """Yield a fault for each file that is in a split before, by whatever path: its rows would be trained on, too."""
    splits: dict[str | Path, str] = {}
    for split, paths in files.items():
        for path in paths:
            if (before := splits.setdefault(path if is_remote(path) else Path(path).resolve(), split)) != split:
                yield Fault(
                    dataset.key("files"),
                    f"{path} in {before} and in {split}",
                    "each file in one split",
                    "leave it out of one of them; one split may be both trained on and evaluated",
                )


def _copies(dataset: FileRows, objects: Mapping[str, Object]) -> dict[str, str]:
    """Return the paths of the copies of objects by URL; those that are missing are fetched first."""
    copies = Copies(folder_of(dataset.dir), dataset.storage or {})
    return dict(zip(objects, copied([*objects.values()], copies), strict=True))


def arrays_of(dataset: Arrays) -> dict[str, str]:
    """Return the paths of the files by column, or of the only one by ""; objects that URLs name are fetched first.

    Raises:
        EtlrunError: A URL does not name one object, or it can't be fetched.
    """
    objects, faults = dict[str, Object](), list[Fault]()
    for url in filter(is_remote, dict.fromkeys(dataset.paths.values())):
        try:
            found = listed(url, dataset.storage or {})
        except UnreachableError as error:
            faults += [of for of in error.faults if of not in faults]
            continue
        if len(found) == 1:
            objects[url] = found[0]
        else:
            faults.append(
                Fault(
                    url,
                    f"{len(found)} files",
                    "one file",
                    "name it without * and [, or read several files as a table of Parquet",
                )
            )
    if faults:
        raise EtlrunError(faults)
    copies = _copies(dataset, objects)
    return {name: copies.get(path, str(Path(path).expanduser())) for name, path in dataset.paths.items()}


def is_there(dataset: Table) -> bool:
    """Return whether each pattern names a file on this machine, if not as it should, or is a URL that may be opened."""
    is_open, patterns = not is_closed(dataset.storage), [of for some in dataset.patterns.values() for of in some]
    return all(is_open if is_remote(of) else matched(of) or unmatched(of) for of in patterns)


@named_by_url()
def names_of(dataset: Table) -> Sequence[str]:
    """Return the names of the columns of the first file; raise `EtlrunError` if there is none, or it is no table."""
    paths = [path for of in files_of(dataset).values() for path in of]
    first = opened_file(paths[0], dataset)
    first.folders = of_folders(dataset, paths)[0]
    return first.columns
