"""Nearly identical images of two splits, or of one under several labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from etlrun.datasets.examine.doctor_scan import NAMED, Finding, Scan
from etlrun.datasets.prepare.threads import in_order
from etlrun.system.progress import Begin

BITS = 8
"""Most bits of 64 in which the perceptual hashes of nearly identical images differ; see docs/doctor.md."""
_ROWS, _COLUMNS = 64, 8192
"""Size of a block of pairs, which fits into a core's cache."""


def near_findings(scans: Sequence[Scan], class_names: Sequence[str], begin: Begin) -> Iterator[Finding]:
    """Yield the findings of images that look alike in two splits, or in one split under two labels."""
    for one, other in combinations(range(len(scans)), 2):
        yield from _across(scans, one, other, begin)
    for number, scan in enumerate(scans):
        yield from _mislabelled(number, scan, class_names, begin)


def _across(scans: Sequence[Scan], one: int, other: int, begin: Begin) -> Iterator[Finding]:
    first, second = scans[one], scans[other]
    found = near(first.looks, second.looks, begin(f"{second.split.name} with {first.split.name}", len(second.looks)))
    if len(found):
        is_one = len(found) == 1
        yield Finding(
            text=f"{len(found):,} image{'' if is_one else 's'} of {second.split.name} look{'s' * is_one} like one of "
            f"{first.split.name}, by perceptual hashes",
            remedy="compare them: versions of one image belong into one split",
            places=tuple(
                f"{second.place(row)} ~ {first.place(other)} ({bits} bits)" for row, other, bits in found[:NAMED]
            ),
            images=tuple(place for row, of, _ in found[:NAMED] for place in ((other, int(row)), (one, int(of)))),
        )


def _mislabelled(number: int, scan: Scan, class_names: Sequence[str], begin: Begin) -> Iterator[Finding]:
    """Yield the finding of images of one split that look alike and have other labels."""

    def named(index: int) -> str:
        label = int(scan.looks["label"][index])
        return f"{scan.place(index)} ({class_names[label] if 0 <= label < len(class_names) else label})"

    found = near(scan.looks, scan.looks, begin(f"{scan.split.name} by label", len(scan.looks)), of_other_labels=True)
    nearest = {int(row): int(of) for row, of, _ in found}
    pairs = [(int(row), int(of), bits) for row, of, bits in found if row > of or nearest.get(int(of)) != row]
    if pairs:
        is_one = len(pairs) == 1
        yield Finding(
            text=f"{len(pairs):,} image{'' if is_one else 's'} of {scan.split.name} look{'s' * is_one} like one of "
            "another class, by perceptual hashes",
            remedy="compare them: correct the label of versions of one image",
            places=tuple(f"{named(row)} ~ {named(of)} ({bits} bits)" for row, of, bits in pairs[:NAMED]),
            images=tuple((number, place) for row, of, _ in pairs[:NAMED] for place in (row, of)),
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
