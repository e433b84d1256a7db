"""Columns in files of a folder, which are mapped into memory: written once for each content, and read by number."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import weakref
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from etlrun.cache.store import folder_of
from etlrun.remote.copies import name_of
from etlrun.sources.content import Stamp, digest, known, sha256_of_all, stamp_of
from etlrun.sources.rows.folders import FACTS
from etlrun.stages.flow import MISSING, MISSING_TIME, Feature
from etlrun.stages.rows import MOST_COUNTED, Column, Known, Rows
from etlrun.system.errors import EtlrunError, WorldError, refuse, unreadable_path
from etlrun.system.files import Lock, sync, write_atomically

Array = npt.NDArray[Any]
_Remembered = TypeVar("_Remembered")
_KNOWN = TypeAdapter(Known)
_DTYPES = {"missing": "bool", "ends": "int64", "text": "uint8", "codes": "int32"}
"""Types of files by their kinds; that of values is kept."""
_AS_FLOATS = {"bool": pa.float64(), "large_list<item: int64>": pa.large_list(pa.float64())}
"""Types of columns with missing values, of those that other values than floats can't stand for."""
_OF_NUMPY = {"double": "float64", "timestamp[us]": "int64", "large_string": "uint8", "large_binary": "uint8"}
"""NumPy's names of the types of values that Arrow names otherwise."""


class KeptColumns:
    """Columns that are kept in a folder. Its functions may be called by several threads at once.

    Attributes:
        folder: The folder.
        known: What is known of the columns.
        divided: Rows of their splits, by how they are split.
        stamps: Files that they were read from, by path.
    """

    def __init__(self, folder: Path) -> None:
        """Open the columns of a folder; raise `OSError` if it is missing, `ValueError` if a file is not complete."""
        self.folder, self.divided, self._files = folder, dict[str, Any](), dict[str, Array]()
        self._arrows = dict[str, pa.Array]()  # without copies
        self.stamps: dict[str, Stamp] = {}
        use = os.open(folder / FACTS, os.O_RDONLY)
        weakref.finalize(self, os.close, use)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(use, fcntl.LOCK_SH)  # released when this object, or the process, ends
        with contextlib.suppress(OSError):  # another user's columns keep their time
            os.utime(folder / FACTS)
        held = json.loads((folder / FACTS).read_text())
        sizes, self._dtypes = held["files"], held.get("dtypes", [])
        for name, size in sizes.items():
            if (found := (folder / name).stat().st_size) != size:
                raise ValueError(f"{folder / name} has {found} bytes instead of {size}")
        self.known = _KNOWN.validate_python({**held, "held_bytes": sum(sizes.values()), "folder": str(folder)})
        self._places = {name: place for place, name in enumerate(self.known.columns)}

    def take(self, name: str, numbers: Array) -> Array:
        """Return the values of a column in rows by number; texts as bytes, and lists as arrays, of dtype object."""
        return as_arrays(self.arrow(name, numbers), self.known.columns[name].feature.dtype)

    @cached_property
    def ends(self) -> list[int]:
        """Numbers of the rows behind the last one of each file; none if a file has all rows."""
        return [*accumulate(self.known.file_rows)]

    def place(self, row: int) -> tuple[str, int]:
        """Return the path or URL of the file of a row, and its number there."""
        file = bisect(self.ends, row)
        return name_of([*self.stamps][file]), row - (self.ends[file - 1] if file else 0)

    def has_lists(self, name: str) -> bool:
        """Return whether the values of a column are lists of different lengths."""
        return self.known.columns[name].feature.is_sequence

    def file(self, name: str, kind: str) -> tuple[Path, str] | None:
        """Return the path and the dtype of a file with an item for each row: `values`, which are `missing`, or `codes`.

        Codes are those of `words`. Values of lists are one after the other, and `ends` says where each list ends. None
        if the column has no such file.
        """
        key = f"{self._places[name]}.{kind}"
        path = self.folder / f"{key}.bin"
        is_there = path.exists() and (kind != "missing" or self.known.columns[name].missing > 0)
        return (path, self._dtype(key)) if is_there else None

    def words(self, name: str) -> Array:
        """Return the texts, as bytes, by their codes; the first one is for what is missing."""
        found: Array = self._texts(len(self._places) + self._places[name]).to_numpy(zero_copy_only=False)
        return np.concatenate([np.array([MISSING], object), found])

    def arrow(self, name: str, numbers: Array | None = None) -> pa.Array:
        """Return a column, whole or in rows by number, text as `large_binary`; null where a value is missing."""
        if name not in self._arrows:
            place = self._places[name]
            mask = self._mapped(place, "missing") if self.known.columns[name].missing else None
            if self.known.columns[name].feature.dtype == "string":
                self._arrows[name] = self._texts(place, mask)
            else:
                found = pa.array(self._mapped(place, "values"), mask=mask, from_pandas=False)
                if self.has_lists(name):
                    found = pa.LargeListArray.from_arrays(self._mapped(place, "ends"), found)
                self._arrows[name] = found
        found = self._arrows[name] if numbers is None else self._arrows[name].take(pa.array(numbers))
        return found.cast(_AS_FLOATS.get(str(found.type), found.type)) if self.known.columns[name].missing else found

    def _texts(self, place: int, missing: Array | None = None) -> pa.LargeBinaryArray:
        there = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
        buffers = [pa.py_buffer(self._mapped(place, kind)) for kind in ("ends", "text")]
        count = len(self._mapped(place, "ends")) - 1
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [there, *buffers])

    def _mapped(self, place: int, kind: str) -> Array:
        key = f"{place}.{kind}"
        if key not in self._files:
            path, dtype = self.folder / f"{key}.bin", self._dtype(key)
            self._files[key] = np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)
        return self._files[key]

    def _dtype(self, name: str) -> str:
        place, kind = name.split(".")
        return _DTYPES.get(kind) or str(self._dtypes[int(place)])


