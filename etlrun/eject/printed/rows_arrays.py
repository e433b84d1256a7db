"""Rows of arrays of NumPy in programs, which are mapped into memory."""

from __future__ import annotations

import functools

from etlrun.eject.printed.given import FILES, TARGET
from etlrun.sources.rows.arrays import texts_of
from etlrun.sources.rows.kinds import composed
from etlrun.stages.lazy import np, pa


def array_of(values: np.ndarray) -> np.ndarray:
    """Return an array whose texts are bytes, and whose numbers have the byte order of this machine."""
    if values.dtype.kind in "SU":
        return np.asarray(composed(texts_of(values)).cast(pa.large_binary()))
    return values.astype(values.dtype.newbyteorder("="), copy=False)


@functools.cache
def column(name: str) -> np.ndarray:
    """Return a column in all rows: an array of its own file, or one of an archive."""
    found = np.load(FILES[name], mmap_mode="r")
    return array_of(found if isinstance(found, np.ndarray) else found[name])


def num_rows() -> dict[str, int]:
    """Return the number of rows of each split: all are `train`."""
    return {"train": len(column(TARGET))}


def paths_of(_split: str) -> list[str]:
    """Return the paths of the files."""
    return [*dict.fromkeys(FILES.values())]
