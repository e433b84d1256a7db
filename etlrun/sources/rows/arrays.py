"""Arrays as rows: `.npy` are mapped where they are, those of an `.npz` once they are unpacked; and functions as rows.

What a function of an installed package returns is kept once for the source of its module.
"""

import dataclasses
import hashlib
import inspect
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from etlrun.cache.store import folder_of
from etlrun.remote.copies import Copies, copied, named_by_url
from etlrun.remote.objects import Object
from etlrun.sources.content import digest
from etlrun.sources.rows.kept import Array, KeptColumns, contents_of, kept_as, require_unchanged, stamps_of, write_facts
from etlrun.sources.rows.kinds import composed, halved, works
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.rows.table import write_table
from etlrun.sources.shards import named
from etlrun.stages.flow import ITEM_BYTES, Feature
from etlrun.stages.paths import is_remote
from etlrun.stages.plugins import ROWS, stale, with_called
from etlrun.stages.rows import MOST_COUNTED, Arrays, Column, Python, Rows, Table
from etlrun.system.errors import (
    DOCS,
    ConfigError,
    EtlrunError,
    Fault,
    WorldError,
    did_you_mean,
    one_line,
    refuse,
    unreadable_path,
)
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
        found = named([url], dataset.storage, Fault(url, "0 files", "one file"), objects, faults)
        if found and found != [url]:
            remedy = "name it without * and [, or read several files as a table of Parquet"
            faults.append(Fault(url, f"a pattern of {len(found):,} files", "one file", remedy))
    refuse(faults, EtlrunError)
    copies = copied(objects, Copies(folder_of(dataset.dir), dataset.storage or {}))
    return {name: copies.get(path, str(Path(path).expanduser())) for name, path in dataset.paths.items()}


