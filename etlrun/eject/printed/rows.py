"""Rows in programs: read at once, and taken by number; functions of tables, and what other kinds of rows have instead.

Each class has functions that take the places of those of the module of the same names, in programs of that kind.
"""

from __future__ import annotations

import functools
import gzip
import math
import pathlib
import pkgutil
import types
from collections.abc import Mapping
from typing import Any

import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet

from etlrun.eject.printed.folder import labelled_files
from etlrun.eject.printed.given import (
    BLANK,
    CLASSES,
    CSV,
    ERRORS,
    FEATURES,
    FILES,
    FOLDERS,
    FUNCTION,
    ORDER,
    SPLIT_BY,
    SPLIT_COLUMN,
    SPLIT_VALUES,
    STRIP,
    TARGET,
    TYPES,
)
from etlrun.eject.printed.listed import by_number, num_examples, reader  # noqa: F401 - those of listed records
from etlrun.eject.printed.tfrecord import paths
from etlrun.sources.base import slices
from etlrun.sources.framing import array_of
from etlrun.sources.listing import LEFT_BY_SYSTEMS, SPLITS, TEXTS, WHOLE  # noqa: F401 - those of `labelled_files`
from etlrun.sources.rows.arrays import plain, texts_of
from etlrun.sources.rows.dividing import having, placed, sliced
from etlrun.sources.rows.kinds import composed, without_zeros
from etlrun.sources.rows.read import ending, named, names_beside, repaired
from etlrun.sources.rows.source import text_of
from etlrun.sources.rows.table import values_of_folders
from etlrun.stages.flow import MISSING, MISSING_TIME
from etlrun.stages.lazy import np, pa, pc, tf
from etlrun.stages.rows import BETWEEN

ENDS = TEXTS.suffixes
"""Ends of the names of texts."""
OF_TEXTS = ("string", "timestamp")
"""Types that JSON has as texts."""


def decoded(path: str) -> Any:
    """Return the content of a file of text, with U+FFFD for what is not UTF-8 unless that is refused."""
    data = pathlib.Path(path).read_bytes()
    data = gzip.decompress(data) if ending(path).endswith(".gz") else data
    return pa.BufferReader(data if ERRORS == "strict" else data.decode(errors=ERRORS).encode())


def json_table_of(path: str) -> pa.Table:
    """Read a file of JSON lines."""
    found = {
        field.name: getattr(field.type, "value_type", field.type)
        for field in pyarrow.json.open_json(decoded(path)).schema
    }
    of_numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    numbers = [name for name, kind in found.items() if any(check(kind) for check in of_numbers)]
    texts = [name for name, kind in TYPES.items() if kind in OF_TEXTS and name not in numbers]
    lists = {name: pa.list_(pa.type_for_alias(of[:-5])) for name, of in TYPES.items() if of.endswith(" list")}
    lists |= {name: pa.list_(pa.string()) for name, of in TYPES.items() if of == "strings" and name not in numbers}
    schema = pa.schema([*((name, pa.string()) for name in texts), *lists.items()])
    return pyarrow.json.read_json(decoded(path), parse_options=pyarrow.json.ParseOptions(explicit_schema=schema))


def table_of(path: str) -> pa.Table:
    """Read a file of rows; the values of a csv or tsv are texts."""
    names = [name for name in TYPES if name not in FOLDERS]
    end = ending(path).removesuffix(".gz")
    if end.endswith(".tfrecord"):
        records = tf.data.TFRecordDataset(path).as_numpy_iterator()
        examples = [tf.train.Example.FromString(record).features.feature for record in records]
        arrays = {name: array_of([example[name] for example in examples]) for name in names}
        classes = {name: of for name, of in names_beside(path).items() if TYPES.get(name) == "string"}
        return pa.table({**arrays, **{name: named(arrays[name], of) for name, of in classes.items()}})
    if end.endswith((".jsonl", ".ndjson")):
        return json_table_of(path)
    if not end.endswith((".csv", ".tsv", ".txt")):
        if end.endswith(".parquet"):
            checked = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
            return pyarrow.parquet.read_table(path, columns=names, **checked)
        try:
            return pyarrow.dataset.dataset(path, format="feather").to_table(columns=names)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(path).read_all()
    table = pyarrow.csv.read_csv(
        decoded(path),
        parse_options=pyarrow.csv.ParseOptions(**{"delimiter": "\t" if end.endswith(".tsv") else ",", **CSV}),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(TYPES, pa.string()),
            include_columns=names,
            null_values=BLANK,
            strings_can_be_null=True,
        ),
    )
    return table if not STRIP else pa.table({name: stripped(table[name]) for name in names})


