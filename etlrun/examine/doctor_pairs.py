"""Examples that are the same, or nearly so, within splits and across them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.prepare.threads import threads

BITS = 8
"""Most bits of 64 in which the perceptual hashes of nearly identical images differ; see docs/doctor.md."""
_ROWS, _COLUMNS = 64, 8192
"""Size of a block of pairs, which fits into a core's cache."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Groups of identical images, by the index of their members among all examples of all splits.

    Attributes:
        members: Members of each group, in the order of the data.
        is_across: Whether a group has members in several splits.
        is_conflicting: Whether its members have several labels.
    """

    members: list[npt.NDArray[np.int64]]
    is_across: npt.NDArray[np.bool_]
    is_conflicting: npt.NDArray[np.bool_]


def identical(looks: npt.NDArray[Any], splits: npt.NDArray[np.int64]) -> Groups:
    """Return the groups of examples with the same bytes. `looks` are of `LOOKED`; `splits` are numbers of splits."""
    sound = np.flatnonzero(~looks["is_broken"])
    order = sound[np.argsort(looks["digest"][sound], kind="stable")]
    digests = looks["digest"][order]
    starts = np.flatnonzero(np.r_[True, digests[1:] != digests[:-1]]) if order.size else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, order.size])
    chosen = np.flatnonzero(sizes > 1)
    chosen = chosen[np.argsort(order[starts[chosen]], kind="stable")]
    members = [order[starts[group] : starts[group] + sizes[group]] for group in chosen]
    return Groups(
        members=members,
        is_across=np.array([splits[of].min() != splits[of].max() for of in members], bool),
        is_conflicting=np.array([looks["label"][of].min() != looks["label"][of].max() for of in members], bool),
    )


def near(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield (number in `second`, number of its nearest in `first`, bits that differ) of nearly identical images.

    Both are of `LOOKED`. Images of `second` with the bytes of one of `first`, and those without a hash, are left out.
    All pairs are compared, as bits of 64-bit integers in blocks.
    """
    ours = np.flatnonzero(~(first["is_broken"] | first["is_flat"]))
    theirs = np.flatnonzero(~(second["is_broken"] | second["is_flat"] | np.isin(second["digest"], first["digest"])))
    hashes = first["hash"][ours]

    def nearest(rows: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
        best: dict[int, tuple[int, int]] = {}
        for start in range(0, len(hashes), _COLUMNS):
            block = hashes[start : start + _COLUMNS]
            bits = np.bitwise_count(second["hash"][rows][:, None] ^ block[None])
            for row, column in zip(*np.nonzero(bits <= BITS), strict=True):
                found = int(bits[row, column]), int(ours[start + column])
                best[int(rows[row])] = min(best.get(int(rows[row]), found), found)
        return [(row, number, bits) for row, (bits, number) in sorted(best.items())]

    with threads() as pool:
        for found in pool.map(nearest, [theirs[at : at + _ROWS] for at in range(0, len(theirs), _ROWS)]):
            yield from found
