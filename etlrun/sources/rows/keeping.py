"""Keeping of rows: their columns are written once for each content, and found again by it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from etlrun.cache.store import folder_of
from etlrun.sources.content import sha256_of_all
from etlrun.sources.records import Stamp, known, stamp_of
from etlrun.sources.rows.class_names import names_beside
from etlrun.sources.rows.delimited import DelimitedFile
from etlrun.sources.rows.files import files_of
from etlrun.sources.rows.kept import Kept
from etlrun.sources.rows.read import TableFile, each_read
from etlrun.sources.rows.table import Tables, of_folders, opened, opened_file
from etlrun.sources.rows.writing import Writer
from etlrun.stages.base import parameters
from etlrun.stages.rows import Column, Rows, Table
from etlrun.system.errors import EtlrunError, Fault, WorldError, override, override_of_texts, unreadable_path
from etlrun.system.locks import Lock
from etlrun.system.progress import Begin, progress

_FORMAT = 14
"""Version of the format of kept columns, and of the code that reads files."""
_READ = ("columns", "missing", "strip", "errors", "csv")
"""Parameters of how files are read."""
_LONGEST_S = 3600.0
_MB = 1_000_000
_EXACT = 2.0**53
_kept: dict[tuple[Path, str, tuple[tuple[str, Stamp], ...]], Kept] = {}


def kept_of(dataset: Table) -> Kept:
    """Return the columns of a dataset, which are read and written first if they are not kept yet.

    Raises:
        EtlrunError: A file is missing, can't be read, or is no table.
    """
    files = files_of(dataset)
    stamps = stamps_of(files)
    identity = _identity(dataset, files, stamps)

    def write(folder: Path) -> None:
        write_table(folder, identity, dataset, files)

    return kept_as(dataset, identity, stamps, write, Kept)


def identity_of(dataset: Table) -> str:
    """Return the identity of the columns of a dataset, whether or not they are kept; raise `EtlrunError` as above."""
    files = files_of(dataset)
    return _identity(dataset, files, stamps_of(files))


def kept_as(
    dataset: Rows, identity: str, stamps: dict[str, Stamp], write: Callable[[Path], None], kept: Callable[[Path], Kept]
) -> Kept:
    """Return what is kept under an identity: `write` completes a folder, if there is none yet, and `kept` opens it.

    Raises:
        EtlrunError: What `write` raises; the folder can't be written, or a file of `stamps` has changed meanwhile.
    """
    parent = folder_of(dataset.dir)
    key = parent, identity, (*stamps.items(),)  # arrays are mapped where they are: another file is another
    if key not in _kept:
        folder = parent / f"rows-{identity}"
        _kept[key] = _opened(folder, dataset, kept) or _made(folder, dataset, stamps, write, kept)
        _kept[key].stamps = stamps
    return _kept[key]


def kept_before(dataset: Rows, identity: str) -> Kept | None:
    """Return what is kept under an identity; None if nothing is, or it is not complete.

    Raises:
        WorldError: It can't be read.
    """
    return _opened(folder_of(dataset.dir) / f"rows-{identity}", dataset, Kept)


def stamps_of(files: dict[str, list[str]], kind: str = "a table") -> dict[str, Stamp]:
    """Return the stamps of all files by path; raise `EtlrunError` for those that can't be read, which are a `kind`."""
    stamps, faults = {}, []
    for path in dict.fromkeys(path for paths in files.values() for path in paths):
        try:
            stamps[path] = stamp_of(path)
        except OSError as error:
            faults.append(unreadable_path(path, error, kind))
    if faults:
        raise EtlrunError(faults)
    return stamps


def contents_of(stamps: dict[str, Stamp], kind: str) -> dict[str, str]:
    """Return the hex digits of a SHA-256 of each file; raise `EtlrunError` if one can't be read, which is a `kind`."""
    try:
        return {path: (found or b"").hex() for path, found in known(stamps, sha256_of_all).items()}
    except OSError as error:
        raise EtlrunError([unreadable_path(str(error.filename), error, kind)]) from error