def as_arrays(found: pa.Array, dtype: str) -> np.ndarray:
    """Return values as NumPy has them: texts as bytes, and lists as arrays, of dtype object.

    One that is missing is NaN, MISSING in texts, MISSING_TIME in times, and no item in lists.
    """
    if pa.types.is_large_list(found.type):
        ends = np.cumsum(pc.list_value_length(found).fill_null(0))
        items, lists = found.flatten().to_numpy(zero_copy_only=False), np.empty(len(found), object)
        lists[:] = np.split(items.astype(dtype, copy=False), ends[:-1])
        return lists
    if found.null_count and dtype in ("string", "int64"):
        found = found.fill_null(MISSING if dtype == "string" else MISSING_TIME)
    values: np.ndarray = found.to_numpy(zero_copy_only=False)
    return values if dtype == "string" else values.astype(dtype)  # a copy, which may be written to


def remembered(
    folder: Path, name: str, key: list[Any], made: Callable[[], Any], read: Callable[[Any], _Remembered]
) -> _Remembered:
    """Return what was `made` before for a key, and is kept beside columns as JSON, as `read` takes it.

    It is made again if it isn't there, is damaged, or has another form.
    """
    path = folder / f"{name}-{digest(key)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return read(json.loads(path.read_text()))
    text = json.dumps(made())
    with contextlib.suppress(OSError):
        write_atomically(path, text)
    return read(json.loads(text))


def lacking(values: pa.Array) -> pa.Array:
    """Return whether each value of a column is missing, or, of lists, any of its items."""
    if not pa.types.is_nested(values.type):
        return values.is_null()
    parents = pc.list_parent_indices(values).filter(values.flatten().is_null())
    return pc.is_in(pa.array(np.arange(len(values))), value_set=parents)