def column_of(table: pa.Table, name: str, path: str) -> pa.ChunkedArray:
    """Return a column of a file, or of the names of its folders."""
    if name not in FOLDERS:
        return table[name]
    value = pa.scalar(values_of_folders(path)[name], pa.string())
    return pa.chunked_array([pa.repeat(value, len(table))])


def in_utf8(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts with U+FFFD for what is not UTF-8, unless that is refused."""
    return column if ERRORS == "strict" else pa.chunked_array([repaired(column.combine_chunks())[0]])


def stripped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts without the blanks around them."""
    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(texts, value_set=pa.array(BLANK, pa.string())), None, texts)


def values_of(column: pa.ChunkedArray, kind: str) -> np.ndarray:
    """Return the values of a column; one that is missing is NaN, MISSING in texts, and MISSING_TIME in times.

    Lists are arrays, empty if they are missing.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind.endswith(" list"):
        lists = (np.array([] if of is None else of, kind.removesuffix(" list")) for of in column.to_pylist())
        return np.fromiter(lists, object, len(column))
    if kind == "strings":
        texts = column.combine_chunks().cast(pa.large_list(pa.large_string()))
        column, kind = pc.binary_join(texts, pa.scalar(BETWEEN, pa.large_string())), "string"
    if kind == "string":
        texts = column.cast(pa.large_string())
        texts = composed(pc.utf8_trim_whitespace(texts) if STRIP else texts)
        return np.asarray(texts.cast(pa.large_binary()).fill_null(MISSING))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        column = without_zeros(column) if kind == "int64" else column
    is_time = kind == "timestamp"
    try:
        column = column.cast(pa.timestamp("us") if is_time else kind, safe=False)
    except pa.ArrowInvalid:  # times with zones, and truth values of which some are missing
        column = column.cast(pa.timestamp("us", "UTC") if is_time else pa.bool_())
    if is_time:
        return np.asarray(column.cast(pa.int64()).fill_null(MISSING_TIME))
    return np.asarray(column.cast(kind).fill_null(math.nan) if kind == "float64" else column)


@functools.cache
def columns() -> dict[str, dict[str, np.ndarray]]:
    """Return the columns of each split of the files."""
    found = {}
    for split, of in paths().items():
        tables = [(table_of(path), path) for path in of]
        found[split] = {
            name: np.concatenate([values_of(in_utf8(column_of(table, name, path)), kind) for table, path in tables])
            for name, kind in TYPES.items()
        }
    return found


@functools.cache
def column(name: str) -> np.ndarray:
    """Return a column in all rows, those of a split behind those of another; of one split as it is mapped."""
    parts = [values[name] for values in columns().values()]
    return np.concatenate(parts) if parts[1:] else parts[0]


@functools.cache
def num_rows() -> dict[str, int]:
    """Return the number of rows of each split of the files."""
    return {name: len(values[TARGET]) for name, values in columns().items()}


def in_order(count: int) -> np.ndarray:
    """Return the numbers of so many rows in the order in which they are read."""
    return np.arange(count) if ORDER == "file" else np.random.default_rng(0).permutation(count)


def in_splits() -> dict[str, np.ndarray]:
    """Return the numbers of the rows of each split, in the order in which they are read."""
    found, first = {}, 0
    for name, count in num_rows().items():
        found[name] = first + in_order(count)
        first += count
    return found


@functools.cache
def records_of(split: str) -> np.ndarray:
    """Return the numbers of the rows of `split`, in the order in which they are read."""
    rows = in_splits()
    parts = slices(split, {name: len(of) for name, of in rows.items()})
    return np.concatenate([rows[name][start:end] for name, start, end in parts])


@functools.cache
def parts_of(split: str) -> list[types.SimpleNamespace]:
    """Return all rows of `split` as one shard."""
    return [types.SimpleNamespace(filename=split, skip=0, take=num_examples(split))]


def classes() -> list[str]:
    """Return the names of the classes."""
    return CLASSES


def labels_of(split: str) -> np.ndarray:
    """Return the class of each row of `split`."""
    values = column(TARGET)[records_of(split)]
    plain = (values if values.dtype == object else values.astype(np.int64)).tolist()  # classes are named 0 and 1
    texts = (of.decode() if isinstance(of, bytes) else str(of) for of in plain)
    return np.array([CLASSES.index(text) for text in texts])


def flat(values: np.ndarray, kind: str) -> list[np.ndarray]:
    """Return the items of lists, and how many each has; other values as they are."""
    if not kind.endswith(" list"):
        return [values]
    items = np.concatenate([np.empty(0, kind.removesuffix(" list")), *values])
    return [items, np.array([*map(len, values)], np.int64)]


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the columns of a batch of rows by their numbers; lists are ragged."""

    def take(numbers: np.ndarray) -> list[np.ndarray]:
        """Return the values of the columns in rows."""
        return [part for name in FEATURES for part in flat(column(name)[numbers], TYPES[name])]

    dtypes = [part.dtype for name in FEATURES for part in flat(column(name)[:0], TYPES[name])]
    parts, found = iter(tf.numpy_function(take, [record], dtypes)), {}
    for name in FEATURES:
        found[name] = tf.ensure_shape(next(parts), (None, *column(name).shape[1:]))
        if TYPES[name].endswith(" list"):
            lengths = tf.ensure_shape(next(parts), (None,))
            found[name] = tf.RaggedTensor.from_row_lengths(found[name], lengths)
    return found


