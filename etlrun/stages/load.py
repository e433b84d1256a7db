"""Shuffling, batching and prefetching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import (
    BATCHES,
    ORDER,
    SPEED,
    Buffer,
    Expected,
    Flag,
    Natural,
    Nodes,
    Positive,
    Scope,
    Stage,
    Tuned,
)
from etlrun.stages.call import Call, Constant, Parallel, PassSeed, UpToAll
from etlrun.stages.flow import Flow

ShuffleBuffer = Annotated[int, Field(ge=0, le=100_000_000), Expected("an integer from 0 to 100,000,000")]


@dataclass(frozen=True, kw_only=True)
class Shuffle(Stage):
    """Draws each example at random from a buffer; a different order in each pass, determined by the seed.

    Attributes:
        buffer_size: Buffer size in examples.
        seed: Seed of the trainer.
    """

    path: ClassVar[str] = "load.shuffle"
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Shuffle",)),)
    scope: ClassVar[Scope] = Scope.EACH
    only_reorders: ClassVar[bool] = True
    random: ClassVar[bool] = True

    buffer_size: Annotated[Positive, ORDER]
    seed: Annotated[Natural, ORDER]

    @property
    def holds(self) -> int:
        return self.buffer_size

    def call(self) -> Call:
        keywords = {"seed": PassSeed(), "reshuffle_each_iteration": False}
        return Call("shuffle", (UpToAll(self.buffer_size),), keywords)


@dataclass(frozen=True, kw_only=True)
class Batch(Stage):
    """Combines examples into batches.

    Attributes:
        batch_size: Examples per batch.
        drop_remainder: Whether to drop a last, smaller batch.
    """

    path: ClassVar[str] = "load.batch"
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(BATCHES),)
    scope: ClassVar[Scope] = Scope.EACH

    batch_size: Annotated[Positive, ORDER]
    drop_remainder: Annotated[Flag, ORDER]

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(batch_size=self.batch_size)

    def call(self) -> Call:
        keywords = {"drop_remainder": True} if self.drop_remainder else {}
        return Call("batch", (Constant("BATCH_SIZE", self.batch_size),), keywords)


@dataclass(frozen=True, kw_only=True)
class Prefetch(Stage):
    """Prepares batches while the model processes an earlier one.

    Attributes:
        buffer_size: Buffer size in batches.
    """

    path: ClassVar[str] = "load.prefetch"
    changes_data: ClassVar[bool] = False
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Prefetch",)),)
    tuned: ClassVar[Tuned | None] = Tuned("buffer_size", "buffer_size", "load.prefetch")
    scope: ClassVar[Scope] = Scope.AROUND

    buffer_size: Annotated[Buffer, SPEED]

    def call(self) -> Call:
        return Call("prefetch", (Parallel(self.buffer_size),))


@dataclass(frozen=True, kw_only=True)
class Load(Stage):
    """The `load` group of a config, from which a plan makes the stages shuffle, batch and prefetch.

    Attributes:
        shuffle_buffer: Buffer size in examples; 0 for no shuffling.
        batch_size: Examples per batch.
        drop_remainder: Whether to drop a last, smaller batch of a training pass.
        prefetch: Batches to prefetch; 0 for none.
        shuffle_at: `auto` shuffles examples as they are read where the steps after that change neither their number nor
            their order, so that the buffer holds encoded images and a pass starts at once; the examples and their order
            are the same. `before_batch` shuffles after all steps.
    """

    path: ClassVar[str] = "load"

    shuffle_buffer: Annotated[ShuffleBuffer, ORDER]
    batch_size: Annotated[Positive, ORDER]
    drop_remainder: Annotated[Flag, ORDER]
    prefetch: Annotated[Buffer, SPEED]
    shuffle_at: Annotated[Literal["auto", "before_batch"], Expected("auto or before_batch"), SPEED] = "auto"
