"""How often values are there: counted in a stream, in files once more of them are different than memory takes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etlrun.stages.column_numbers import counted_in

_FILES = 32
"""Files of them, of which each has all counts of its values."""


class Counts(NamedTuple):
    """Counts of values.

    Attributes:
        table: The most frequent values, column `value`, and how often each is there, column `count`, in order.
        there: Number of values that are not missing.
        total: Number of all values.
    """

    table: pa.Table
    there: int
    total: int


def counts_in(parts: Iterable[pa.Array], least: int, most: int, folder: Path, *, in_memory: int = 500_000) -> Counts:
    """Return the `most` most frequent values in the parts, of those that are there `least` times; one at least.

    As soon as `in_memory` values are different, they are in files: in `folder`, or where temporary files are if it
    can't be written to. None outlives this call.

    Raises:
        OSError: They can't be written.
    """
    counted, waiting, total, there = pa.table({}), list[pa.Table](), 0, 0
    with ExitStack() as stack:
        files = _Files(stack, folder)
        for part in parts:
            total += len(part)
            waiting.append(counted_in(part))
            there += len(part) - part.null_count
            if sum(map(len, waiting)) > len(counted):  # so that many parts are added up a few times alone
                counted, waiting = _added([counted, *waiting]), []
            if len(counted) > in_memory:
                files.add(counted)
                counted = pa.table({})
        counted = _added([counted, *waiting])
        if files.writers:
            if len(counted):
                files.add(counted)
            counted = pa.concat_tables([_first(_added([of]), least, most) for of in files.tables()])
        return Counts(_first(counted, least, most), there, total)


class _Files:
    """Counts on disk, of which all of a value are in one file."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.writers: list[tuple[Any, Any]] = []
        self._stack, self._folder = stack, folder if os.access(folder, os.W_OK) else None

    def add(self, counted: pa.Table) -> None:
        """Write counts to the files of their values."""
        if not self.writers:
            for _ in range(_FILES):
                file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - the stack closes it
                self._stack.callback(file.close)
                self.writers.append((file, pa.ipc.new_stream(file, counted.schema)))
        counted = counted.combine_chunks()
        places = _places(counted["value"].chunk(0))
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(_FILES + 1))
        in_order = counted.take(pa.array(order))
        for (_, writer), start, end in zip(self.writers, ends[:-1], ends[1:], strict=True):
            writer.write_table(in_order.slice(start, end - start))

    def tables(self) -> Iterator[pa.Table]:
        """Yield what each file has."""
        for file, writer in self.writers:
            writer.close()
            file.seek(0)
            yield pa.ipc.open_stream(file).read_all()


def _places(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of the file of each value: of texts by their lengths and three of their bytes."""
    found: npt.NDArray[np.int64]
    if not pa.types.is_large_binary(values.type):
        found = values.to_numpy(zero_copy_only=False).view(np.int64)
        return found % _FILES
    ends = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.append(np.frombuffer(values.buffers()[2] or b"", np.uint8), np.uint8(0)).astype(np.int64)
    start, end = ends[:-1], ends[1:]
    found = end - start
    for at in (start, (start + end) // 2, np.maximum(end - 1, start)):
        found = found * 31 + data[at]
    return found % _FILES


def _added(counted: Sequence[pa.Table]) -> pa.Table:
    tables = [table for table in counted if table.num_columns]
    if not tables:
        return pa.table({"value": pa.array([]), "count": pa.array([], pa.int64())})
    found = pa.concat_tables(tables).group_by("value", use_threads=False).aggregate([("count", "sum")])
    return pa.table({"value": found["value"], "count": found["count_sum"]})


def _first(counted: pa.Table, least: int, most: int) -> pa.Table:
    ordered = counted.sort_by([("count", "descending"), ("value", "ascending")])
    enough = int(np.count_nonzero(ordered["count"].to_numpy() >= least))
    return ordered.slice(0, max(min(enough, most), 1))
