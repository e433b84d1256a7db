"""How records are read from the shards of a split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from etlrun.stages.base import ORDER, SPEED, Expected, Flag, Parallelism, Positive, Stage
from etlrun.stages.flow import Flow

Shards = Annotated[int, Field(ge=1, le=10_000), Expected("an integer from 1 to 10,000")]


@dataclass(frozen=True, kw_only=True)
class Tfds(Stage):
    """Reads as `tfds.load` reads, but keeps nothing in memory by itself.

    Attributes:
        decode: Whether pictures are decoded in TFDS's own parallel map, as `decode` does; if not, it is a step.
    """

    path: ClassVar[str] = "extract.tfds"

    decode: Annotated[Flag, SPEED]

    def flow(self, incoming: Flow) -> Flow:
        return incoming.replace(content="decoded" if self.decode else "encoded")


@dataclass(frozen=True, kw_only=True)
class Sequential(Stage):
    """Reads one shard after the other, in the order of their names."""

    path: ClassVar[str] = "extract.sequential"


@dataclass(frozen=True, kw_only=True)
class Interleave(Stage):
    """Reads several shards at once and takes records from them in turn.

    Attributes:
        cycle_length: Shards that are open at once.
        block_length: Records taken from one shard before the next has its turn.
        num_parallel_calls: Shards read in parallel, at most `cycle_length`; null reads in the consumer's thread, or,
            where broken records are skipped, as 1 does: the order after an error would be another.
        deterministic: false gives records as they come, so that no run can be repeated exactly.
    """

    path: ClassVar[str] = "extract.interleave"

    cycle_length: Annotated[Shards, ORDER]
    block_length: Annotated[Positive, ORDER]
    num_parallel_calls: Annotated[Parallelism, SPEED]
    deterministic: Annotated[Flag, ORDER]

    def rules(self) -> Iterator[tuple[str, str, str, str]]:
        calls = self.num_parallel_calls
        if isinstance(calls, int) and calls > self.cycle_length:
            yield (
                "num_parallel_calls",
                str(calls),
                f"at most cycle_length, which is {self.cycle_length}",
                f"set extract.cycle_length={calls} or extract.num_parallel_calls=autotune",
            )
