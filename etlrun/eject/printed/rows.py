"""Rows in programs: read at once, and taken by number; functions of tables, and what others have in their places."""

from __future__ import annotations

import functools
import gzip
import json
import os
import pathlib
import pkgutil
from collections.abc import Mapping
from typing import Any

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from etlrun.eject.printed import NOWHERE
from etlrun.eject.printed.folder import labelled_files
from etlrun.eject.printed.listed import by_number, num_examples, parts_of, reader  # noqa: F401 - of listed records
from etlrun.eject.printed.records import paths
from etlrun.sources.base import slices
from etlrun.sources.framing import array_of
from etlrun.sources.listing import LEFT_BY_SYSTEMS, SPLITS, TEXTS, WHOLE  # noqa: F401 - those of `labelled_files`
from etlrun.sources.rows.arrays import native
from etlrun.sources.rows.dividing import having, in_order, placed, sliced
from etlrun.sources.rows.kept import as_arrays
from etlrun.sources.rows.kinds import LISTS, TIMES, as_kept  # noqa: F401 - of `as_kept`
from etlrun.sources.rows.read import ending, named, names_beside, repaired
from etlrun.sources.rows.source import as_tensor, numbers_of, text_of
from etlrun.sources.rows.table import values_of_folders
from etlrun.stages.flow import MISSING, MISSING_TIME  # noqa: F401 - of `as_arrays`
from etlrun.stages.lazy import np, pa, pc, tf
from etlrun.stages.rows import BETWEEN  # noqa: F401 - of `as_kept`

FILES = FOLDERS = FUNCTION = TYPES = FEATURES = TARGET = CLASSES = ORDER = NOWHERE
BLANK = CSV = DIR = ERRORS = STRIP = SPLIT_BY = SPLIT_COLUMN = SPLIT_VALUES = NOWHERE
ENDS = TEXTS.suffixes
"""Ends of the names of texts."""


def data_in(path: str) -> bytes:
    """Return the bytes of a file of text, with U+FFFD for what is not UTF-8 unless that is refused."""
    data = pathlib.Path(path).read_bytes()
    data = gzip.decompress(data) if ending(path).endswith(".gz") else data
    return data if ERRORS == "strict" else data.decode(errors=ERRORS).encode()


def of_texts(path: str, separator: str, names: list[str]) -> pa.Table:
    """Read columns of a csv or tsv, whose values are texts."""
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data_in(path)),
        parse_options=pyarrow.csv.ParseOptions(**{"delimiter": separator, **CSV}),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(TYPES, pa.string()),
            include_columns=names,
        ),
    )
    texts = [pc.utf8_trim_whitespace(values) if STRIP else values for values in table.columns]
    return pa.table([pc.if_else(pc.is_in(of, pa.array(BLANK, pa.string())), None, of) for of in texts], names)


def table_of(path: str) -> pa.Table:
    """Read a file of rows."""
    names = [name for name in TYPES if name not in FOLDERS]
    end = ending(path).removesuffix(".gz")
    if end.endswith(".tfrecord"):
        records = tf.data.TFRecordDataset(path).as_numpy_iterator()
        examples = [tf.train.Example.FromString(record).features.feature for record in records]
        classes = {name: of for name, of in names_beside(path).items() if name in TYPES and TYPES[name][0] == "text"}
        arrays = {name: array_of([example[name] for example in examples]) for name in names}
        return pa.table({name: named(of, classes[name]) if name in classes else of for name, of in arrays.items()})
    if end.endswith((".jsonl", ".ndjson")):
        rows = [json.loads(line) for line in data_in(path).split(b"\n") if line.strip()]
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    if end.endswith(".parquet"):
        checked = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
        return pyarrow.parquet.read_table(path, columns=names, **checked)
    if not end.endswith((".feather", ".arrow")):
        return of_texts(path, "\t" if end.endswith(".tsv") else ",", names)
    try:
        return pyarrow.feather.read_table(path, columns=names, memory_map=True)
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(path).read_all()


def values_of(column: Any, kind: str, dtype: str) -> np.ndarray:
    """Return the values of a column of a kind, as `as_arrays` does."""
    values = column.combine_chunks()
    found = as_kept(values if ERRORS == "strict" else repaired(values), kind, strip=STRIP)
    if kind not in LISTS:
        stored = {"string": pa.large_binary(), "int64": pa.int64(), "float64": pa.float64()}
        found = found.cast(stored.get(dtype, found.type))
    return as_arrays(found, dtype)


def read(path: str) -> dict[str, np.ndarray]:
    """Return the columns of a file, some of which the names of its folders have."""
    table = table_of(path)
    for name in (name for name in TYPES if name in FOLDERS):
        value = pa.scalar(values_of_folders(path)[name], pa.string())
        table = table.append_column(name, pa.repeat(value, len(table)))
    found = {name: values_of(table[name], *of) for name, of in TYPES.items()}
    folder = pathlib.Path(path).absolute().parent  # in which paths of images begin
    for name in (name for name, (kind, _) in TYPES.items() if kind == "image file"):
        found[name] = np.array([os.fsencode(folder / os.fsdecode(of)) for of in found[name]], object)
    return found


