"""Sequences that columns make of rows: their lengths, and items that are kept, each made once for all epochs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etlrun.sources.records import digest
from etlrun.sources.rows.kept import Kept, Writer, kept_as, kept_before
from etlrun.sources.rows.reader import Reader
from etlrun.sources.rows.source import Gather, RowSplit, RowsSource, gathered
from etlrun.stages.column_numbers import ColumnStep
from etlrun.stages.columns import Columns, Output
from etlrun.stages.lazy import tf
from etlrun.stages.plugins import digest_of
from etlrun.stages.step import ROWS_AT_ONCE
from etlrun.system import VERSION
from etlrun.system.files import replacing
from etlrun.system.progress import progress

_FORMAT_OF_LENGTHS = 2
"""Version of what is kept."""
Lengths = npt.NDArray[np.int32]


def lengths_of(source: RowsSource, split: RowSplit, columns: Columns) -> Lengths:
    """Return the length of the longest sequence that fitted columns make of each row of `split`, in items."""
    features = columns.flow(source.dataset.examples).features
    outputs = {output.name: output for output in columns.outputs}
    names = [name for name in outputs if features[name].is_sequence]
    path = _path(source, split, names, outputs)
    with contextlib.suppress(OSError, ValueError):
        return np.asarray(np.load(path, mmap_mode="r"))
    found = _counted(source, split, names, outputs)
    _write_lengths(path, found)
    return found


def keep_lengths(
    source: RowsSource, split: RowSplit, found: Mapping[str, Lengths | None], outputs: Mapping[str, Output]
) -> None:
    """Keep the lengths of all sequences among `outputs`, found when they were fitted; else they are counted later."""
    lengths = [of for of in found.values() if of is not None]
    if len(lengths) == len(found):
        _write_lengths(_path(source, split, [*found], outputs), np.maximum.reduce(lengths))


def _path(source: RowsSource, split: RowSplit, names: list[str], outputs: Mapping[str, Output]) -> Path:
    """Return the path for the lengths of outputs of these names, which the steps that change them determine."""
    above = {name: of for name, of in outputs.items() if name not in source.dataset.examples.features}
    steps = [[name, _changing(outputs[name]), _above(outputs[name], above)] for name in names]
    return source.kept.folder / f"lengths-{digest([_FORMAT_OF_LENGTHS, steps, split.content.digest])}.npy"


def _changing(output: Output) -> dict[str, object]:
    """Return an output with the steps up to the last that changes lengths, as plain values."""
    return Output(name=output.name, of=output.of, steps=_steps(output)).described


def _steps(output: Output) -> tuple[ColumnStep, ...]:
    last = max((place for place, step in enumerate(output.steps, 1) if step.of_sequences), default=0)
    return output.steps[:last]


def _above(output: Output, above: Mapping[str, Output]) -> list[object]:
    """Return the outputs that an output is made of, as plain values."""
    return [[above[name].described, _above(above[name], above)] for name in output.of if name in above]


def _write_lengths(path: Path, lengths: Lengths) -> None:
    with contextlib.suppress(OSError), replacing(path) as temporary:  # else they are counted again
        np.save(temporary, lengths)


def _counted(source: RowsSource, split: RowSplit, names: list[str], outputs: Mapping[str, Output]) -> Lengths:
    found, at_once = np.zeros(split.num_examples, np.int32), source.kept.known.rows_at_once(ROWS_AT_ONCE)
    for start in range(0, split.num_examples, at_once):
        part = split.part(start, min(start + at_once, split.num_examples))
        for name in names:
            counts = Reader(outputs[name], {**outputs}, source, part).lengths(_steps(outputs[name]))
            found[start : start + len(counts)] = np.maximum(found[start : start + len(counts)], counts)
    return found


_FORMAT_OF_ITEMS = 1
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
    code = [_FORMAT_OF_ITEMS, VERSION, tf.__version__, digest_of(columns.makers)]
    return digest([code, columns.described(), split.content.digest])


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
