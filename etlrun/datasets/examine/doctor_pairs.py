"""Nearly identical images of two splits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.datasets.prepare.threads import in_order

BITS = 8
"""Most bits of 64 in which the perceptual hashes of nearly identical images differ; see docs/doctor.md."""
_ROWS, _COLUMNS = 64, 8192
"""Size of a block of pairs, which fits into a core's cache."""


def near(first: npt.NDArray[Any], second: npt.NDArray[Any], done: Callable[[int], None]) -> npt.NDArray[np.int64]:
    """Return a row for each image of `second` that is nearly identical to one of `first`, both of `LOOKED`.

    It holds the image's number in `second`, the number of its nearest one in `first`, and the bits that differ. Images
    of `second` with the bytes of one of `first`, and those without a hash, are left out. All pairs are compared, as
    bits of 64-bit integers in blocks; `done` is told how many further images of `second` are known.
    """
    ours = np.flatnonzero(~(first["is_broken"] | first["is_flat"]))
    theirs = np.flatnonzero(~(second["is_broken"] | second["is_flat"] | np.isin(second["digest"], first["digest"])))
    hashes = first["hash"][ours]

    def nearest(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        wanted = second["hash"][rows][:, None]
        least, at = np.full(len(rows), BITS + 1, np.uint8), np.zeros(len(rows), np.int64)
        for start in range(0, len(hashes), _COLUMNS):
            bits = np.bitwise_count(wanted ^ hashes[None, start : start + _COLUMNS])
            closest = bits.min(axis=1)
            closer = np.flatnonzero(closest < least)  # of equal ones, the first stays
            at[closer] = start + bits[closer].argmin(axis=1)
            least[closer] = closest[closer]
        is_near = least <= BITS
        return np.stack([rows[is_near], ours[at[is_near]], least[is_near]], axis=1, dtype=np.int64)

    done(len(second) - len(theirs))
    found = [np.empty((0, 3), np.int64)]
    blocks = [theirs[at : at + _ROWS] for at in range(0, len(theirs), _ROWS)]
    for rows, of in zip(blocks, in_order(nearest, blocks), strict=True):
        found.append(of)
        done(len(rows))
    return np.concatenate(found)