def write_facts(folder: Path, columns: Mapping[str, Column], files: Sequence[Path], **others: Any) -> None:
    """Complete a folder, whose `files` are written, with what is known of its columns; `others` are of `Known`."""
    for path in files:
        sync(path)
    held = {
        "columns": {name: dataclasses.asdict(column) for name, column in columns.items()},
        "files": {path.name: path.stat().st_size for path in files},
        **others,
    }
    write_atomically(folder / FACTS, json.dumps(held, indent=1))
    sync(folder)


MOST_CODED = 100_000
"""Different texts of a column up to which its rows are kept as codes of texts, too."""


_ROWS, _BYTES = 16_384, 8_000_000
"""Rows, and bytes of them, that are written at once, if they come in smaller batches."""


class KeptWriter:
    """Writes columns to a folder, which `finish` completes."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        """Begin the columns of a schema.

        Its types are int64, float64, bool, timestamp[us], large_binary of images, large_string, which with metadata
        are joined lists or paths of images, and large_list of int32, int64 or float64.
        """
        self._folder, self._names, self._files = folder, schema.names, contextlib.ExitStack()
        self._schema, self._held, self._rows, self._bytes = schema, list[pa.RecordBatch](), 0, 0
        self._columns = [_WrittenColumn(partial(self._opened, place), field) for place, field in enumerate(schema)]

    def _opened(self, place: int, kind: str) -> BinaryIO:
        return self._files.enter_context((self._folder / f"{place}.{kind}.bin").open("wb"))

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch of the schema; those of small ones together, since each takes as long."""
        self._held.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= _ROWS or self._bytes >= _BYTES:
            self._write_held()

    def _write_held(self) -> None:
        held = pa.Table.from_batches(self._held, self._schema).combine_chunks()
        self._held, self._rows, self._bytes = [], 0, 0
        for batch in held.to_batches():
            for column, values in zip(self._columns, batch.columns, strict=True):
                column.add(values)

    @property
    def columns(self) -> dict[str, Column]:
        """What is known of the columns so far."""
        self._write_held()
        return {name: column.column for name, column in zip(self._names, self._columns, strict=True)}

    def finish(self, **others: Any) -> None:
        """Complete the folder with what is known of its columns; `others` are of `Known`, and a `title`."""
        self._write_held()
        self.close()
        for place, column in enumerate(self._columns):
            if column.words is not None:
                _Texts(partial(self._opened, len(self._columns) + place)).add(column.words)
                self.close()  # since a process may have few files open, and a table many columns
            if not column.column.missing:
                (self._folder / f"{place}.missing.bin").unlink()
        files = sorted(self._folder.glob("*.bin"))
        write_facts(self._folder, self.columns, files, dtypes=[of.dtype for of in self._columns], **others)

    def close(self) -> None:
        """Close the files; what `finish` has not completed is no folder of columns."""
        self._files.close()


_Open = Callable[[str], BinaryIO]
"""A function that opens a file of a column by its kind."""


def _write(file: BinaryIO, values: Array) -> None:
    file.write(np.ascontiguousarray(values).data)  # `tofile` would not say that a disk is full


class _Ends:
    """The places of the ends of texts or of lists that are being written, from 0."""

    def __init__(self, opened: _Open) -> None:
        self._file, self._end = opened("ends"), 0
        _write(self._file, np.zeros(1, np.int64))

    def add(self, lengths: pa.Array) -> None:
        ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int64) + self._end
        _write(self._file, ends)
        self._end = int(ends[-1]) if len(ends) else self._end


class _Texts:
    """Texts that are being written, and the places of their ends."""

    def __init__(self, opened: _Open) -> None:
        self._ends, self._text = _Ends(opened), opened("text")

    def add(self, values: pa.Array) -> None:
        texts = values.fill_null(b"" if pa.types.is_large_binary(values.type) else "")
        self._ends.add(pc.binary_length(texts))
        start, offsets = texts.offset, np.frombuffer(texts.buffers()[1], np.int64)
        if texts.buffers()[2] is not None:
            begin, stop = int(offsets[start]), int(offsets[start + len(texts)])
            self._text.write(memoryview(texts.buffers()[2])[begin:stop])


