"""Cost of a change: caches that are filled again, in bytes and seconds, and rates, memory and disk before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Value that was measured, or that follows from measured ones.

    Attributes:
        value: Median, or the most likely value.
        low: Lower end of what is to be expected; equal to `value` if no spread is known.
        high: Upper end.
        runs: Number of runs behind it.
    """

    value: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of the change of one experiment; None is what is not known, and never 0.

    Attributes:
        refill_bytes: Size of the caches on disk that will be filled again.
        refill_s: Seconds that filling them takes.
        examples_per_s: Training throughput before and after.
        au: Accelerator utilization (AU) before and after, from 0 to 1.
        memory_bytes: Peak resident memory before and after.
        disk_bytes: Size of the caches on disk before and after.
        machine: Machine that was measured; empty if nothing was.
    """

    refill_bytes: int | None = 0
    refill_s: Estimate | None = None
    examples_per_s: tuple[Estimate | None, Estimate | None] = (None, None)
    au: tuple[Estimate | None, Estimate | None] = (None, None)
    memory_bytes: tuple[int | None, int | None] = (None, None)
    disk_bytes: tuple[int | None, int | None] = (0, 0)
    machine: str = ""

    @property
    def lines(self) -> list[str]:
        """The cost, a sentence each."""
        return []


def summed(costs: Sequence[Cost]) -> list[str]:
    """Return the sums of costs, a sentence each."""
    del costs
    return []
