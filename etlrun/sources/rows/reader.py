"""Values of columns after some of the steps on them, as fitting reads them: in a whole split, or part after part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etlrun.cache.store import folder_of
from etlrun.sources.base import Split
from etlrun.sources.content import digest
from etlrun.sources.rows.counting import Pairs, counts_in, pairs_behind
from etlrun.sources.rows.dividing import Numbers
from etlrun.sources.rows.kept import KeptColumns, KeptWriter, if_complete, kept_as, lacking
from etlrun.sources.rows.source import Gather, RowsSource, gathered
from etlrun.stages.column_numbers import ColumnStep, Fill, items
from etlrun.stages.columns import Columns, Output
from etlrun.stages.flow import MISSING
from etlrun.stages.lazy import tf
from etlrun.stages.plugins import digest_of
from etlrun.stages.step import ROWS_AT_ONCE
from etlrun.system import VERSION
from etlrun.system.files import replacing
from etlrun.system.terminal import progress

_AT_ONCE = 2_048
"""Rows whose sequences are in memory at once, at the most."""
_LOOKED_AT = 65_536
"""Rows that are looked at for missing values at once."""


Lengths = npt.NDArray[np.int32]
Steps = Sequence[ColumnStep]


class OutputReader:
    """The values of an output's columns in a split, which are read once.

    Attributes:
        is_dropped: Whether rare values have been left out of counts, see `counts_in`.
    """

    def __init__(self, output: Output, above: dict[str, Output], source: RowsSource, split: Split) -> None:
        self.output, self.split, self._above, self._source = output, split, above, source
        self._done: list[ColumnStep] = []
        self._value: Any = None
        self._lengths = dict[int, Lengths]()
        self.is_dropped = False

    def read(self, steps: Steps, *, counts: tuple[int, int] | None = None) -> pa.Array | pa.Table:
        """Return the values after some of the steps, as `ColumnStep.fitted` takes them."""
        if counts is not None:
            of_pairs = pairs_behind(steps)
            pairs = None if of_pairs is None else of_pairs[1]
            parts = map(items, self.parts(steps)) if of_pairs is None else self._numbers(*of_pairs, len(steps))
            found, is_dropped = counts_in(parts, *counts, pairs=pairs)
            self.is_dropped = self.is_dropped or is_dropped
            return found
        return self.behind(steps)

    def _numbers(self, before: Steps, pairs: Pairs, count: int) -> Iterator[pa.Array]:
        """Yield the values behind `count` steps as numbers of `pairs`, which are those of the values `before` them."""
        lengths = []
        for tokens in self.parts(before):
            numbers, of_rows = pairs.numbers(tokens)
            lengths.append(of_rows.astype(np.int32))
            yield numbers
        self._lengths[count] = np.concatenate(lengths)

    def parts(self, steps: Steps) -> Iterator[pa.Array]:
        """Yield the values after some of the steps, those of some rows after the other."""
        lengths = []
        for part in self.split.parts(self._source.kept.known.rows_at_once(_AT_ONCE)):
            values = self._of(part).behind(steps)
            if pa.types.is_large_list(values.type):
                lengths.append(np.diff(np.asarray(values.offsets)).astype(np.int32))
            yield values
        if lengths:
            self._lengths[len(steps)] = np.concatenate(lengths)

    def _of(self, part: Split) -> OutputReader:
        return OutputReader(self.output, self._above, self._source, part)

    def known_lengths(self, steps: Steps) -> Lengths | None:
        """Return the number of items of each row after the steps, if it follows from parts that have been read."""
        for count, before in sorted(self._lengths.items(), reverse=True):
            found: Lengths | None = before
            for step in steps[count:]:
                found = None if found is None else step.lengths(found)
            if found is not None:
                return found
        return None

    @cached_property
    def missing(self) -> int:
        """Number of rows in which a value of the columns is missing, or an item of a list."""
        kept, found = self._source.kept, 0
        whole = [kept.arrow(name) for name in self._names if kept.known.columns[name].missing]
        masks = [of if pa.types.is_nested(of.type) else of.is_null() for of in whole]  # of texts without these
        for part in self.split.parts(_LOOKED_AT) if masks else ():
            some = (of.take(pa.array(part.numbers)) for of in masks)
            found += pc.sum(reduce(pc.or_, (lacking(of) if pa.types.is_nested(of.type) else of for of in some))).as_py()
        return found

    def behind(self, steps: Steps) -> pa.Array:
        """Return the values after some of the steps; null where they are missing."""
        column = self.columns.get(self.output.of[0])
        if not steps and column is not None:
            return column.flatten() if pa.types.is_fixed_size_list(column.type) else column
        fills = [step.filled for step in steps if isinstance(step, Fill)]
        if column is not None and len(fills) == len(steps) and _is_filled_by_arrow(column.type):
            for filled in fills:
                column = column.fill_null(filled.encode() if isinstance(filled, str) else filled)
            return column
        value = self.applied(steps)
        if isinstance(value, tf.RaggedTensor):
            return pa.LargeListArray.from_arrays(value.row_splits.numpy(), _arrow(value.flat_values))
        return _arrow(tf.reshape(value, [-1]))

    def applied(self, steps: Steps) -> Any:
        """Return the values after some of the steps as a pipeline has them: a tensor, or for lists a ragged one."""
        if self._value is None or [*steps[: len(self._done)]] != self._done:
            self._value, self._done = self.output.behind((), self._example), []
        for step in steps[len(self._done) :]:
            self._value = step.applied(self._value)
            self._done.append(step)
        return self._value

    @cached_property
    def columns(self) -> dict[str, pa.Array]:
        """The columns themselves in the rows of the split, null where they are missing, by name."""
        return {name: self._source.kept.arrow(name, self.split.numbers) for name in self._names}

    @property
    def _names(self) -> list[str]:
        """Names of the columns, those of outputs above that it is made of, too."""
        return [name for name in self._needed(self.output) if name in self._source.dataset.examples.features]

    def _needed(self, output: Output) -> Iterator[str]:
        for name in output.of:
            yield name
            if name in self._above and name not in self._source.dataset.examples.features:
                yield from self._needed(self._above[name])

    @cached_property
    def _example(self) -> dict[str, Any]:
        kept, found = self._source.kept, dict[str, Any]()
        for name in self._names:
            if kept.has_lists(name):
                lists = self.columns[name]
                values = lists.flatten().to_numpy(zero_copy_only=False)
                found[name] = tf.RaggedTensor.from_row_splits(values, np.asarray(lists.offsets))
            else:
                found[name] = tf.constant(kept.take(name, self.split.numbers))
        for name, output in self._above.items():
            if name in self._needed(self.output) and name not in found:
                found[name] = output.given(found)
        return found


def _is_filled_by_arrow(kind: pa.DataType) -> bool:
    """Return whether Arrow gives what TensorFlow does, without importing that."""
    return bool(pa.types.is_float64(kind) or pa.types.is_large_binary(kind))


def _arrow(values: Any) -> pa.Array:
    """Return a tensor of one dimension as an array."""
    if values.dtype != tf.string:
        numbers = values.numpy()
        return pa.array(numbers, mask=np.isnan(numbers) if numbers.dtype.kind == "f" else None)
    text, ends = tf.strings.reduce_join(values).numpy(), np.zeros(len(values) + 1, np.int64)  # no objects of Python
    np.cumsum(tf.strings.length(values).numpy(), out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
    found = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), buffers)
    return pc.if_else(pc.equal(found, MISSING), None, found)


_FORMAT_OF_LENGTHS = 2
"""Version of what is kept."""


def lengths_of(source: RowsSource, split: Split, columns: Columns) -> Lengths:
    """Return the length of the longest sequence that fitted columns make of each row of `split`, in items."""
    features = columns.flow(source.dataset.examples).features
    outputs = {output.name: output for output in columns.outputs}
    names = [name for name in outputs if features[name].is_sequence]
    path = _path(source, split, names, outputs)
    with contextlib.suppress(OSError, ValueError):
        return np.asarray(np.load(path, mmap_mode="r"))
    lengths = []
    for part in split.parts(source.kept.known.rows_at_once(ROWS_AT_ONCE)):
        readers = (OutputReader(outputs[name], outputs, source, part) for name in names)
        each = [of.applied(_steps(of.output)).row_lengths().numpy() for of in readers]
        lengths.append(np.maximum.reduce(each).astype(np.int32))
    _write_lengths(path, found := np.concatenate(lengths))
    return found


def keep_lengths(
    source: RowsSource, split: Split, found: Mapping[str, Lengths | None], outputs: Mapping[str, Output]
) -> None:
    """Keep the lengths of all sequences among `outputs`, found when they were fitted; else they are counted later."""
    lengths = [of for of in found.values() if of is not None]
    if len(lengths) == len(found):
        _write_lengths(_path(source, split, [*found], outputs), np.maximum.reduce(lengths))


def _path(source: RowsSource, split: Split, names: list[str], outputs: Mapping[str, Output]) -> Path:
    """Return the path for the lengths of outputs of these names, which the steps that change them determine."""
    above = {name: of for name, of in outputs.items() if name not in source.dataset.examples.features}
    steps = [
        [of.name, Output(name=of.name, of=of.of, steps=_steps(of)).described, _above(of, above)]
        for of in map(outputs.__getitem__, names)
    ]
    return source.kept.folder / f"lengths-{digest([_FORMAT_OF_LENGTHS, steps, split.content.digest])}.npy"


def _steps(output: Output) -> tuple[ColumnStep, ...]:
    last = max((place for place, step in enumerate(output.steps, 1) if step.of_sequences), default=0)
    return output.steps[:last]


def _above(output: Output, above: Mapping[str, Output]) -> list[object]:
    return [[above[name].described, _above(above[name], above)] for name in output.of if name in above]


def _write_lengths(path: Path, lengths: Lengths) -> None:
    with contextlib.suppress(OSError), replacing(path) as temporary:  # else they are counted again
        np.save(temporary, lengths)


_FORMAT_OF_ITEMS = 1
"""Version of what is kept, and of the code that takes the columns of rows."""
_MOST = 2**31
"""Categories of an item from which it is not kept."""

Made = Callable[[Numbers, int], Iterable[Mapping[str, Any]]]
"""A function from numbers of rows to the outputs of so many of them after the other, by name."""


def items_of(source: RowsSource, split: Split, columns: Columns) -> dict[str, Gather]:
    """Return what takes sequences by numbers of rows, by output; none unless kept; `WorldError` if unreadable."""
    names, identity = _items(source, split, columns)
    kept = (
        if_complete(folder_of(source.dataset.dir) / f"rows-{identity}", source.dataset, KeptColumns) if names else None
    )
    return {} if kept is None else {name: partial(_taken, kept, gathered(kept, name)) for name in names}


def keep_items(source: RowsSource, split: Split, columns: Columns, made: Made) -> None:
    """Keep the sequences that columns make of the rows of `split`, unless they are kept: those of categories.

    Raises:
        EtlrunError: The folder can't be written, or a file of the rows has changed meanwhile.
    """
    names, identity = _items(source, split, columns)
    if names:
        write = partial(_write, source, split, identity, names, made)
        kept_as(source.dataset, identity, source.kept.stamps, write, KeptColumns)


def _items(source: RowsSource, split: Split, columns: Columns) -> tuple[list[str], str]:
    """Return the names of the outputs whose items are kept, and what determines these; empty for none."""
    features = columns.flow(source.dataset.examples).features
    names = [name for name, of in features.items() if of.shape == (None,) and 0 < (of.categories or 0) < _MOST]
    if not names:
        return names, ""
    code = [_FORMAT_OF_ITEMS, VERSION, tf.__version__, digest_of(columns.makers)]
    return names, digest([code, columns.described(), split.content.digest])


def _taken(_kept: KeptColumns, gather: Gather | None, numbers: tf.Tensor) -> Any:
    """Return the sequences of rows, int64; what is kept is in use as long as this function."""
    assert gather is not None  # noqa: S101 - of a column of lists
    return tf.cast(gather(numbers), tf.int64)


def _write(source: RowsSource, split: Split, identity: str, names: list[str], made: Made, folder: Path) -> None:
    """Write a list of items for each row of the table, in their order: an empty one for those of other splits."""
    schema = pa.schema([(name, pa.large_list(pa.int32())) for name in names])
    rows, written, total = np.unique(split.numbers), 0, sum(source.kept.known.rows.values())
    count = source.kept.known.rows_at_once(ROWS_AT_ONCE)
    with contextlib.closing(KeptWriter(folder, schema)) as writer, progress() as begin:
        advance = begin("Keeping sequences (rows)", len(rows))
        for start, outputs in zip(range(0, len(rows), count), made(rows, count), strict=True):
            some = rows[start : start + count]
            end, lists = total if start + len(some) == len(rows) else int(some[-1]) + 1, []
            for values in map(outputs.__getitem__, names):
                ends = np.zeros(end - written + 1, np.int64)
                ends[some - written + 1] = values.row_lengths().numpy()
                items = values.flat_values.numpy().astype(np.int32)
                lists.append(pa.LargeListArray.from_arrays(np.cumsum(ends), items))
            writer.add(pa.RecordBatch.from_arrays(lists, names))
            written = end
            advance(len(some))
        title = f"{source.dataset.title}: items of {', '.join(names)} in {split.name}"
        writer.finish(rows={split.name: total}, identity=identity, title=title)
