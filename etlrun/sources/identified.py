"""What a split gives besides its examples: what identifies its content, and its records by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from etlrun.stages.lazy import np, npt

if TYPE_CHECKING:
    from etlrun.cache.keeper import Compared


class Records(Protocol):
    """Records by number, from 0. Its functions may be called by several threads at once."""

    @property
    def count(self) -> int:
        """Number of records."""

    def read(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return these records; raise `ValueError` if one is damaged, `OSError` if it can't be read."""


class Identified(Protocol):
    """Content of a split at the time of construction: files that are modified later count as changed."""

    @property
    def digest(self) -> str | None:
        """First 16 hex digits of a SHA-256 over what is read; None if it can't be read."""

    def compared(self) -> Compared:
        """Return a comparison for another pass."""

    def changed(self) -> str | None:
        """Return the path of a file that is, or was when a pass read it, another than at first; None if none is."""

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return names with what identifies their content; `WorldError` if a file can't be read."""
