"""Files of tables that are being read: what their formats have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from etlrun.sources.rows.kinds import Kind


class TableFile(ABC):
    """A file of a table.

    Attributes:
        path: Its path.
        names: Names of its columns, in order.
        bytes: Its size.
        position: How many of its bytes have been read by the last pass.
    """

    names: Sequence[str]

    def __init__(self, path: str) -> None:
        self.path, self.bytes, self.position = path, Path(path).stat().st_size, 0

    @property
    def name(self) -> str:
        """Its name without folders, which stays where the file is copied."""
        return Path(self.path).name

    @abstractmethod
    def kinds(self, declared: Mapping[str, Kind], tell: Callable[[], None]) -> dict[str, Kind | None]:
        """Return the kinds of the columns, of all rows, None without a value; those that are declared need not fit.

        `tell` is called whenever `position` has moved.
        """

    @abstractmethod
    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in order, as the file has them; `kinds` are those to which they will be converted."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Return where a row is, counted from 0, as in `houses.csv, line 3`."""

    def notes(self, declared: Mapping[str, Kind]) -> Iterator[str]:
        """Yield what `kinds` has seen that a reader may not expect of columns that are not declared."""
        yield from ()
