"""Functions of installed packages as rows: what they return or yield is kept once for the source of their module."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from etlrun.sources.records import digest
from etlrun.sources.rows.arrays import KeptArrays, write_arrays
from etlrun.sources.rows.kept import Kept, kept_as, stamps_of
from etlrun.sources.rows.lines import shown
from etlrun.sources.rows.source import RowsSource
from etlrun.sources.rows.table import write_table
from etlrun.stages.plugins import ROWS
from etlrun.stages.rows import Python, Rows, Table
from etlrun.system.errors import DOCS, ConfigError, EtlrunError, Fault, WorldError, did_you_mean, one_line

_FORMAT = 3
"""Version of how rows of functions are kept."""
_AT_ONCE = 4_096
_NOT_CONVERTED = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
_LISTS = (list, tuple, np.ndarray)
_NAMES = "names of columns, which are texts"
_ROW = re.compile(r"\brow ([0-9,]*[0-9])")
_WHAT = "arrays by name, a frame, or anything with __arrow_c_stream__, or dictionaries that are yielded"


class PythonSource(RowsSource):
    """Rows that a function of an installed package returns or yields."""

    @classmethod
    def files(cls, dataset: Python) -> dict[str, list[str]]:
        function = _function(dataset)
        paths = dict.fromkeys(map(inspect.getfile, (inspect.unwrap(function), function)))  # that of a decorator is last
        return {"train": [*paths]}

    @classmethod
    def is_there(cls, dataset: Python) -> bool:
        return bool(dataset.entries)

    @classmethod
    def opened(cls, dataset: Python) -> Kept:
        function, stamps = _function(dataset), stamps_of(cls.files(dataset), "a module")
        code = b"".join(Path(path).read_bytes() for path in stamps)
        code_digest = hashlib.sha256(code).hexdigest()
        identity = digest([_FORMAT, pa.__version__, dataset.of, function.__qualname__, code_digest])
        return kept_as(dataset, identity, stamps, partial(_write, dataset, function, identity), _opened)


def _opened(folder: Path) -> Kept:
    return KeptArrays({}, folder) if (folder / "0.npy").exists() else Kept(folder)


def _function(dataset: Python) -> Callable[[], Any]:
    """Return the function of a dataset; raise `ConfigError` if no package has it, or it can't be imported."""
    found = dataset.entries
    if len(found) != 1:
        known = sorted(entry.name for entry in entry_points(group=ROWS))
        raise ConfigError(
            [
                Fault(
                    dataset.key("of"),
                    f"{len(found)} packages with {dataset.of}" if found else dataset.of,
                    f"one of the entry points in {ROWS} of installed packages: {', '.join(known) or 'there are none'}",
                    did_you_mean(dataset.of, known) or f"install the package, or see {DOCS}/extending.md",
                )
            ]
        )
    try:
        function = found[0].load()
    except Exception as error:
        raise _fault(dataset, f"{type(error).__name__}: {error}", "a module that can be imported") from error
    if not inspect.isfunction(function):
        raise _fault(dataset, f"{function!r}", "a function without arguments")
    return function


def _fault(dataset: Python, found: str, expected: str, remedy: str = "repair the function") -> WorldError:
    return WorldError(f"{dataset.key('of')}: {dataset.of}", found, expected, remedy)


def _write(dataset: Python, function: Callable[[], Any], identity: str, folder: Path) -> None:
    """Write what the function returns or yields to a folder."""
    with _explained(dataset, [0]):
        made = function()
    if isinstance(made, Mapping):
        arrays = {str(name): _unmasked(dataset, name, values) for name, values in made.items()}
        if not arrays:
            raise _fault(dataset, "no arrays", _WHAT)
        with _of_function(dataset, {}):
            write_arrays(folder, arrays, where=f"{dataset.of}, ", identity=identity, title=dataset.title)
        return
    paths = _write_stream(dataset, made, folder)
    given = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(Rows)}
    table = Table(
        **{**given, "files": next(iter(paths)), "columns": {}, "missing": (), "strip": False, "errors": "strict"}
    )
    with _of_function(dataset, paths):
        write_table(folder, identity, table, {"train": [*paths]})
    for path in paths:
        Path(path).unlink()


@contextlib.contextmanager
def _of_function(dataset: Python, paths: Mapping[str, int]) -> Iterator[None]:
    """Report the faults of files that rows were written to, each with the rows before, as those of the function."""
    try:
        yield
    except EtlrunError as error:
        raise EtlrunError([_renamed(dataset, fault, paths) for fault in error.faults]) from error


def _renamed(dataset: Python, fault: Fault, paths: Mapping[str, int]) -> Fault:
    where = fault.where
    for path, before in paths.items():
        if where.startswith(path):
            where = _ROW.sub(lambda of, before=before: f"row {int(of[1].replace(',', '')) + before:,}", where)  # type: ignore[misc]
            where = f"{dataset.key('of')}: {dataset.of}{where.removeprefix(path)}"
    if where == dataset.of or where.startswith(f"{dataset.of}, "):
        where = f"{dataset.key('of')}: {where}"
    return dataclasses.replace(fault, where=where, remedy="repair the function")


def _unmasked(dataset: Python, name: Any, values: Any) -> np.ndarray:
    """Return an array whose masked values, if there are any, are NaN."""
    if not np.ma.is_masked(values):
        try:
            return np.asarray(values)
        except ValueError as error:
            found = f"{name}: {one_line(error)}"
            raise _fault(dataset, found, "an array, or lists of equal lengths") from error
    if values.dtype.kind != "f":
        found = f"{name}: masked values of type {values.dtype}"
        raise _fault(dataset, found, "floats, or values that are all there", "return x.astype(float).filled(np.nan)")
    return np.asarray(values.filled(np.nan))


