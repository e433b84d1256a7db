"""Numbers of rows as records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


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