@functools.cache
def columns() -> dict[str, dict[str, np.ndarray]]:
    """Return the columns of each split of the files."""
    parts = {split: [read(path) for path in of] for split, of in paths().items()}
    return {split: {name: np.concatenate([part[name] for part in of]) for name in TYPES} for split, of in parts.items()}


@functools.cache
def column(name: str) -> Any:
    """Return a column in all rows, those of a split behind those of another; of one split as it is mapped."""
    parts = [of[name] for of in columns().values()]
    values = np.concatenate(parts) if parts[1:] else parts[0]
    if TYPES[name][0] not in LISTS:
        return values
    with tf.init_scope(), tf.device("CPU"):
        return as_tensor(values)


def in_splits() -> dict[str, np.ndarray]:
    """Return the numbers of the rows of each split, in the order in which they are read."""
    found, first = {}, 0
    for name, values in columns().items():
        found[name] = first + in_order(len(values[TARGET]), ORDER)
        first += len(found[name])
    return found


def taken(rows: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return those of the rows of a split that are in a slice."""
    return rows[start:end]


@functools.cache
def records_of(split: str) -> np.ndarray:
    """Return the numbers of the rows of `split`, in the order in which they are read."""
    rows = in_splits()
    parts = slices(split, {name: len(of) for name, of in rows.items()})
    return np.concatenate([taken(rows[name], start, end) for name, start, end in parts])


def classes() -> list[str]:
    """Return the names of the classes."""
    return [*CLASSES]


def labels_of(split: str) -> np.ndarray:
    """Return the class of each row of `split`."""
    return numbers_of(column(TARGET)[records_of(split)], CLASSES)


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the columns of a row by its number, or of a batch; arrays are read in one call, and files of images."""
    values = {name: column(name) for name in FEATURES}
    arrays = [name for name in FEATURES if TYPES[name][0] not in LISTS]

    def take(numbers: np.ndarray) -> list[np.ndarray]:
        """Return the values of the columns in rows."""
        return [values[name][numbers] for name in arrays]

    dtypes = [values[name].dtype for name in arrays]
    taken = dict(zip(arrays, tf.numpy_function(take, [record], dtypes) if arrays else (), strict=True))
    for name in arrays:
        found = tf.ensure_shape(taken[name], (*record.shape, *values[name].shape[1:]))
        taken[name] = tf.io.read_file(found) if TYPES[name][0] == "image file" else found
    return {name: taken[name] if name in taken else tf.gather(values[name], record) for name in FEATURES}


@functools.cache
def columns_of_arrays() -> dict[str, dict[str, np.ndarray]]:
    """Return the columns, each an array of its own file, or one of an archive: all rows are `train`."""
    found = {name: np.load(path, mmap_mode="r") for name, path in FILES.items()}
    return {"train": {name: native(of if isinstance(of, np.ndarray) else of[name]) for name, of in found.items()}}


@functools.cache
def columns_of_texts() -> dict[str, dict[str, np.ndarray]]:
    """Return the texts of files by class and the names of their classes, of each split."""
    found = {}
    for split, files in labelled_files(ENDS).items():
        texts = [text_of(pathlib.Path(DIR, path).read_bytes(), ERRORS).encode() for path, _ in files]
        values = {"text": texts, "label": [label.encode() for _, label in files]}
        found[split] = {name: np.array(values[name], object) for name in TYPES}
    return found


@functools.cache
def columns_of_function() -> dict[str, dict[str, np.ndarray]]:
    """Return the columns that a function of an installed package returns; masked values are NaN."""
    made = pkgutil.resolve_name(FUNCTION)()
    if isinstance(made, Mapping):
        arrays = {str(name): of.filled(np.nan) if np.ma.is_masked(of) else of for name, of in made.items()}
        return {"train": {name: native(np.asarray(arrays[name])) for name in TYPES}}
    table = pa.table(made)
    return {"train": {name: values_of(table[name], *of) for name, of in TYPES.items()}}


def in_splits_by_value() -> dict[str, np.ndarray]:
    """Return the numbers of the rows of each split, which has those of some values, in the order they are read."""
    rows = in_order(len(column(SPLIT_COLUMN)), ORDER)
    values = pa.array(column(SPLIT_COLUMN)[rows])
    return {name: having(rows, values, of) for name, of in SPLIT_VALUES.items()}


def taken_by_value(rows: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return those of the rows of a split that are in a slice, which is cut by the values of a column."""
    return sliced(rows, *placed(SPLIT_BY, rows, pa.array(column(SPLIT_COLUMN)[rows]), ORDER), start, end)