def _write_stream(dataset: Python, made: Any, folder: Path) -> dict[str, int]:
    """Write rows to files of Arrow, batch by batch: to another one from where the types of their columns are others.

    Returns the path of each with the number of rows before.
    """
    count, paths, schema, rows = [0], dict[str, int](), None, 0
    with _explained(dataset, count), contextlib.ExitStack() as opened:
        for batch in _batches(dataset, made, count):
            if batch.schema != schema:
                opened.close()
                path = str(folder / f"{dataset.of}-{len(paths)}.arrow")
                paths[path] = rows
                file, schema = opened.enter_context(pa.OSFile(path, "wb")), batch.schema
                writer = opened.enter_context(pa.ipc.new_file(file, schema))
            writer.write_batch(batch)
            rows += batch.num_rows
        if not paths:
            raise _fault(dataset, "no rows", "at least one row")
    return paths


@contextlib.contextmanager
def _explained(dataset: Python, count: list[int]) -> Iterator[None]:
    """Report what the function raises, with the number of rows before."""
    try:
        yield
    except WorldError:
        raise
    except Exception as error:
        raise _fault(
            dataset,
            f"{type(error).__name__}: {one_line(error)}{f', after {count[0]:,} rows' if count[0] else ''}",
            "a function that returns or yields all rows",
        ) from error


def _batches(dataset: Python, made: Any, count: list[int]) -> Iterator[pa.RecordBatch]:
    index = getattr(made, "index", None)
    if hasattr(made, "reset_index") and type(index).__name__ != "RangeIndex":
        raise _fault(
            dataset,
            f"a frame with the index {type(index).__name__}",
            "a frame whose rows are numbered",
            "return frame.reset_index() to have it as columns, or frame.reset_index(drop=True)",
        )
    if hasattr(made, "__arrow_c_stream__"):
        yield from (batch for batch in pa.RecordBatchReader.from_stream(made) if batch.num_rows)
    elif isinstance(made, Iterator):
        yield from _of_dictionaries(dataset, made, count)
    else:
        raise _fault(dataset, f"a value of type {type(made).__name__}", _WHAT)


def _of_dictionaries(dataset: Python, rows: Iterator[Any], count: list[int]) -> Iterator[pa.RecordBatch]:
    schema: pa.Schema | None = None
    checked = _checked(dataset, rows, count)
    while some := [*itertools.islice(checked, _AT_ONCE)]:
        try:
            batch = pa.RecordBatch.from_pylist(some)
            if schema is not None:  # integers become floats, and columns without a value before get a type
                schema = pa.unify_schemas([schema, batch.schema], promote_options="permissive")
                batch = batch.select(schema.names).cast(schema)
        except _NOT_CONVERTED as error:
            raise _unfit(dataset, some, count[0] - len(some), error) from error
        schema = schema or batch.schema
        yield batch


def _unfit(dataset: Python, rows: list[Mapping[str, Any]], first: int, error: Exception) -> WorldError:
    """Return the error of the first value that Arrow can't put behind those before it, found by halving."""
    for name in rows[0]:
        values = [row[name] for row in rows]
        low, high = 0, len(values)
        if _fits(values):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _fits(values[:middle]) else (low, middle)
        found = f"row {first + low:,}, {name}: {shown(values[low])} of type {type(values[low]).__name__}"
        return _fault(
            dataset,
            found,
            "values of one type in each column: numbers of at most 64 bits, truth values, texts, or times",
        )
    found = f"values of another type among rows {first:,} to {first + len(rows) - 1:,}: {one_line(error)}"
    return _fault(dataset, found, "values of one type in each column")


def _fits(values: list[Any]) -> bool:
    try:
        pa.array(values)
    except _NOT_CONVERTED:
        return False
    return True


def _checked(dataset: Python, rows: Iterator[Any], count: list[int]) -> Iterator[Mapping[str, Any]]:
    names: set[str] = set()
    zones: dict[str, bool] = {}
    for row in rows:
        place = f"row {count[0]:,}"
        if not isinstance(row, Mapping):
            raise _fault(dataset, f"{place} of type {type(row).__name__}", "a dictionary for each row")
        if bad := [name for name in row if not isinstance(name, str) or not name] or [""] * (not row):
            raise _fault(dataset, f"{place} with the key {bad[0]!r}" if row else f"{place} without keys", _NAMES)
        names = names or set(row)
        if set(row) != names:
            found = f"{place} with the keys {', '.join(map(str, row))}"
            raise _fault(dataset, found, f"those of the first row: {', '.join(sorted(names))}")
        for name, value in row.items():
            if any(isinstance(of, _LISTS) for of in (value if isinstance(value, _LISTS) else ())):
                found = f"{place}, {name}: lists in a list"
                raise _fault(
                    dataset,
                    found,
                    "a single value, or a list of numbers, in each column of a row",
                    "return arrays by name, with all rows in each",
                )
            if isinstance(value, datetime) and zones.setdefault(name, is_zoned := bool(value.tzinfo)) != is_zoned:
                found, others = ("with", "without") if is_zoned else ("without", "with")
                found = f"{place}, {name}: a time {found} a zone"
                raise _fault(dataset, found, f"times {others}, as those before")
        count[0] += 1
        yield {name: plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    """Return a scalar of NumPy as a Python object, except for a time, whose unit that would lose."""
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    return value.item() if isinstance(value, np.generic) and not is_time else value