def native(values: np.ndarray) -> np.ndarray:
    """Return an array whose texts are bytes, and whose numbers have the byte order of this machine."""
    if values.dtype.kind in "SU":
        return np.asarray(composed(texts_of(values)).cast(pa.large_binary()))
    return values.astype(values.dtype.newbyteorder("="), copy=False)


class Arrays:
    """Rows of arrays of NumPy, which are mapped into memory."""

    @staticmethod
    @functools.cache
    def columns() -> dict[str, dict[str, np.ndarray]]:
        """Return the columns, each an array of its own file, or one of an archive: all rows are `train`."""
        found = {name: np.load(path, mmap_mode="r") for name, path in FILES.items()}
        return {"train": {name: native(of if isinstance(of, np.ndarray) else of[name]) for name, of in found.items()}}


class Texts:
    """Rows of text files by class."""

    @staticmethod
    @functools.cache
    def columns() -> dict[str, dict[str, np.ndarray]]:
        """Return the texts and the names of their classes, of each split."""
        found = {}
        for split, files in labelled_files(ENDS).items():
            texts = [text_of(path.read_bytes(), ERRORS).encode() for _, path in files]
            values = {"text": texts, "label": [label.encode() for label, _ in files]}
            found[split] = {name: np.array(values[name], object) for name in TYPES}
        return found


class MadeRows:
    """Rows of a function of an installed package."""

    @staticmethod
    @functools.cache
    def columns() -> dict[str, dict[str, np.ndarray]]:
        """Return the columns that the function returns or yields; masked values are NaN."""
        made = pkgutil.resolve_name(FUNCTION)()
        if isinstance(made, Mapping):
            arrays = {
                str(name): values.filled(np.nan) if np.ma.is_masked(values) else values for name, values in made.items()
            }
            return {"train": {name: native(np.asarray(arrays[name])) for name in TYPES}}
        if hasattr(made, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(made).read_all()
        else:
            rows = [*made]
            table = pa.table({name: pa.array([plain(row[name]) for row in rows]) for name in TYPES})
        return {"train": {name: values_of(table[name], kind) for name, kind in TYPES.items()}}


class NamedSplits:
    """Splits that have the rows of some values of a column."""

    @staticmethod
    def in_splits() -> dict[str, np.ndarray]:
        """Return the numbers of the rows of each split, in the order in which they are read."""
        rows = in_order(len(column(SPLIT_COLUMN)))
        values = pa.array(column(SPLIT_COLUMN)[rows])
        return {name: having(rows, values, of) for name, of in SPLIT_VALUES.items()}


class PlacedSplits:
    """Slices that are cut by the values of a column."""

    @staticmethod
    @functools.cache
    def records_of(split: str) -> np.ndarray:
        """Return the numbers of the rows of `split`, in the order in which they are read."""
        found = []
        for name, start, end in slices(split, num_rows()):
            rows = in_splits()[name]
            line = placed(SPLIT_BY, rows, pa.array(column(SPLIT_COLUMN)[rows]), ORDER)
            found.append(sliced(rows, *line, start, end))
        return np.concatenate(found)
