"""Caches: where examples are stored after the first pass, and at which point of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import DATA, SPEED, Expected, Nodes, OptionalPath, Stage
from etlrun.stages.call import Call
from etlrun.stages.flow import Flow

POINTS = ("source", "decoded", "transformed", "features")
"""Points of a pipeline with names of their own, in order. A step's name means the point after that step."""

Point = Annotated[
    str,
    Field(min_length=1),
    Expected("source, decoded, transformed, features, or the name of a step"),
]
Dtype = Annotated[Literal["auto", "uint8"], Expected("auto or uint8")]


_WRITTEN = Nodes(("Map",), is_single=True)
"""A map that writes the cached examples."""
_SIZED = Nodes(("Concatenate", "Map"), is_single=True)
"""What finds out the size of the cached examples: at their end if all have one size, else a map that counts it."""


MEMORY_SHARE, DISK_SHARE = 0.8, 0.95
"""Shares of the free memory and of the free disk space that caches may take: the training needs some, too."""
_ROW_BYTES = 64
"""Most bytes that the index of a cache has for an example."""


def cache_bytes(flow: Flow, examples: int, varying_bytes: float | None = None) -> int | None:
    """Return the bytes of a cache of so many examples of `flow`, with its index; None if they are not known.

    `varying_bytes` is the mean size of what differs in size between examples, such as encoded images.
    """
    each = flow.example_bytes
    if each is None and varying_bytes is None:
        return None
    return int(examples * ((flow.fixed_bytes + (varying_bytes or 0.0) if each is None else each) + _ROW_BYTES))


@dataclass(frozen=True, kw_only=True)
class _Cache(Stage):
    """Values of a cache, which are the same for all targets, so that a sweep can vary each by itself.

    Attributes:
        at: `source` caches encoded images, `decoded` their pixels, `transformed` the output of the last step,
            `features` the output of a frozen model's base; the name of a step caches the output of that step.
        dtype: `uint8` refuses a point where inputs are float32, which takes four times the space.
        dir: Folder of caches on disk; null for the user's cache folder.
        when_busy: While another run fills the same cache on disk, `wait` for it or run `uncached`.
        codec: `jpeg90` and `jpeg95` cache uint8 images of one size as JPEGs of that quality, which take a tenth of the
            space, and lose details. All passes read them, the first one, too.
    """

    block: ClassVar[str] = "cache"
    outlives_run: ClassVar[bool] = False
    """Whether later runs read it."""

    at: Annotated[Point, SPEED]
    dtype: Annotated[Dtype, SPEED]
    dir: Annotated[OptionalPath, SPEED]
    when_busy: Annotated[Literal["wait", "uncached"], Expected("wait or uncached"), SPEED]
    codec: Annotated[Literal["raw", "jpeg90", "jpeg95"], Expected("raw, jpeg90 or jpeg95"), DATA] = "raw"

    @property
    def keeps_features(self) -> bool:
        """Whether it holds the features of a frozen base instead of images."""
        return self.keeps and self.at == "features"

    @property
    def quality(self) -> int | None:
        """Quality of the JPEGs that it holds; None if it holds the examples as they are."""
        return int(self.codec.removeprefix("jpeg")) if self.keeps and self.codec != "raw" else None


@dataclass(frozen=True, kw_only=True)
class NoCache(_Cache):
    """No cache: each pass reads and transforms again."""

    path: ClassVar[str] = "cache.none"


@dataclass(frozen=True, kw_only=True)
class MemoryCache(_Cache):
    """A cache in the memory of the process: the first pass fills it, later passes read it."""

    path: ClassVar[str] = "cache.memory"
    keeps: ClassVar[bool] = True
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("MemoryCache",)), _SIZED)

    def call(self) -> Call:
        return Call("cache")


@dataclass(frozen=True, kw_only=True)
class DiskCache(_Cache):
    """A cache in files: the first pass fills it; later passes, and later runs on the same data, read it."""

    path: ClassVar[str] = "cache.disk"
    keeps: ClassVar[bool] = True
    outlives_run: ClassVar[bool] = True
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Concatenate",)), _WRITTEN)
    nodes_of_reading: ClassVar[tuple[Nodes, ...] | None] = (Nodes(("Concatenate", "Map", "ParallelMap")),)


Cache = NoCache | MemoryCache | DiskCache