def _identity(dataset: Table, files: dict[str, list[str]], stamps: dict[str, Stamp]) -> str:
    """Return what determines the kept columns: the content of the files, and how they are read.

    Raises:
        EtlrunError: A file can't be read.
    """
    contents = contents_of(stamps, "a table")
    read = {name: [[Path(path).name, contents[path]] for path in paths] for name, paths in files.items()}
    how = {of.name: of.value for of in parameters(dataset) if of.name in _READ and not of.is_default}
    folders = {Path(path).parent: path for path in stamps if ".tfrecord" in path}
    names = [found for path in folders.values() if (found := names_beside(path))]
    how |= {"classes": names} if names else {}
    columns = of_folders(dataset, [path for paths in files.values() for path in paths])
    how |= {"folders": columns} if any(columns) else {}
    text = json.dumps([_FORMAT, pa.__version__.split(".")[0], read, how], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def taken_for_none(dataset: Rows, name: str) -> tuple[str, str]:
    """Return what a message says of the texts of csv and tsv that stand for none in a column of texts, and a remedy.

    Both are empty if there are none. They follow the number of rows, and the advice to leave these out.
    """
    if not isinstance(dataset, Table) or dataset.found.columns[name].feature.dtype != "string":
        return "", ""
    marks, columns = [*filter(None, dataset.missing)], dict[str, set[str]]()
    files = (opened_file(path, replace(dataset, missing=())) for paths in files_of(dataset).values() for path in paths)
    for file in (file for file in files if isinstance(file, DelimitedFile)):
        for batch in file.batches({}):
            for column, values in zip(file.names, batch.columns, strict=True):
                there = values.filter(pc.is_in(values, value_set=pa.array(marks, pa.string())))
                columns.setdefault(column, set()).update(there.unique().to_pylist())
    if not (found := columns.pop(name, None)):
        return "", ""
    texts = " and ".join(sorted(found))
    others = [column for column, of in columns.items() if of & found]
    remedy = (
        f"write another text for it, since {others[0]} has it for none, too"
        if others
        else f"set {override_of_texts('dataset.missing', (mark for mark in dataset.missing if mark not in found))}"
    )
    return f", since {texts} stand{'s' * (len(found) == 1)} for none", f", or, if that is a value, {remedy}"


def _opened(folder: Path, dataset: Rows, kept: Callable[[Path], Kept]) -> Kept | None:
    """Return the columns of a folder; None if it is not there, or not complete.

    Raises:
        WorldError: It can't be read, as one that is of another user alone.
    """
    try:
        return kept(folder)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    except OSError as error:
        remedy = f"ask who wrote them to let others read them, or set {dataset.key('dir')} to another folder"
        raise _unusable(dataset, folder, error, "columns that this user may read", remedy) from error


def _made(
    folder: Path, dataset: Rows, stamps: dict[str, Stamp], write: Callable[[Path], None], kept: Callable[[Path], Kept]
) -> Kept:
    """Write a folder and open it; another process that does so is waited for."""
    lock = Lock(folder.with_name(f"{folder.name}.lock"))
    filling = folder.with_suffix(".filling")
    try:
        lock.acquire(timeout_s=_LONGEST_S)
        try:
            if (found := _opened(folder, dataset, kept)) is not None:
                return found
            for left in (filling, folder):  # of a process that was killed, or of a file that is not complete
                shutil.rmtree(left, ignore_errors=True)
                if os.path.lexists(left):
                    raise _not_removed(dataset, left)
            filling.mkdir(parents=True)
            write(filling)
            require_unchanged(stamps)
            filling.rename(folder)
            return kept(folder)
        finally:
            shutil.rmtree(filling, ignore_errors=True)
            lock.release()
    except OSError as error:
        expected = "a folder that can be written to, with space for the columns"
        remedy = f"set {dataset.key('dir')} to another folder, or free disk space"
        raise _unusable(dataset, folder.parent, error, expected, remedy) from error


def _unusable(dataset: Rows, folder: Path, error: OSError, expected: str, remedy: str) -> WorldError:
    """Return the error for a folder of kept columns with the system's reason; `folder` if that names no file."""
    return WorldError(dataset.key("dir"), f"{error.filename or folder}: {error.strerror or error}", expected, remedy)


def _not_removed(dataset: Rows, left: Path) -> WorldError:
    """Return the error for what was left unfinished, as by a killed process, and can't be removed."""
    try:
        owner = left.owner()
    except (KeyError, OSError):
        owner = "another user"
    return WorldError(
        dataset.key("dir"),
        f"{left} of {owner}, which is not complete",
        "one that this user may remove",
        f"ask {owner} to remove it, or set {dataset.key('dir')} to another folder",
    )


def write_table(folder: Path, identity: str, dataset: Table, paths: dict[str, list[str]]) -> None:
    """Read the files twice, for the types of their columns and for their rows, and write these."""
    total = sum(Path(path).stat().st_size for of in paths.values() for path in of)
    with progress() as begin, _telling(begin, "types", total) as advance:
        tables = opened(dataset, paths, advance)
    rows, file_rows = dict.fromkeys(paths, 0), list[int]()
    writer = Writer(folder, tables.schema)
    try:
        with progress() as begin, _telling(begin, "rows", total) as advance:
            for split, files in tables.files.items():
                for file, batches in each_read(files, tables.read):
                    before = rows[split]
                    for batch in batches:
                        writer.add(batch)
                        rows[split] += batch.num_rows
                        advance(file)
                    file_rows.append(rows[split] - before)
                if not rows[split]:
                    raise WorldError(
                        ", ".join(paths[split]),
                        f"no rows for {split}",
                        "at least one row",
                        "write the files again, or choose others",
                    )
        _require_exact(writer.columns, tables)
        writer.finish(
            rows=rows,
            identity=identity,
            title=dataset.title,
            notes=tables.notes,
            file_rows=file_rows,
            left_out=tables.left_out,
            of_folders=tables.of_folders,
        )
    finally:
        writer.close()


def _require_exact(columns: Mapping[str, Column], tables: Tables) -> None:
    """Raise `EtlrunError` for integers that a column with missing values, of floats, would round."""
    faults = [
        Fault(
            f"dataset.columns.{name}",
            f"missing values, and integers from {column.feature.low:.0f} to {column.feature.high:.0f}",
            "integers below 2**53 where some are missing, since these are read as floats",
            f"set {override('dataset.columns', name, 'numbers')} for rounded floats"
            if column.feature.is_sequence
            else f"set {override('dataset.columns', name, 'text')} for a code, or number for a rounded float",
        )
        for name, column in columns.items()
        if tables.kinds[name] in ("integer", "integers")
        and column.missing
        and max(abs(column.feature.low or 0), abs(column.feature.high or 0)) >= _EXACT
    ]
    if faults:
        raise EtlrunError(faults)


@contextmanager
def _telling(begin: Begin, what: str, total: int) -> Iterator[Callable[[TableFile], None]]:
    """Yield a function that is told each file that has been read further, and moves a bar of megabytes."""
    done: dict[str, int] = {}
    read, advance = 0, begin(f"Reading {what} (MB)", max(total // _MB, 1))

    def tell(file: TableFile) -> None:
        nonlocal read
        before, read = read, read + file.position - done.get(file.path, 0)
        done[file.path] = file.position
        if read // _MB > before // _MB:
            advance(read // _MB - before // _MB)

    yield tell


def require_unchanged(stamps: dict[str, Stamp]) -> None:
    """Raise `WorldError` if a file was changed while it was read."""
    for path, stamp in stamps.items():
        if stamp_of(path) != stamp:
            raise WorldError(
                path, "a file that was changed while it was read", "one that stays", "run the command again"
            )
