"""Numbers of rows as records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@lru_cache(maxsize=4)
def in_random_order(count: int) -> Numbers:
    """Return the numbers below `count` in a random order, always the same one; a plan and its run share the array."""
    found = np.random.default_rng(0).permutation(count).astype(np.int64, copy=False)
    found.setflags(write=False)
    return found


@dataclass(frozen=True)
class RowNumbers:
    """Numbers of rows as records: the record of an example is the number of its row in the kept columns."""

    rows: Numbers

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def read(self, numbers: Numbers) -> Numbers:
        """Return the records of these numbers."""
        return self.rows[numbers]
