"""Where the transformed examples are kept after the first pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from etlrun.stages.base import Stage


@dataclass(frozen=True, kw_only=True)
class NoCache(Stage):
    """Each pass reads and transforms again."""

    path: ClassVar[str] = "cache.none"


@dataclass(frozen=True, kw_only=True)
class MemoryCache(Stage):
    """The first pass fills the process's memory, later passes read from there."""

    path: ClassVar[str] = "cache.memory"


@dataclass(frozen=True, kw_only=True)
class DiskCache(Stage):
    """The first pass fills files in the run's own folder, later passes read them; the run's end removes them."""

    path: ClassVar[str] = "cache.disk"
