"""Rows in programs whose slices are cut by the values of a column."""

from __future__ import annotations

import functools

from etlrun.eject.printed.given import ORDER, SPLIT_BY, SPLIT_COLUMN
from etlrun.eject.printed.rows import column, in_order, num_rows
from etlrun.sources.rows.dividing import placed, sliced
from etlrun.sources.slices import slices
from etlrun.stages.lazy import np, pa


@functools.cache
def records_of(split: str) -> np.ndarray:
    """Return the numbers of the rows of `split`, in the order in which they are read."""
    lines, first = {}, 0
    for name, count in num_rows().items():
        rows = first + in_order(count)
        lines[name] = rows, *placed(SPLIT_BY, rows, pa.array(column(SPLIT_COLUMN)[rows]), ORDER)
        first += count
    return np.concatenate([sliced(*lines[name], start, end) for name, start, end in slices(split, num_rows())])
