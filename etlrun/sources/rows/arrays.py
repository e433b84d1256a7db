"""Arrays of NumPy as rows: `.npy` are mapped into memory where they are, those of an `.npz` once they are unpacked."""

from __future__ import annotations

import dataclasses
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from etlrun.cache.store import folder_of
from etlrun.remote.copies import Copies, copied, named_by_url
from etlrun.remote.objects import Object, UnreachableError, listed
from etlrun.sources.records import digest
from etlrun.sources.rows.kept import Array, Kept, contents_of, kept_as, require_unchanged, stamps_of, write_facts
from etlrun.sources.rows.kinds import composed, composed_note
from etlrun.sources.rows.source import RowsSource
from etlrun.stages.flow import ITEM_BYTES, Feature
from etlrun.stages.paths import is_remote
from etlrun.stages.rows import MOST_COUNTED, Arrays, Column
from etlrun.system.errors import EtlrunError, Fault, unreadable_path
from etlrun.system.hidden import is_closed

_FORMAT = 2
"""Version of what is known of arrays, and of the code that reads them."""
_CHUNK_BYTES = 16_000_000
_ARCHIVE = "an archive of arrays, as np.savez writes it"
_EXPECTED = "an array that NumPy has saved as .npy, of numbers, truth values or texts"


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
    copies = copied(objects, Copies(folder_of(dataset.dir), dataset.storage or {}))
    return {name: copies.get(path, str(Path(path).expanduser())) for name, path in dataset.paths.items()}


