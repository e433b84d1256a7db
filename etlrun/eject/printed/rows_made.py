"""Rows of a function of an installed package in programs."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping

from etlrun.eject.printed.given import FUNCTION, TYPES
from etlrun.eject.printed.rows import values_of
from etlrun.eject.printed.rows_arrays import array_of
from etlrun.sources.rows.arrays import plain
from etlrun.stages.lazy import np, pa


@functools.cache
def columns() -> dict[str, dict[str, np.ndarray]]:
    """Return the columns that the function returns or yields; masked values are NaN."""
    made = pkgutil.resolve_name(FUNCTION)()
    if isinstance(made, Mapping):
        arrays = {
            str(name): values.filled(np.nan) if np.ma.is_masked(values) else values for name, values in made.items()
        }
        return {"train": {name: array_of(np.asarray(arrays[name])) for name in TYPES}}
    if hasattr(made, "__arrow_c_stream__"):
        table = pa.RecordBatchReader.from_stream(made).read_all()
    else:
        rows = [*made]
        table = pa.table({name: pa.array([plain(row[name]) for row in rows]) for name in TYPES})
    return {"train": {name: values_of(table[name], kind) for name, kind in TYPES.items()}}


def paths_of(_split: str) -> list[str]:
    """Return the name of the function, whose rows are in no file."""
    return [FUNCTION]
