"""Timing of the loops over a pipeline: the input wait, the step, and the overhead of each step."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from etlrun.measure.stage_costs import StageCosts, Thread
from etlrun.record.summary import StageCost
from etlrun.remote.copies import Traffic

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the tensors of a batch, of which the first axis has the examples."""


class StepKind(NamedTuple):
    """Steps of one length: those of the model as it was compiled for the n-th time, on batches of the same shapes."""

    compiled: int
    shapes: Shapes


class StepTimes(NamedTuple):
    """Times of one step.

    Attributes:
        wait_s: Input wait.
        step_s: Duration, from when its batch was ready.
        kind: Kind of the step.
        starts_up: Whether it may compile: the first one, or the first of each kind where each is compiled.
    """

    wait_s: float
    step_s: float
    kind: StepKind
    starts_up: bool = False

    @property
    def examples(self) -> int:
        """Number of its examples."""
        return self.kind.shapes[0][0]


@dataclass
class Loop:
    """Times of one epoch in seconds.

    Attributes:
        steps: Times of its steps, in order.
        fill_s: Wait for the first batch of a pass (files, shuffle buffer); not part of the steady state.
        start_s: Additional time of the first pass of a process, which builds the graph and traces the step.
        tail_s: Wait for the end of a pass.
        digest_s: Wait for the digests of earlier batches.
        wall_s: Duration of the loop.
        cores: Mean number of cores in use; None if it was not measured.
        costs: Stage costs of its pass; None if it was not sampled.
        traffic: What was fetched meanwhile.
        first_fetch_s: Seconds in which the reader waited for shards before the first batch of a pass was there.
    """

    steps: list[StepTimes] = field(default_factory=list)
    fill_s: float = 0.0
    start_s: float = 0.0
    tail_s: float = 0.0
    digest_s: float = 0.0
    wall_s: float = 0.0
    cores: float | None = None
    costs: StageCosts | None = None
    traffic: Traffic = field(default_factory=Traffic)
    first_fetch_s: float = 0.0

    @property
    def warm(self) -> list[StepTimes]:
        """The steps that don't compile."""
        return [step for step in self.steps if not step.starts_up]

    @property
    def examples(self) -> int:
        """Number of examples."""
        return sum(step.examples for step in self.steps)

    @property
    def input_wait_s(self) -> float:
        """Input wait in the steady state, which begins with the first batch of a pass."""
        return sum(step.wait_s for step in self.steps) + self.tail_s

    @property
    def waited_s(self) -> float:
        """Input wait with that for the first batch of a pass."""
        return self.fill_s + self.input_wait_s

    @property
    def startup_s(self) -> float:
        """Start-up time of the process: the steps that may compile, and building the graph."""
        return self.start_s + sum(step.step_s for step in self.steps if step.starts_up)

    @property
    def measured_s(self) -> float:
        """`wall_s` without the start-up: the time that a faster pipeline or model would change."""
        return self.wall_s - self.startup_s

    @property
    def slowest(self) -> Thread:
        """The thread that limits its pass; one without shares if the pass was not sampled."""
        return Thread() if self.costs is None else self.costs.periods.slowest

    @property
    def rows(self) -> list[StageCost]:
        """Costs of the stages in its pass; empty if it was not sampled."""
        return [] if self.costs is None else self.costs.rows

    @property
    def overhead_s(self) -> float:
        """Time spent neither in input wait nor in steps: callbacks, progress, Keras itself, digests."""
        return max(0.0, self.wall_s - self.start_s - self.waited_s - sum(step.step_s for step in self.steps))

    def split_fill(self, fill_s: float) -> None:
        """Count the part of the fill wait beyond `fill_s` as start-up."""
        self.start_s += max(0.0, self.fill_s - fill_s)
        self.fill_s = min(self.fill_s, fill_s)

    def described(self) -> dict[str, float]:
        """Return the measurements as `summary.json` holds them for an epoch."""
        return {
            "wall_s": self.wall_s,
            "steps": len(self.steps),
            "examples": self.examples,
            "examples_per_s": self.examples / self.wall_s if self.wall_s else 0.0,
            "startup_s": self.startup_s,
            "startup_examples": sum(step.examples for step in self.steps if step.starts_up),
            "input_wait_s": self.input_wait_s,
            "fill_wait_s": self.fill_s,
            "digest_s": self.digest_s,
        }


class Meter:
    """Measures the loops of a run over one pipeline.

    A loop calls `begin`, then for each step `fetched` (once or more: some loops read a batch ahead) and `stepped`, and
    finally `end`.

    Attributes:
        loop: Times of the loop in progress.
        times_compiled: How often the model has been compiled anew: the next steps are of other kinds, and may compile.
        compiles_each: Whether the model is compiled for each kind of steps; else it is traced once for all.
        is_filling: Whether the next wait is that for the first batch of a pass.
    """

    def __init__(self, traffic: Callable[[], Traffic] = Traffic) -> None:
        """Begin; `traffic` returns what has been fetched so far."""
        self.loop, self._traffic = Loop(), traffic
        self.times_compiled, self.compiles_each = 0, False
        self._seen: set[StepKind | int] = set()
        self._ahead: deque[tuple[StepKind, bool]] = deque()
        self._wait_s = 0.0
        self._began_s = self._ready_s = time.perf_counter()
        self.is_filling, self._fetched = False, Traffic()

    def begin(self) -> None:
        """Start the clock of a loop."""
        self.loop, self._wait_s, self._fetched = Loop(), 0.0, self._traffic()
        self._began_s = time.perf_counter()

    @property
    def ahead(self) -> int:
        """Number of batches that have been read, and not trained on."""
        return len(self._ahead)

    def fetched(self, wait_s: float, shapes: Shapes) -> None:
        """Record a batch of `shapes` that arrived after `wait_s`."""
        self._wait_s += wait_s
        if self.is_filling and not self._ahead:
            self.loop.first_fetch_s = self._traffic().since(self._fetched).waited_s
        kind = StepKind(self.times_compiled, shapes)
        compiled = kind if self.compiles_each else self.times_compiled
        self._ahead.append((kind, compiled not in self._seen))
        self._seen.add(compiled)
        self.ready()

    def ready(self) -> None:
        """Start the clock of the step."""
        self._ready_s = time.perf_counter()

    def held_up(self, seconds: float) -> None:
        """Record a wait for digests, during which the pipeline continued."""
        self.loop.digest_s += seconds
        self.ready()

    def stepped(self) -> None:
        """Record the end of the step on the oldest batch."""
        step_s = time.perf_counter() - self._ready_s
        if self.is_filling:
            self.loop.fill_s += self._wait_s
            self._wait_s, self.is_filling = 0.0, False
        self.loop.steps.append(StepTimes(self._wait_s, step_s, *self._ahead.popleft()))
        self._wait_s = 0.0

    def end(self) -> Loop:
        """Return the finished loop; a wait since the last step was for the end of the pass."""
        self.loop.tail_s, self._wait_s = self._wait_s, 0.0
        self.loop.wall_s = time.perf_counter() - self._began_s
        self.loop.traffic = self._traffic().since(self._fetched)
        return self.loop

    def ended(self, wait_s: float) -> None:
        """Record the end of a pass, known after `wait_s`; a loop that reads ahead has a step left."""
        self._wait_s += wait_s
        self.ready()
