"""Items of the sequences that columns make of rows: kept like columns, so that they are made once for all epochs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etlrun.sources.rows.gathering import Gather, gathered
from etlrun.sources.rows.keeping import kept_as, kept_before
from etlrun.sources.rows.kept import Kept
from etlrun.sources.rows.source import RowSplit, RowsSource
from etlrun.sources.rows.writing import Writer
from etlrun.stages.columns import Columns
from etlrun.stages.lazy import tf
from etlrun.stages.plugins import digest_of
from etlrun.stages.step import ROWS_AT_ONCE
from etlrun.system import VERSION
from etlrun.system.progress import progress

_FORMAT = 1
"""Version of what is kept, and of the code that takes the columns of rows."""
_MOST = 2**31
"""Categories of an item from which it is not kept."""

Made = Callable[[npt.NDArray[np.int64], int], Iterable[Mapping[str, Any]]]
"""A function from numbers of rows to the outputs of so many of them after the other, by name."""


def items_of(source: RowsSource, split: RowSplit, columns: Columns) -> dict[str, Gather]:
    """Return what takes the sequences of outputs by the numbers of rows of `split`, by name; none if they aren't kept.

    Raises:
        WorldError: They can't be read.
    """
    names = _names(source, columns)
    kept = kept_before(source.dataset, _identity(split, columns)) if names else None
    return {} if kept is None else {name: partial(_taken, kept, gathered(kept, name)) for name in names}


def keep_items(source: RowsSource, split: RowSplit, columns: Columns, made: Made) -> None:
    """Keep the sequences that columns make of the rows of `split`, unless they are kept: those of categories.

    Raises:
        EtlrunError: The folder can't be written, or a file of the rows has changed meanwhile.
    """
    if names := _names(source, columns):
        identity = _identity(split, columns)
        write = partial(_write, source, split, identity, names, made)
        kept_as(source.dataset, identity, split.stamps, write, Kept)


def _names(source: RowsSource, columns: Columns) -> list[str]:
    """Return the names of the outputs whose items are kept: numbers need no more time to be made than to be read."""
    features = columns.flow(source.dataset.examples).features
    return [name for name, of in features.items() if of.shape == (None,) and 0 < (of.categories or 0) < _MOST]


def _identity(split: RowSplit, columns: Columns) -> str:
    """Return what determines the items: the rows, the steps with what they have learned, and the code of these."""
    code = [_FORMAT, VERSION, tf.__version__, digest_of(columns.makers)]
    text = json.dumps([code, columns.described(), split.content.digest], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _taken(_kept: Kept, gather: Gather | None, numbers: tf.Tensor) -> Any:
    """Return the sequences of rows, int64; what is kept is in use as long as this function."""
    assert gather is not None  # noqa: S101 - of a column of lists
    return tf.cast(gather(numbers), tf.int64)


def _write(source: RowsSource, split: RowSplit, identity: str, names: list[str], made: Made, folder: Path) -> None:
    """Write a list of items for each row of the table, in their order: an empty one for those of other splits."""
    writer = Writer(folder, pa.schema([(name, pa.large_list(pa.int32())) for name in names]))
    rows, written, total = np.unique(split.rows), 0, sum(source.kept.known.rows.values())
    count = source.kept.known.rows_at_once(ROWS_AT_ONCE)
    try:
        with progress() as begin:
            advance = begin("Keeping sequences (rows)", len(rows))
            for start, outputs in zip(range(0, len(rows), count), made(rows, count), strict=True):
                some = rows[start : start + count]
                end = total if start + len(some) == len(rows) else int(some[-1]) + 1
                lists = [_lists(outputs[name], some - written, end - written) for name in names]
                writer.add(pa.RecordBatch.from_arrays(lists, names))
                written = end
                advance(len(some))
        title = f"{source.dataset.title}: items of {', '.join(names)} in {split.name}"
        writer.finish(rows={split.name: total}, identity=identity, title=title)
    finally:
        writer.close()


def _lists(values: Any, places: npt.NDArray[np.int64], count: int) -> pa.Array:
    """Return `count` lists, of which those at `places` have the items of sequences, and the others none."""
    ends = np.zeros(count + 1, np.int64)
    ends[places + 1] = values.row_lengths().numpy()
    return pa.LargeListArray.from_arrays(np.cumsum(ends), values.flat_values.numpy().astype(np.int32))