class _Codes:
    """Codes of texts that are being written: places among `words`, from 1; these are None beyond `MOST_CODED`."""

    def __init__(self, opened: _Open) -> None:
        self.words: pa.Array | None = pa.array([], pa.large_string())
        self._file = opened("codes")

    def add(self, values: pa.Array) -> None:
        if self.words is None:
            return
        found = pc.index_in(values, value_set=self.words)
        if len(new := values.filter(found.is_null()).drop_null().unique()):
            self.words = pa.concat_arrays([self.words, new])
            found = pc.index_in(values, value_set=self.words)
        if len(self.words) > MOST_CODED:
            self.words = None
            self._file.close()
            Path(self._file.name).unlink()
            return
        _write(self._file, found.fill_null(-1).to_numpy(zero_copy_only=False) + np.int32(1))


class _WrittenColumn:
    """A column that is being written, and what is known of it so far."""

    def __init__(self, opened: _Open, field: pa.Field) -> None:
        kind, metadata = field.type, field.metadata or {}
        self._is_joined, self._is_path = b"items" in metadata, b"file" in metadata
        self._lists = _Ends(opened) if pa.types.is_large_list(kind) else None
        kind = kind if self._lists is None else kind.value_type
        self._is_image = pa.types.is_large_binary(kind)
        self._is_text, self._is_time = self._is_image or pa.types.is_large_string(kind), pa.types.is_timestamp(kind)
        self.dtype = _OF_NUMPY.get(str(kind), str(kind))  # before 26, pyarrow's own function for it imports pandas
        self._mask = opened("missing")
        self._values = None if self._is_text else opened("values")
        self._codes = _Codes(opened) if self._is_text and not self._is_image else None
        self._texts = _Texts(opened) if self._is_text else None
        self._missing = 0
        self._distinct: pa.Array | None = pa.array([], pa.int64() if self._is_time else kind)
        self._ends: list[float] = []

    def add(self, values: pa.Array) -> None:
        if self._lists is not None:
            self._lists.add(pc.list_value_length(values).fill_null(0))
            values = values.flatten()
        missing = pc.is_null(values, nan_is_null=True) if self.dtype == "float64" else values.is_null()
        self._missing += pc.sum(missing).as_py() or 0
        _write(self._mask, missing.to_numpy(zero_copy_only=False))
        if self._texts is not None:
            self._texts.add(values)
        if self._codes is not None:
            self._codes.add(values)
        if self._values is not None:
            if self._is_time:
                values = values.cast(pa.int64())  # Python has no times beyond the year 9999
            numbers = values.fill_null(np.nan if self.dtype == "float64" else False if self.dtype == "bool" else 0)
            _write(self._values, numbers.to_numpy(zero_copy_only=False))
            there = values.filter(pc.invert(missing))
            if self._distinct is not None:
                plain = pc.add(there, 0.0) if self.dtype == "float64" else there  # -0.0 is 0.0
                self._distinct = pc.unique(pa.concat_arrays([self._distinct, pc.unique(plain)]))
                self._distinct = self._distinct if len(self._distinct) <= MOST_COUNTED else None
            if not self._is_time and self.dtype != "bool" and len(there):
                ends = pc.min_max(there)
                self._ends = [min([*self._ends[:1], ends["min"].as_py()]), max([*self._ends[1:], ends["max"].as_py()])]

    @property
    def words(self) -> pa.Array | None:
        """The texts that codes stand for; None if there are no codes."""
        return self._codes.words if self._codes else None

    @property
    def column(self) -> Column:
        """What is known of the column."""
        has_missing, is_image = self._missing > 0, self._is_image or self._is_path
        low, high = map(float, self._ends) if self._ends else (None, None)
        dtype = "string" if self._is_text else "float64" if has_missing and not self._is_time else self.dtype
        feature = Feature(
            dtype=dtype,
            shape=() if self._lists is None else (None,),
            format="image" if is_image else "text" if self._is_text else "timestamp" if self._is_time else None,
            low=low,
            high=high,
            has_missing=has_missing,
        )
        different = self.words if self._is_text else self._distinct
        distinct = None if different is None or len(different) > MOST_COUNTED else len(different)
        return Column(
            feature=feature, missing=self._missing, distinct=distinct, is_joined=self._is_joined, is_path=self._is_path
        )


