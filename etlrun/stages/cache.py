"""Caches: where examples are stored after the first pass, and at which point of the pipeline."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from etlrun.stages.base import SPEED, Data, Expected, Nodes, Speed, Stage, Text, selectable, single
from etlrun.stages.flow import Flow
from etlrun.stages.made import Call
from etlrun.stages.paths import OptionalPath
from etlrun.system import machine
from etlrun.system.values import frozen

POINTS = ("source", "decoded", "transformed", "features")
"""Points of a pipeline with names of their own, in order. A step's name means the point after that step."""


MEMORY_SHARE = 0.8
"""Share of the free memory that caches may take: the training needs some, too."""
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


@dataclass(frozen=True)
class Space:
    """Free space for caches.

    Attributes:
        free_bytes: Free bytes now.
        share: Fraction of them that caches may take.
        where: Description for a message.
    """

    free_bytes: int
    share: float
    where: str

    def takes(self, size: int) -> bool:
        """Return whether a cache of this size fits."""
        return size <= self.share * self.free_bytes


@frozen
class _Cache(Stage):
    """Values of a cache, which are the same for all targets, so that a sweep can vary each by itself.

    Attributes:
        at: `source` caches encoded images, `decoded` their pixels, `transformed` the output of the last step, the name
            of a step that of this step, `features` that of a frozen model's base.
        dir: Folder of caches on disk; null for the user's cache folder.
        codec: `jpeg90` and `jpeg95` cache uint8 images of one size as JPEGs of that quality, in a tenth of the space,
            with loss. All passes read them, the first one, too.
    """

    block = "cache"
    outlives_run: ClassVar[bool] = False
    """Whether later runs read it."""
    share: ClassVar[float] = MEMORY_SHARE
    """Share of the free space that it may take."""
    read_bytes_per_s: ClassVar[float] = 4e9
    """Rate at which it is read, where none was measured."""

    at: Annotated[Text, Expected("source, decoded, transformed, features, or the name of a step"), SPEED]
    dir: Speed[OptionalPath]
    codec: Data[Literal["raw", "jpeg90", "jpeg95"]] = "raw"

    @classmethod
    def space(cls, folder: Path) -> Space:  # noqa: ARG003 - for those that are on disk
        """Return the free space for it; `folder` is that of caches on disk."""
        return Space(free_bytes=machine.free_memory_bytes(), share=cls.share, where="memory")

    @property
    def keeps_features(self) -> bool:
        """Whether it holds the features of a frozen base instead of images."""
        return self.keeps and self.at == "features"

    @property
    def quality(self) -> int | None:
        """Quality of the JPEGs that it holds; None if it holds the examples as they are."""
        return int(self.codec.removeprefix("jpeg")) if self.keeps and self.codec != "raw" else None


@selectable
class NoCache(_Cache):
    """No cache: each pass reads and transforms again."""

    path = "cache.none"


@selectable
class MemoryCache(_Cache):
    """A cache in the memory of the process: the first pass fills it, later passes read it."""

    path = "cache.memory"
    keeps = True
    nodes = (Nodes(("MemoryCache",)), single("Concatenate", "Map"))  # the latter finds out its size

    def call(self) -> Call:
        return Call("cache")


@selectable
class DiskCache(_Cache):
    """A cache in files: the first pass fills it; later passes, and later runs on the same data, read it."""

    path = "cache.disk"
    keeps = True
    outlives_run = True
    share = 0.95
    read_bytes_per_s = 1e9
    nodes = (Nodes(("Concatenate",)), single("Map"))  # which writes it
    nodes_of_reading = (Nodes(("Concatenate", "Map", "ParallelMap")),)

    @classmethod
    def space(cls, folder: Path) -> Space:
        """Return the free space of the disk that has `folder`."""
        return Space(free_bytes=machine.free_disk_bytes(folder), share=cls.share, where=str(folder))


Cache = NoCache | MemoryCache | DiskCache
CACHES: dict[str, type[_Cache]] = {of.path.removeprefix("cache."): of for of in (NoCache, MemoryCache, DiskCache)}
"""All targets, those that take less memory first."""


def outlives_run(path: str) -> bool:
    """Return whether `path` is that of a cache that later runs read."""
    return any(of.path == path and of.outlives_run for of in CACHES.values())
