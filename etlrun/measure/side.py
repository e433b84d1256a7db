"""Measurements of one pipeline over the epochs of a run: its waits, its steps, and what they would gain."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from etlrun.measure.meter import Kind, Loop

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
        loops: Times of its epochs.
        floors: Duration in seconds of a step of each kind on a batch that is ready, see `floors_of`; empty if unknown.
        handover_s: Wait for a batch that is ready, which no pipeline can avoid.
        example_bytes: Mean bytes of an example in the shards that are fetched; 0 if none are.
    """

    name: str
    paths: tuple[str, ...]
    loops: tuple[Loop, ...]
    floors: Mapping[Kind, float]
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
        """Duration of all steps if each batch were ready: the sum of their floors."""
        return sum(self.floors.get(kind, 0.0) for loop in self.loops for kind in loop.warm(loop.kinds))

    @property
    def floor_s(self) -> float | None:
        """Mean duration of a step on a batch that is ready; None if it could not be measured."""
        if not self.steps:
            return statistics.fmean(self.floors.values()) if self.floors else None
        return self.floors_s / self.steps or None

    @property
    def example_s(self) -> float:
        """Duration of a step on a batch that is ready, by example; 0 if it could not be measured."""
        return self.floors_s / max(1, sum(sum(loop.warm(loop.examples)) for loop in self.loops))

    @property
    def digests_s(self) -> float:
        """Wait for digests in all epochs."""
        return sum(loop.digest_s for loop in self.loops)

    @property
    def ceiling_gain(self) -> float:
        """Speedup if each step were as short as on a batch that is ready; at least 1."""
        overhead_s = sum(loop.overhead_s for loop in self.loops)
        return max(1.0, self.measured_s / (self.floors_s + self.handovers_s + overhead_s))


def floors_of(loops: Sequence[Loop], ready: Sequence[Loop]) -> dict[Kind, float]:
    """Return the floor of each kind of steps in seconds: their duration on a batch that is ready.

    `loops` are those of the training, whose steps compete with the pipeline, and `ready` have steps on batches that are
    ready. The floor of a kind is the smaller median of the two. Kinds that are rare or too many are not in `ready`:
    theirs is the median in training, times the ratio of the floors to the medians of those that are, over all their
    steps. Without any in `ready`, it is the lower quartile in training.
    """
    training, timed = by_kind(loops), by_kind(ready)
    if not timed:
        return {kind: float(np.quantile(of, 0.25)) for kind, of in training.items()}
    medians = {kind: statistics.median(of) for kind, of in training.items()}
    floors = {kind: min(statistics.median(of), medians.get(kind, math.inf)) for kind, of in timed.items()}

    def all_s(each_s: Mapping[Kind, float]) -> float:
        return sum(each_s[kind] * len(training[kind]) for kind in floors if kind in training)

    ratio = all_s(floors) / all_s(medians) if all_s(medians) else 1.0
    return {kind: ratio * median for kind, median in medians.items()} | floors


def by_kind(loops: Sequence[Loop]) -> dict[Kind, list[float]]:
    """Return the durations of the steps of each kind, without those that may compile."""
    found: dict[Kind, list[float]] = {}
    for loop in loops:
        for kind, step_s in zip(loop.warm(loop.kinds), loop.warm_steps_s, strict=True):
            found.setdefault(kind, []).append(step_s)
    return found


def utilisation(sides: Sequence[Side]) -> float | None:
    """Return the accelerator utilization (AU), from 0 to 1: as MLPerf Storage defines it, step time over total.

    It is None where no step was measured, as in a run of one step, which compiles.
    """
    total_s = sum(side.measured_s for side in sides)
    if total_s <= 0 or not sides[0].floors or not any(side.steps for side in sides):
        return None
    return min(1.0, sum(side.floors_s for side in sides) / total_s)
