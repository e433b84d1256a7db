"""Where examples are kept after the first pass, and at which point of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import SPEED, Expected, Nodes, OptionalPath, Stage
from etlrun.stages.call import Call

POINTS = ("source", "decoded", "transformed", "features")
"""Of a pipeline, in order, by names of their own. A step's name means the point after that step."""

Point = Annotated[
    str,
    Field(min_length=1),
    Expected("source, decoded, transformed, features, or the name of a step, after which it stands"),
]
Dtype = Annotated[Literal["auto", "uint8"], Expected("auto or uint8")]


_COUNTED = Nodes(("Map",), is_single=True)
"""A map that counts or writes what is kept."""


MEMORY_SHARE, DISK_SHARE = 0.8, 0.95
"""Shares of the free memory and of the free disk space that caches may take: the training needs some, too."""
_ROW_BYTES = 64
"""Most bytes that the index of a cache has for an example."""


def kept_bytes(examples: int, each_bytes: float) -> int:
    """Return the bytes of a cache of so many examples, with its index."""
    return int(examples * (each_bytes + _ROW_BYTES))


@dataclass(frozen=True, kw_only=True)
class _Cache(Stage):
    """All targets take the same values, so that each value is an axis of a sweep of its own.

    Attributes:
        at: `source` keeps encoded images, `decoded` their pixels, `transformed` what the last step gives, `features`
            what a frozen model's base makes of it; the name of a step keeps what that step gives.
        dtype: `uint8` refuses a point where inputs are float32, which take four times the space.
        dir: Where caches on disk are; null for the user's cache folder.
        when_busy: While another run fills the same cache on disk, `wait` for it or go on `uncached`.
    """

    block: ClassVar[str] = "cache"
    outlives_run: ClassVar[bool] = False
    """Whether later runs read what it keeps."""

    at: Annotated[Point, SPEED]
    dtype: Annotated[Dtype, SPEED]
    dir: Annotated[OptionalPath, SPEED]
    when_busy: Annotated[Literal["wait", "uncached"], Expected("wait or uncached"), SPEED]


@dataclass(frozen=True, kw_only=True)
class NoCache(_Cache):
    """Each pass reads and transforms again."""

    path: ClassVar[str] = "cache.none"


@dataclass(frozen=True, kw_only=True)
class MemoryCache(_Cache):
    """The first pass fills the process's memory, later passes read from there."""

    path: ClassVar[str] = "cache.memory"
    keeps: ClassVar[bool] = True
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("MemoryCache",)), _COUNTED)

    def call(self) -> Call:
        return Call("cache")


@dataclass(frozen=True, kw_only=True)
class DiskCache(_Cache):
    """The first pass that needs them fills files, which later passes, and later runs on the same data, read."""

    path: ClassVar[str] = "cache.disk"
    keeps: ClassVar[bool] = True
    outlives_run: ClassVar[bool] = True
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Concatenate",)), _COUNTED)
    nodes_of_reading: ClassVar[tuple[Nodes, ...]] = (Nodes(("Concatenate", "Map", "ParallelMap")),)
    """The same in a pass that reads the files."""


Cache = NoCache | MemoryCache | DiskCache
