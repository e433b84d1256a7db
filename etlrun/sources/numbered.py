"""Reading of records by number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etlrun.sources.content import Shard
from etlrun.sources.framing import AROUND, framing, lengths, unframed
from etlrun.sources.records import known, stamp_of
from etlrun.stages.lazy import np, npt


class Numbered:
    """Records of shards by number, from 0 for the first record of the first shard.

    It holds 8 bytes a record in memory. Its functions may be called by several threads at once.

    Attributes:
        count: Number of records.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Locate all records.

        Raises:
            ValueError: The records of a shard can't be separated.
            OSError: A file can't be read.
        """
        self._paths = [shard.path for shard in shards]
        self._firsts = np.cumsum([0, *(shard.take for shard in shards)])
        self._starts = np.concatenate(starts_of(shards))
        self.count = int(self._firsts[-1])

    def read(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the data of these records; raise `ValueError` if one is damaged, `OSError` if it can't be read."""
        return np.array([self._one(int(number)) for number in numbers], dtype=object)

    def _one(self, number: int) -> bytes:
        shard = int(np.searchsorted(self._firsts, number, side="right")) - 1
        path, place = self._paths[shard], int(self._starts[number + shard])
        size = int(self._starts[number + shard + 1]) - place
        with Path(path).open("rb", buffering=0) as file:
            found = os.pread(file.fileno(), size, place)
        try:
            return unframed(found)
        except ValueError:
            raise ValueError(f"corrupted record at {place} of {path}") from None


def starts_of(shards: Sequence[Shard]) -> list[npt.NDArray[np.int64]]:
    """Return the place in its file of each record that is read, and of the end of the last one, for each shard.

    Raises:
        ValueError: The records of a file can't be separated, or there are too few.
        OSError: A file can't be read.
    """
    held = known({shard.path: stamp_of(shard.path) for shard in shards}, framing)
    return [_starts(shard, held[shard.path]) for shard in shards]


def _starts(shard: Shard, held: bytes | None) -> npt.NDArray[np.int64]:
    sizes = lengths(held or b"")[: shard.skip + shard.take] + AROUND
    if shard.take and len(sizes) < shard.skip + shard.take:
        raise ValueError(f"{shard.path} is truncated or damaged")
    ends = np.cumsum(sizes)
    return np.concatenate([[0], ends])[shard.skip :]