class KeptArrays(KeptColumns):
    """Arrays that are mapped into memory; the folder has what is known of them, and members of an `.npz`."""

    def __init__(self, files: Mapping[str, str], folder: Path) -> None:
        """Open the arrays, of which `files` has the paths by name; those without a path are in the folder."""
        super().__init__(folder)
        places = {name: str(folder / f"{place}.npy") for place, name in enumerate(self.known.columns)}
        self._arrays = {name: _mapped(files.get(name, path)) for name, path in places.items()}
        self.known = dataclasses.replace(self.known, held_bytes=sum(of.nbytes for of in self._arrays.values()))

    def take(self, name: str, numbers: Array) -> Array:
        return native(np.asarray(self._arrays[name][numbers]))

    def arrow(self, name: str, numbers: Array | None = None) -> pa.Array:
        """Return a column, with a list for each row if its array has several dimensions; NaN is null."""
        values = self.take(name, np.arange(len(self._arrays[name])) if numbers is None else numbers)
        flat, kind = values.reshape(-1), pa.large_binary() if values.dtype == object else None
        found = pa.array(flat, kind, mask=np.isnan(flat) if flat.dtype.kind == "f" else None)
        return found if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(found, flat.size // len(values))


def native(values: np.ndarray) -> np.ndarray:
    """Return an array whose texts are bytes, and whose numbers have the byte order of this machine."""
    if values.dtype.kind in "SU":
        return np.asarray(composed(texts_of(values)).cast(pa.large_binary()))
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def texts_of(values: np.ndarray) -> pa.Array:
    """Return texts, of which bytes are in UTF-8."""
    return pa.array(
        (np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values).tolist(), pa.large_string()
    )


def _mapped(path: str) -> Array:
    found: Array = np.lib.format.open_memmap(Path(path).expanduser(), mode="r")
    return found


class ArraysSource(RowsSource):
    """Rows whose columns are arrays of NumPy."""

    @classmethod
    def is_there(cls, dataset: Arrays) -> bool:
        is_open, paths = not is_closed(dataset.storage), dataset.paths.values()
        return all(is_open if is_remote(path) else Path(path).expanduser().exists() for path in paths)

    @classmethod
    @named_by_url()
    def opened(cls, dataset: Arrays) -> KeptColumns:
        paths = arrays_of(dataset)
        stamps, contents = contents_of(paths.values(), "an array")
        identity = digest([_FORMAT, "arrays", {name: contents[path] for name, path in paths.items()}])
        write, files = partial(_write, dataset, identity, paths), {} if dataset.is_archive else paths
        kept = kept_as(dataset, identity, stamps, write, partial(KeptArrays, files))
        require_unchanged(stamps)  # between the digest and the mapping
        return kept


def _write(dataset: Arrays, identity: str, files: Mapping[str, str], folder: Path) -> None:
    """Write what is known of the arrays in `files` to a folder, and the members of an archive."""
    paths = dict(_unpacked(files[""], folder)) if dataset.is_archive else files
    where = {name: f"{dataset.files}, {name}" if dataset.is_archive else dataset.paths[name] for name in paths}
    found = {name: _opened(path, where[name]) for name, path in paths.items()}
    _finish(folder, found, where, dataset.key("files"), title=dataset.title, identity=identity)


def write_arrays(folder: Path, arrays: Mapping[str, Array], *, where: str, identity: str, title: str) -> None:
    """Write arrays by name to a folder of `KeptArrays`; `where` stands before their names in messages.

    Raises:
        EtlrunError: An array is no column, or they differ in length.
    """
    places = {name: f"{where}{name}" for name in arrays}
    found = {name: _unfit(values, places[name]) or values for name, values in arrays.items()}
    _finish(folder, found, places, where.rstrip(", "), saves=True, title=title, identity=identity)


def _finish(
    folder: Path,
    found: Mapping[str, Array | Fault],
    where: Mapping[str, str],
    whole: str,
    *,
    saves: bool = False,
    **others: str,
) -> None:
    """Write what is known of arrays to a folder, if that `saves` them also these; raise `EtlrunError` for any fault."""
    faults = [of for of in found.values() if isinstance(of, Fault)]
    arrays = {name: of for name, of in found.items() if not isinstance(of, Fault)}
    if not faults and len({len(values) for values in arrays.values()}) > 1:
        lengths = ", ".join(f"{len(values):,} of {name}" for name, values in arrays.items())
        faults.append(_fault(whole, lengths, "as many rows in each array", "save them again"))
    refuse(faults, EtlrunError)
    for place, values in enumerate(arrays.values() if saves else ()):
        np.save(folder / f"{place}.npy", values, allow_pickle=False)
    columns = {name: _column(values, where[name]) for name, values in arrays.items()}
    rows = {"train": len(next(iter(arrays.values())))}
    write_facts(folder, columns, sorted(folder.glob("*.npy")), **others, rows=rows)


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
    try:
        values = _mapped(path)
    except OSError as error:
        return unreadable_path(where, error, "an array")
    except ValueError as error:  # objects of Python might run code when they are read
        remedy = "save the array by np.save(path, array, allow_pickle=False)"
        return _fault(
            where, f"no array, one of Python objects, or one that is cut off: {one_line(error)}", remedy=remedy
        )
    return _unfit(values, where) or values


def _unfit(values: Array, where: str) -> Fault | None:
    if not values.ndim or not values.size:
        return _fault(where, f"an array of shape {values.shape}", "at least one row, and one value in each")
    if (values.dtype.kind in "SU" and values.ndim == 1) or values.dtype.newbyteorder("=").name in ITEM_BYTES:
        return None
    return _fault(
        where,
        f"values of type {values.dtype}, of {values.ndim} dimensions",
        f"texts of one dimension, or {', '.join(ITEM_BYTES)}",
        "convert it, and save it again",
    )


def _column(values: Array, where: str) -> Column:
    """Return what is known of an array; raise `EtlrunError` for an infinite one, or no text."""
    missing, ends, is_text = 0, list[float](), values.dtype.kind in "SU"
    distinct: set[Any] | None = set() if values.ndim == 1 else None
    step = max(1, _CHUNK_BYTES // max(values[:1].nbytes, 1))
    for first in range(0, len(values), step):
        some = np.asarray(values[first : first + step])
        if some.dtype.kind == "f":
            rows = np.isinf(some).reshape(len(some), -1).any(1)
            if rows.any():
                place, expected = int(rows.argmax()), "finite numbers, or NaN where one is missing"
                raise EtlrunError([_fault(f"{where}, row {first + place:,}", "an infinite value", expected)])
            missing += int(np.isnan(some).reshape(len(some), -1).any(1).sum())
            some = some[~np.isnan(some)]
        elif is_text and (row := halved(some, works(texts_of, UnicodeError))) is not None:
            found, remedy = f"{some[row].item()!r}", "decode it, and save it again"
            raise EtlrunError([_fault(f"{where}, row {first + row:,}", found, "text in UTF-8", remedy)])
        if distinct is not None:
            distinct |= set(np.unique(some).tolist())
            distinct = distinct if len(distinct) <= MOST_COUNTED else None
        if some.dtype.kind in "iuf" and some.size:
            ends = [min([*ends[:1], float(some.min())]), max([*ends[1:], float(some.max())])]
    low, high = ends or (None, None)
    feature = Feature(
        dtype="string" if is_text else values.dtype.newbyteorder("=").name,
        shape=values.shape[1:],
        format="text" if is_text else None,
        low=low,
        high=high,
        has_missing=missing > 0,
    )
    return Column(feature=feature, missing=missing, distinct=None if distinct is None else len(distinct))


_FORMAT_OF_FUNCTIONS = 3
"""Version of how rows of functions are kept."""
_WHAT = "arrays by name, a frame, or anything with __arrow_c_stream__, such as pa.Table.from_pylist(dictionaries)"


class PythonSource(RowsSource):
    """Rows that a function of an installed package returns."""

    @classmethod
    def is_there(cls, dataset: Python) -> bool:
        return bool(dataset.entries)

    @classmethod
    def opened(cls, dataset: Python) -> KeptColumns:
        function = _function(dataset)
        stamps = stamps_of(map(inspect.getfile, (inspect.unwrap(function), function)), "a module")  # a decorator's last
        code = hashlib.sha256(b"".join(Path(path).read_bytes() for path in stamps)).hexdigest()
        identity = digest([_FORMAT_OF_FUNCTIONS, pa.__version__, dataset.of, function.__qualname__, code])

        def kept(folder: Path) -> KeptColumns:
            return KeptArrays({}, folder) if (folder / "0.npy").exists() else KeptColumns(folder)

        return kept_as(dataset, identity, stamps, partial(_write_rows, dataset, function, identity), kept)


def _function(dataset: Python) -> Callable[[], Any]:
    """Return the function of a dataset; raise `ConfigError` if no package has it, or it can't be imported."""
    found = dataset.entries
    if len(found) != 1:
        known = sorted(entry.name for entry in entry_points(group=ROWS))
        what = f"{len(found)} packages with {dataset.of}" if found else dataset.of
        expected = f"one of the entry points in {ROWS} of installed packages: {', '.join(known) or 'there are none'}"
        remedy = did_you_mean(dataset.of, known) or f"install the package, or see {DOCS}/extending.md"
        raise ConfigError([Fault(dataset.key("of"), what, expected, remedy)])
    try:
        function = found[0].load()
    except Exception as error:
        raise _fault_of(dataset, f"{type(error).__name__}: {error}", "a module that can be imported") from error
    if not inspect.isfunction(function):
        raise _fault_of(dataset, f"{function!r}", "a function without arguments")
    if other := stale(with_called(function)):
        raise _fault_of(dataset, other, "the function of its module")
    return function


def _fault_of(dataset: Python, found: str, expected: str, remedy: str = "repair the function") -> WorldError:
    return WorldError(f"{dataset.key('of')}: {dataset.of}", found, expected, remedy)


def _write_rows(dataset: Python, function: Callable[[], Any], identity: str, folder: Path) -> None:
    path, arrays = str(folder / f"{dataset.of}.arrow"), dict[str, np.ndarray]()
    try:
        made = function()
        if isinstance(made, Mapping):
            arrays = {str(name): _unmasked(dataset, name, values) for name, values in made.items()}
        else:
            _write_stream(dataset, made, path)
    except EtlrunError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {one_line(error)}"
        raise _fault_of(dataset, found, "a function that returns all rows") from error
    if not arrays and not Path(path).exists():
        raise _fault_of(dataset, "no arrays", _WHAT)
    try:
        if arrays:
            write_arrays(folder, arrays, where=f"{dataset.of}, ", title=dataset.title, identity=identity)
        else:
            given = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(Rows)}
            how = {"files": path, "columns": {}, "missing": (), "strip": False, "errors": "strict", "exclude": None}
            write_table(folder, identity, Table(**{**given, **how}), {"train": [path]})
            Path(path).unlink()
    except EtlrunError as error:
        raise EtlrunError([_renamed(dataset, fault, path) for fault in error.faults]) from error


def _renamed(dataset: Python, fault: Fault, path: str) -> Fault:
    """Return a fault of the file that rows were written to, or of an array, as one of the function."""
    where = fault.where
    for own in (path, dataset.of):
        if where == own or where.startswith(f"{own}, "):
            where = f"{dataset.key('of')}: {dataset.of}{where.removeprefix(own)}"
            break
    return dataclasses.replace(fault, where=where, remedy="repair the function")


def _unmasked(dataset: Python, name: Any, values: Any) -> np.ndarray:
    """Return an array whose masked values, if there are any, are NaN."""
    if not np.ma.is_masked(values):
        try:
            return np.asarray(values)
        except ValueError as error:
            found = f"{name}: {one_line(error)}"
            raise _fault_of(dataset, found, "an array, or lists of equal lengths") from error
    if values.dtype.kind != "f":
        found = f"{name}: masked values of type {values.dtype}"
        raise _fault_of(dataset, found, "floats, or values that are all there", "return x.astype(float).filled(np.nan)")
    return np.asarray(values.filled(np.nan))


def _write_stream(dataset: Python, made: Any, path: str) -> None:
    """Write rows to a file of Arrow."""
    index = getattr(made, "index", None)
    if hasattr(made, "reset_index") and type(index).__name__ != "RangeIndex":
        raise _fault_of(
            dataset,
            f"a frame with the index {type(index).__name__}",
            "a frame whose rows are numbered",
            "return frame.reset_index() to have it as columns, or frame.reset_index(drop=True)",
        )
    if not hasattr(made, "__arrow_c_stream__"):
        raise _fault_of(dataset, f"a value of type {type(made).__name__}", _WHAT)
    reader = pa.RecordBatchReader.from_stream(made)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
