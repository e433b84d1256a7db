"""How examples become the batches that the model waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

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
    """Gives a random one of the next `buffer_size` examples; another order in each pass, fixed by the seed.

    Attributes:
        buffer_size: In examples.
        seed: The trainer's.
    """

    path: ClassVar[str] = "load.shuffle"
    nodes: ClassVar[tuple[Nodes, ...]] = (Nodes(("Shuffle",)),)
    scope: ClassVar[Scope] = Scope.EACH
    only_reorders: ClassVar[bool] = True
    random: ClassVar[bool] = True

    buffer_size: Annotated[Positive, ORDER]
    seed: Annotated[Natural, ORDER]

    def call(self) -> Call:
        keywords = {"seed": PassSeed(), "reshuffle_each_iteration": False}
        return Call("shuffle", (UpToAll(self.buffer_size),), keywords)


@dataclass(frozen=True, kw_only=True)
class Batch(Stage):
    """Puts examples together.

    Attributes:
        batch_size: In examples.
        drop_remainder: Whether a last, smaller batch is left out.
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
    """Prepares batches while the model works on an earlier one.

    Attributes:
        buffer_size: In batches.
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
    """The `load` group of a config; a plan makes the stages shuffle, batch and prefetch of it.

    Attributes:
        shuffle_buffer: In examples; 0 for no shuffling.
        batch_size: In examples.
        drop_remainder: Whether a last, smaller batch of a training pass is left out.
        prefetch: In batches; 0 for none.
    """

    path: ClassVar[str] = "load"

    shuffle_buffer: Annotated[ShuffleBuffer, ORDER]
    batch_size: Annotated[Positive, ORDER]
    drop_remainder: Annotated[Flag, ORDER]
    prefetch: Annotated[Buffer, SPEED]
