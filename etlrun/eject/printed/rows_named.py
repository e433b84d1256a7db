"""Rows in programs whose splits have the rows of some values of a column."""

from __future__ import annotations

import functools

from etlrun.eject.printed.given import SPLIT_COLUMN, SPLIT_VALUES
from etlrun.eject.printed.rows import column, in_order
from etlrun.sources.rows.dividing import having
from etlrun.sources.slices import slices
from etlrun.stages.lazy import np, pa


@functools.cache
def records_of(split: str) -> np.ndarray:
    """Return the numbers of the rows of `split`, in the order in which they are read."""
    rows = in_order(len(column(SPLIT_COLUMN)))
    values = pa.array(column(SPLIT_COLUMN)[rows])
    found = {name: having(rows, values, of) for name, of in SPLIT_VALUES.items()}
    counts = {name: len(of) for name, of in found.items()}
    return np.concatenate([found[name][start:end] for name, start, end in slices(split, counts)])
