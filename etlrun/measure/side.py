"""Measurements of one pipeline over the epochs of a run: its waits, its steps, and what they would gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from etlrun.measure.meter import Loop

TRAIN, VALIDATION, FIRST_EPOCH = "train", "validation", "first epoch"
"""Parts of a run by their names."""
LEAST = 1e-3
"""Smallest fraction of the total time that is left without a wait."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """Measurements of one pipeline.

    Attributes:
        name: `train`, `first epoch` or `validation`.
        paths: Paths of its stages.
        batch_size: Examples per batch.
        loops: Times of its epochs.
        floor_s: Duration of a step on a batch that is ready; None if it could not be measured.
        handover_s: Wait for a batch that is ready, which no pipeline can avoid.
        example_bytes: Mean bytes of an example in the shards that are fetched; 0 if none are.
    """

    name: str
    paths: tuple[str, ...]
    batch_size: int
    loops: tuple[Loop, ...]
    floor_s: float | None
    handover_s: float = 0.0
    example_bytes: float = 0.0

    @property
    def pipeline(self) -> str:
        """Its pipeline: `train` or `validation`."""
        return self.name if self.name == VALIDATION else TRAIN

    @property
    def measured_s(self) -> float:
        """Duration of all epochs, without the steps that may compile."""
        return sum(loop.measured_s for loop in self.loops)

    @property
    def waits_s(self) -> float:
        """Input wait of all epochs, including the wait for the first batch of each pass."""
        return sum(loop.fill_s + loop.input_wait_s for loop in self.loops)

    @property
    def avoidable_s(self) -> float:
        """Input wait that a faster pipeline would avoid."""
        return max(0.0, self.waits_s - self.handovers_s)

    @property
    def gain(self) -> float:
        """Speedup without the avoidable input wait."""
        return self.measured_s / max(self.measured_s - self.avoidable_s, LEAST * self.measured_s, 1e-9)

    def of_epochs(self, first: int, end: int | None = None) -> Side:
        """Return the measurements of these epochs alone."""
        return dataclasses.replace(self, loops=self.loops[first:end])

    @property
    def handovers_s(self) -> float:
        """Time that all steps take to receive batches that are ready."""
        return self.steps * self.handover_s

    @property
    def steps(self) -> int:
        """Number of steps that don't compile."""
        return sum(len(loop.warm_steps_s) for loop in self.loops)

    @property
    def floors_s(self) -> float:
        """Duration of all steps if each batch were ready."""
        return self.steps * (self.floor_s or 0.0)

    @property
    def digests_s(self) -> float:
        """Wait for digests in all epochs."""
        return sum(loop.digest_s for loop in self.loops)

    @property
    def ceiling_gain(self) -> float:
        """Speedup if each step were as short as on a batch that is ready; at least 1."""
        overhead_s = sum(loop.overhead_s for loop in self.loops)
        return max(1.0, self.measured_s / (self.floors_s + self.handovers_s + overhead_s))


def utilisation(sides: Sequence[Side]) -> float | None:
    """Return the accelerator utilization (AU) as MLPerf Storage defines it: step time over total time, in [0, 1].

    It is None where no step was measured, as in a run of one step, which compiles.
    """
    total_s = sum(side.measured_s for side in sides)
    if total_s <= 0 or sides[0].floor_s is None or not any(side.steps for side in sides):
        return None
    return min(1.0, sum(side.floors_s for side in sides) / total_s)