_LONGEST_S = 3600.0
_kept: dict[tuple[Path, str, tuple[tuple[str, Stamp], ...]], KeptColumns] = {}


def kept_as(
    dataset: Rows,
    identity: str,
    stamps: dict[str, Stamp],
    write: Callable[[Path], None],
    kept: Callable[[Path], KeptColumns],
) -> KeptColumns:
    """Return what is kept under an identity: `write` completes a folder, if there is none yet, and `kept` opens it.

    Raises:
        EtlrunError: What `write` raises; the folder can't be written, or a file of `stamps` has changed meanwhile.
    """
    parent = folder_of(dataset.dir)
    key = parent, identity, (*stamps.items(),)  # arrays are mapped where they are: another file is another
    if key not in _kept:
        folder = parent / f"rows-{identity}"
        _kept[key] = if_complete(folder, dataset, kept) or _made(folder, dataset, stamps, write, kept)
        _kept[key].stamps = stamps
    return _kept[key]


def stamps_of(paths: Iterable[str], kind: str) -> dict[str, Stamp]:
    """Return the stamps of all files by path; raise `EtlrunError` for those that can't be read, which are a `kind`."""
    stamps, faults = {}, []
    for path in dict.fromkeys(paths):
        try:
            stamps[path] = stamp_of(path)
        except OSError as error:
            faults.append(unreadable_path(path, error, kind))
    refuse(faults, EtlrunError)
    return stamps


def contents_of(paths: Iterable[str], kind: str) -> tuple[dict[str, Stamp], dict[str, str]]:
    """Return stamps of all files, and hex digits of a SHA-256 of each; raises as `stamps_of` does."""
    stamps = stamps_of(paths, kind)
    try:
        return stamps, {path: (found or b"").hex() for path, found in known(stamps, sha256_of_all).items()}
    except OSError as error:
        raise EtlrunError([unreadable_path(str(error.filename), error, kind)]) from error


def if_complete(folder: Path, dataset: Rows, kept: Callable[[Path], KeptColumns]) -> KeptColumns | None:
    """Return the columns of a folder; None if it is not there or complete; raise `WorldError` if it can't be read."""
    try:
        return kept(folder)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    except OSError as error:
        remedy = f"ask who wrote them to let others read them, or set {dataset.key('dir')} to another folder"
        raise _unusable(dataset, folder, error, "columns that this user may read", remedy) from error


def _made(
    folder: Path,
    dataset: Rows,
    stamps: dict[str, Stamp],
    write: Callable[[Path], None],
    kept: Callable[[Path], KeptColumns],
) -> KeptColumns:
    """Write a folder and open it; another process that does so is waited for."""
    lock = Lock(folder.with_name(f"{folder.name}.lock"))
    filling = folder.with_suffix(".filling")
    try:
        lock.acquire(timeout_s=_LONGEST_S)
        try:
            if (found := if_complete(folder, dataset, kept)) is not None:
                return found
            for left in (filling, folder):  # of a process that was killed, or of a file that is not complete
                if left.exists():
                    shutil.rmtree(left)
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


def require_unchanged(stamps: dict[str, Stamp]) -> None:
    """Raise `WorldError` if a file was changed while it was read."""
    for path, stamp in stamps.items():
        if stamp_of(path) != stamp:
            raise WorldError(
                path, "a file that was changed while it was read", "one that stays", "run the command again"
            )
