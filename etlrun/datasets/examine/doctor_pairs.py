"""Nearly identical images of two splits, or of one under several labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.datasets.examine.doctor_scan import Scan
from etlrun.datasets.examine.finding import NAMED, Finding
from etlrun.datasets.prepare.check import in_order
from etlrun.system.progress import Begin

BITS = 8
"""Most bits of 64 in which the perceptual hashes of nearly identical images differ; see docs/doctor.md."""
_ROWS, _COLUMNS = 64, 8192
"""Size of a block of pairs, which fits into a core's cache."""


def near_findings(scans: Sequence[Scan], class_names: Sequence[str], begin: Begin) -> Iterator[Finding]:
    """Yield the findings of images that look alike in two splits, or in one split under two labels."""
    for first, second in combinations(scans, 2):
        done = begin(f"{second.split.name} with {first.split.name}", len(second.looks))
        pairs = near(first.looks, second.looks, done).tolist()
        remedy = "compare them: versions of one image belong into one split"
        yield from _alike(second, first, pairs, first.split.name, remedy, lambda scan, index: scan.place(index))

    def named(scan: Scan, index: int) -> str:
        label = int(scan.looks["label"][index])
        return f"{scan.place(index)} ({class_names[label] if 0 <= label < len(class_names) else label})"

    for scan in scans:
        done = begin(f"{scan.split.name} by label", len(scan.looks))
        found = near(scan.looks, scan.looks, done, of_other_labels=True).tolist()
        nearest = {row: of for row, of, _ in found}
        pairs = [(row, of, bits) for row, of, bits in found if row > of or nearest.get(of) != row]
        remedy = "compare them: correct the label of versions of one image"
        yield from _alike(scan, scan, pairs, "another class", remedy, named)


def _alike(
    scan: Scan, other: Scan, pairs: Sequence[Sequence[int]], what: str, remedy: str, named: Callable[[Scan, int], str]
) -> Iterator[Finding]:
    """Yield the finding of pairs of an image of `scan`, one of `other`, and the bits in which their hashes differ."""
    if pairs:
        is_one = len(pairs) == 1
        yield Finding(
            f"{len(pairs):,} image{'' if is_one else 's'} of {scan.split.name} look{'s' * is_one} like one of "
            f"{what}, by perceptual hashes",
            remedy,
            tuple(f"{named(scan, row)} ~ {named(other, of)} ({bits} bits)" for row, of, bits in pairs[:NAMED]),
            tuple(place for row, of, _ in pairs[:NAMED] for place in ((scan, row), (other, of))),
        )


def near(
    first: npt.NDArray[Any], second: npt.NDArray[Any], done: Callable[[int], None], *, of_other_labels: bool = False
) -> npt.NDArray[np.int64]:
    """Return a row for each image of `second` that is nearly identical to one of `first`, both of `LOOKED`.

    It holds the image's number in `second`, the number of its nearest one in `first`, and the bits that differ. Images
    of `second` with the bytes of one of `first`, and those without a hash, are left out; `of_other_labels`, for which
    both are the same, pairs of the same bytes or label instead. All pairs are compared, as bits of 64-bit integers in
    blocks; `done` is told how many further images of `second` are known.
    """
    ours = np.flatnonzero(~(first["is_broken"] | first["is_flat"]))
    is_known = np.zeros(len(second), bool) if of_other_labels else np.isin(second["digest"], first["digest"])
    theirs = np.flatnonzero(~(second["is_broken"] | second["is_flat"] | is_known))
    hashes = first["hash"][ours]
    keys = [first["label"], np.unique(first["digest"], return_inverse=True)[1]]

    def nearest(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        wanted = second["hash"][rows][:, None]
        least, at = np.full(len(rows), BITS + 1, np.uint8), np.zeros(len(rows), np.int64)
        for start in range(0, len(hashes), _COLUMNS):
            bits = np.bitwise_count(wanted ^ hashes[None, start : start + _COLUMNS])
            if of_other_labels:
                _leave_out(bits, rows, ours[start : start + _COLUMNS], keys)
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


def _leave_out(
    bits: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    keys: Sequence[npt.NDArray[np.int64]],
) -> None:
    """Let no image be near itself or one with which it shares one of the `keys`; `bits` are (rows, columns)."""
    own = np.searchsorted(columns, rows)
    is_here = (own < len(columns)) & (columns[np.minimum(own, len(columns) - 1)] == rows)
    bits[np.flatnonzero(is_here), own[is_here]] = BITS + 1  # first, so that few rows are looked at
    for place in np.flatnonzero(bits.min(axis=1) <= BITS):
        close = np.flatnonzero(bits[place] <= BITS)
        is_shared = np.logical_or.reduce([key[rows[place]] == key[columns[close]] for key in keys])
        bits[place, close[is_shared]] = BITS + 1
