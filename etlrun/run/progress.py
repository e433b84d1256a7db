"""Progress of a training on a terminal, read from its meters: the steps themselves take no time for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from etlrun.measure.meter import Loop
from etlrun.measure.watched import Watch
from etlrun.run.hosts.here import here
from etlrun.system.progress import Task, left


@dataclass
class _Sums:
    """Sums over the steps of a loop so far, without those that may compile.

    Attributes:
        loop: The loop.
        steps: Number of all its steps.
        warm: Number of those that are summed.
        steps_s: Seconds of these.
        waits_s: Seconds that they waited for their batches.
        examples: Number of their examples.
    """

    loop: Loop
    steps: int = 0
    warm: int = 0
    steps_s: float = 0.0
    waits_s: float = 0.0
    examples: int = 0

    def update(self) -> None:
        """Add the steps since the last call."""
        loop, known = self.loop, self.steps
        self.steps = len(loop.starts_up)  # to which a step is added last
        for place in range(known, self.steps):
            if not loop.starts_up[place]:
                self.warm += 1
                self.steps_s += loop.steps_s[place]
                self.waits_s += loop.waits_s[place]
                self.examples += loop.examples[place]


class Steps(Task):
    """Steps of an epoch, or batches of its validation or of a pass.

    Attributes:
        sums: Sums over the steps so far.
    """

    def __init__(
        self, what: str, total: int | None, watch: Watch, *, epochs_left: int = 0, others_s: float = 0.0
    ) -> None:
        """Begin; `epochs_left` epochs follow, and `others_s` seconds of other work."""
        super().__init__(what, total)
        self._watch, self._epochs_left, self._others_s = watch, epochs_left, others_s
        self.sums = _Sums(watch.meter.loop)

    def count(self) -> str:
        """Return the number of steps, or that the first one is awaited."""
        if self.sums.loop is not self._watch.meter.loop:
            self.sums = _Sums(self._watch.meter.loop)
        self.sums.update()
        self.done = self._watch.resumed_batches + self.sums.steps
        return super().count() if self.sums.steps else f"first step, {self.elapsed_s:.0f} s"

    def further(self) -> Iterable[str]:
        """Yield the time left for the run, the throughput, and the share of the time that was spent waiting."""
        sums = self.sums
        busy_s = sums.steps_s + sums.waits_s
        if not sums.warm or not busy_s:
            return
        if self.total is not None:
            steps = max(0, self.total - self.done) + self._epochs_left * self.total
            yield left(steps * busy_s / sums.warm + self._others_s)
        yield f"{here().count * sums.examples / busy_s:,.1f} examples/s"
        waited_s = sums.waits_s + sums.loop.fill_s
        yield f"wait {waited_s / (busy_s + sums.loop.fill_s):.0%}"
