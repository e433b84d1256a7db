"""Identical images: the digest of an image's bytes, and the groups of images that share one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

DIGEST = np.dtype("S16")
"""Type of digests in arrays."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Groups of images with the same bytes, in the order of their first images.

    Attributes:
        order: Indices of images, by groups; within a group they ascend.
        starts: Where each group begins in `order`; `ends` likewise.
        is_across: Whether a group has images of several splits.
        is_conflicting: Whether its images have several labels.
    """

    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    is_across: npt.NDArray[np.bool_]
    is_conflicting: npt.NDArray[np.bool_]

    def members(self, group: int) -> npt.NDArray[np.int64]:
        """Return the indices of a group's images."""
        return self.order[self.starts[group] : self.ends[group]]


def digest_of(data: bytes) -> bytes:
    """Return the XXH3 of an image's bytes, of 128 bits."""
    return xxhash.xxh3_128_digest(data)


def identical(digests: npt.NDArray[np.bytes_], labels: npt.NDArray[np.int64], splits: npt.NDArray[np.int64]) -> Groups:
    """Return the groups of images that occur more than once, by their digests; `splits` are numbers of splits.

    All three arrays have an entry for each image.
    """
    order = np.argsort(digests, kind="stable")
    is_first = np.ones(len(order), bool)
    is_first[1:] = digests[order[1:]] != digests[order[:-1]]
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    chosen = np.flatnonzero(ends - starts > 1)
    chosen = chosen[np.argsort(order[starts[chosen]], kind="stable")]

    def differ(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        least, most = (of.reduceat(values[order], starts)[chosen] for of in (np.minimum, np.maximum))
        return np.asarray(least != most)

    return Groups(
        order=order, starts=starts[chosen], ends=ends[chosen], is_across=differ(splits), is_conflicting=differ(labels)
    )