class KeptArrays(Kept):
    """Arrays that are mapped into memory; the folder has what is known of them, and members of an `.npz`."""

    def __init__(self, files: Mapping[str, str], folder: Path) -> None:
        """Open the arrays, of which `files` has the paths by name; those without a path are in the folder."""
        super().__init__(folder)
        places = {name: str(folder / f"{place}.npy") for place, name in enumerate(self.known.columns)}
        self._arrays = {name: _mapped(files.get(name, path)) for name, path in places.items()}
        self.known = dataclasses.replace(self.known, held_bytes=sum(of.nbytes for of in self._arrays.values()))

    def take(self, name: str, numbers: Array) -> Array:
        values = np.asarray(self._arrays[name][numbers])
        if values.dtype.kind in "SU":
            found: Array = composed(texts_of(values)).cast(pa.large_binary()).to_numpy(zero_copy_only=False)
            return found
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def arrow(self, name: str) -> pa.Array:
        """Return a whole column, with a list for each row if its array has several dimensions; NaN is null."""
        values = self.take(name, np.arange(len(self._arrays[name])))
        flat = values.reshape(-1)
        if values.dtype == object:
            found = pa.array(flat.tolist(), pa.large_binary())
        else:
            found = pa.array(flat, mask=np.isnan(flat) if flat.dtype.kind == "f" else None)
        return found if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(found, flat.size // len(values))


def texts_of(values: np.ndarray) -> pa.Array:
    """Return texts, of which bytes are in UTF-8."""
    return pa.array(
        (np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values).tolist(), pa.large_string()
    )


def _mapped(path: str) -> Array:
    found: Array = np.load(Path(path).expanduser(), mmap_mode="r", allow_pickle=False)
    return found


class ArraysSource(RowsSource):
    """Rows whose columns are arrays of NumPy."""

    @classmethod
    def files(cls, dataset: Arrays) -> dict[str, list[str]]:
        return {"train": [*arrays_of(dataset).values()]}

    @classmethod
    def is_there(cls, dataset: Arrays) -> bool:
        is_open, paths = not is_closed(dataset.storage), dataset.paths.values()
        return all(is_open if is_remote(path) else Path(path).expanduser().exists() for path in paths)

    @classmethod
    @named_by_url()
    def opened(cls, dataset: Arrays) -> Kept:
        paths = arrays_of(dataset)
        stamps = stamps_of({"train": [*paths.values()]}, "an array")
        contents = contents_of(stamps, "an array")
        read = {name: contents[path] for name, path in paths.items()}
        identity = digest([_FORMAT, "arrays", read])
        write, files = partial(_write, dataset, identity, paths), {} if dataset.is_archive else paths
        kept = kept_as(dataset, identity, stamps, write, partial(KeptArrays, files))
        require_unchanged(stamps)  # between the digest and the mapping
        return kept


def _write(dataset: Arrays, identity: str, files: Mapping[str, str], folder: Path) -> None:
    """Write what is known of the arrays in `files` to a folder, and the members of an archive."""
    paths = dict(_unpacked(files[""], folder)) if dataset.is_archive else files
    where = {name: f"{dataset.files}, {name}" if dataset.is_archive else dataset.paths[name] for name in paths}
    found = {name: _opened(path, where[name]) for name, path in paths.items()}
    arrays = {name: of for name, of in found.items() if not isinstance(of, Fault)}
    faults = [of for of in found.values() if isinstance(of, Fault)] or [*_of_lengths(dataset.key("files"), arrays)]
    if faults:
        raise EtlrunError(faults)
    _finish(folder, arrays, where, identity=identity, title=dataset.title)


def write_arrays(folder: Path, arrays: Mapping[str, Array], *, where: str, identity: str, title: str) -> None:
    """Write arrays by name to a folder of `KeptArrays`; `where` stands before their names in messages.

    Raises:
        EtlrunError: An array is no column, or they differ in length.
    """
    places = {name: f"{where}{name}" for name in arrays}
    faults = [fault for name, values in arrays.items() if (fault := _unfit(values, places[name])) is not None]
    if faults := faults or [*_of_lengths(where.rstrip(", "), arrays)]:
        raise EtlrunError(faults)
    for place, values in enumerate(arrays.values()):
        np.save(folder / f"{place}.npy", values, allow_pickle=False)
    _finish(folder, arrays, places, identity=identity, title=title)


def _finish(folder: Path, arrays: Mapping[str, Array], where: Mapping[str, str], *, identity: str, title: str) -> None:
    columns = {name: _column(values, where[name]) for name, values in arrays.items()}
    rows = {"train": len(next(iter(arrays.values())))}
    notes = [composed_note(name) for name, values in arrays.items() if values.dtype.kind in "SU" and _differ(values)]
    write_facts(folder, columns, sorted(folder.glob("*.npy")), title=title, identity=identity, rows=rows, notes=notes)


def _differ(texts: Array) -> bool:
    """Return whether any texts are not in the form in which they are taken."""
    step = max(1, _CHUNK_BYTES // max(texts.itemsize, 1))
    parts = (texts_of(np.asarray(texts[first : first + step])) for first in range(0, len(texts), step))
    return any(not composed(part).equals(part) for part in parts)


def _unpacked(path: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each array of an archive, and the path to which it has been unpacked."""
    try:
        with zipfile.ZipFile(Path(path).expanduser()) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            for place, name in enumerate(names):
                target = folder / f"{place}.npy"
                with archive.open(name) as member, target.open("wb") as file:
                    shutil.copyfileobj(member, file, _CHUNK_BYTES)
                yield name.removesuffix(".npy"), str(target)
    except (zipfile.BadZipFile, EOFError) as error:
        raise EtlrunError([_fault(path, f"no complete .npz: {error}", _ARCHIVE)]) from error
    if not names:
        raise EtlrunError([_fault(path, "no arrays", _ARCHIVE)])


def _fault(where: str, found: str, expected: str = _EXPECTED, remedy: str = "write the file again") -> Fault:
    return Fault(where, found, expected, remedy)


def _opened(path: str, where: str) -> Array | Fault:
    """Return an array, or why it can't be a column."""
    try:
        with Path(path).expanduser().open("rb") as file:
            begins = file.read(6)
        if begins != b"\x93NUMPY":
            return _fault(
                where,
                "an empty file" if not begins else "a pickle" if begins[:1] == b"\x80" else "another file",
                remedy="save the array by np.save(path, array, allow_pickle=False)",
            )
        values = _mapped(path)
    except OSError as error:
        return unreadable_path(where, error, "an array")
    except ValueError as error:
        if "object" in str(error).lower():
            remedy = "convert it, as by array.astype(float) or array.astype(str), and save it again"
            return _fault(where, "an array of Python objects, which may run code when it is read", remedy=remedy)
        return _fault(where, f"an array that is cut off or damaged: {error}")
    return _unfit(values, where) or values


def _unfit(values: Array, where: str) -> Fault | None:
    """Return why the values of an array are no column; None if they are."""
    if not values.ndim or not values.size:
        return _fault(where, f"an array of shape {values.shape}", "at least one row, and one value in each")
    if values.dtype.kind in "SU" and values.ndim == 1:
        return None
    if values.dtype.newbyteorder("=").name in ITEM_BYTES:
        return None
    return _fault(
        where,
        f"values of type {values.dtype}, of {values.ndim} dimensions",
        f"texts of one dimension, or {', '.join(ITEM_BYTES)}",
        "convert it, and save it again",
    )


def _of_lengths(where: str, arrays: Mapping[str, Array]) -> Iterator[Fault]:
    lengths = {name: len(values) for name, values in arrays.items()}
    if len({*lengths.values()}) > 1:
        found = ", ".join(f"{length:,} of {name}" for name, length in lengths.items())
        yield _fault(where, f"{found}", "as many rows in each array", "save them again")


def _undecodable(some: Array, where: str, first: int) -> Fault | None:
    """Return the fault of the first text that is not Unicode, which is bytes of another encoding; None if all are."""
    if some.dtype.kind not in "SU":
        return None
    try:
        np.char.decode(some, "utf-8") if some.dtype.kind == "S" else np.char.encode(some, "utf-8")
    except UnicodeError:
        if len(some) > 1:
            half = len(some) // 2
            return _undecodable(some[:half], where, first) or _undecodable(some[half:], where, first + half)
        return _fault(f"{where}, row {first:,}", f"{some[0].item()!r}", "text in UTF-8", "decode it, and save it again")
    return None


def _column(values: Array, where: str) -> Column:
    """Return what is known of an array; raise `EtlrunError` for a value without an end."""
    missing, ends = 0, list[float]()
    distinct: set[Any] | None = set() if values.ndim == 1 else None
    step = max(1, _CHUNK_BYTES // max(values[:1].nbytes, 1))
    for first in range(0, len(values), step):
        some = np.asarray(values[first : first + step])
        if some.dtype.kind == "f":
            rows = np.isinf(some).reshape(len(some), -1).any(1)
            if rows.any():
                raise EtlrunError(
                    [
                        _fault(
                            f"{where}, row {first + int(rows.argmax()):,}",
                            "an infinite value",
                            "finite numbers, or NaN where one is missing",
                        )
                    ]
                )
            missing += int(np.isnan(some).reshape(len(some), -1).any(1).sum())
            some = some[~np.isnan(some)]
        elif (fault := _undecodable(some, where, first)) is not None:
            raise EtlrunError([fault])
        if distinct is not None:
            distinct |= set(np.unique(some).tolist())
            distinct = distinct if len(distinct) <= MOST_COUNTED else None
        if some.dtype.kind in "iuf" and some.size:
            ends = [min([*ends[:1], float(some.min())]), max([*ends[1:], float(some.max())])]
    low, high = ends or (None, None)
    is_text = values.dtype.kind in "SU"
    dtype = "string" if is_text else values.dtype.newbyteorder("=").name
    feature = Feature(
        dtype=dtype,
        shape=values.shape[1:],
        format="text" if is_text else None,
        low=low,
        high=high,
        has_missing=missing > 0,
    )
    return Column(feature=feature, missing=missing, distinct=None if distinct is None else len(distinct))
