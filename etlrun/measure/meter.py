"""Timing of the loops over a pipeline: the input wait, the step, and the overhead of each step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from etlrun.measure.stage_costs import StageCosts
from etlrun.remote.copies import Traffic

T = TypeVar("T")
Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the tensors of a batch, of which the first axis has the examples."""


class StepKind(NamedTuple):
    """Steps of one length: those of the model as it was compiled for the n-th time, on batches of the same shapes."""

    compiled: int
    shapes: Shapes


@dataclass
class Loop:
    """Times of the steps of one epoch, in order and in seconds.

    Attributes:
        waits_s: Input wait of each step.
        steps_s: Duration of each step, from when its batch was ready.
        examples: Number of examples of each step.
        starts_up: Whether each step may compile: the first one, or the first of each kind where each is compiled.
        fill_s: Wait for the first batch of a pass (files, shuffle buffer); not part of the steady state.
        start_s: Additional time of the first pass of a process, which builds the graph and traces the step.
        tail_s: Wait for the end of a pass.
        digest_s: Wait for the digests of earlier batches.
        wall_s: Duration of the loop.
        cores: Mean number of cores in use; None if it was not measured.
        costs: Stage costs of its pass; None if it was not sampled.
        traffic: What was fetched meanwhile.
        first_fetch_s: Seconds in which the reader waited for shards before the first batch of a pass was there.
        kinds: Kind of each step.
    """

    waits_s: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)
    starts_up: list[bool] = field(default_factory=list)
    fill_s: float = 0.0
    start_s: float = 0.0
    tail_s: float = 0.0
    digest_s: float = 0.0
    wall_s: float = 0.0
    cores: float | None = None
    costs: StageCosts | None = None
    traffic: Traffic = field(default_factory=Traffic)
    first_fetch_s: float = 0.0
    kinds: list[StepKind] = field(default_factory=list)

    @property
    def input_wait_s(self) -> float:
        """Input wait in the steady state, which begins with the first batch of a pass."""
        return sum(self.waits_s) + self.tail_s

    @property
    def startup_s(self) -> float:
        """Start-up time of the process: the steps that may compile, and building the graph."""
        return self.start_s + sum(self.steps_s) - sum(self.warm_steps_s)

    @property
    def startup_examples(self) -> int:
        """Number of examples in the start-up steps."""
        return sum(self.examples) - sum(self.warm(self.examples))

    @property
    def measured_s(self) -> float:
        """`wall_s` without the start-up: the time that a faster pipeline or model would change."""
        return self.wall_s - self.startup_s

    @property
    def warm_steps_s(self) -> list[float]:
        """Durations of the steps that don't compile."""
        return self.warm(self.steps_s)

    def warm(self, of_steps: Sequence[T]) -> list[T]:
        """Return the values of the steps that don't compile."""
        return [value for value, starts_up in zip(of_steps, self.starts_up, strict=True) if not starts_up]

    @property
    def overhead_s(self) -> float:
        """Time spent neither in input wait nor in steps: callbacks, progress, Keras itself, digests."""
        return max(0.0, self.wall_s - self.start_s - self.fill_s - self.input_wait_s - sum(self.steps_s))

    def split_fill(self, fill_s: float) -> None:
        """Count the part of the fill wait beyond `fill_s` as start-up."""
        self.start_s += max(0.0, self.fill_s - fill_s)
        self.fill_s = min(self.fill_s, fill_s)

    def described(self) -> dict[str, float]:
        """Return the measurements as `summary.json` holds them for an epoch."""
        examples = sum(self.examples)
        return {
            "wall_s": self.wall_s,
            "steps": len(self.steps_s),
            "examples": examples,
            "examples_per_s": examples / self.wall_s if self.wall_s else 0.0,
            "startup_s": self.startup_s,
            "startup_examples": self.startup_examples,
            "input_wait_s": self.input_wait_s,
            **spread_ms(self.waits_s),
            "fill_wait_s": self.fill_s,
            "digest_s": self.digest_s,
        }


def spread_ms(waits_s: Sequence[float]) -> dict[str, float]:
    """Return the median and the 95th percentile of the input waits of steps, in milliseconds."""
    median, p95 = (float(1000 * np.percentile(waits_s, share)) if waits_s else 0.0 for share in (50, 95))
    return {"input_wait_ms_median": median, "input_wait_ms_p95": p95}


class Meter:
    """Measures the loops of a run over one pipeline.

    A loop calls `begin`, then for each step `fetched` (once or more: some loops read a batch ahead) and `stepped`, and
    finally `end`. `pass_begun` marks the next wait as the one for the first batch of a pass.

    Attributes:
        loop: Times of the loop in progress.
        times_compiled: How often the model has been compiled anew.
        compiles_each: Whether the model is compiled for each kind of steps; else it is traced once for all.
    """

    def __init__(
        self, traffic: Callable[[], Traffic] = Traffic, *, times_compiled: int = 0, compiles_each: bool = False
    ) -> None:
        """Begin; `traffic` returns what has been fetched so far."""
        self.loop, self._traffic = Loop(), traffic
        self.times_compiled, self.compiles_each = times_compiled, compiles_each
        self._seen: set[StepKind | int] = set()
        self._ahead: deque[tuple[StepKind, bool]] = deque()
        self._wait_s = 0.0
        self._began_s = self._ready_s = time.perf_counter()
        self._is_filling, self._fetched = False, Traffic()

    def begin(self) -> None:
        """Start the clock of a loop."""
        self.loop, self._wait_s, self._fetched = Loop(), 0.0, self._traffic()
        self._began_s = time.perf_counter()

    def compiled(self) -> None:
        """Let the next steps be of other kinds, the first of which may compile: the model has been compiled anew."""
        self.times_compiled += 1

    @property
    def ahead(self) -> int:
        """Number of batches that have been read, and not trained on."""
        return len(self._ahead)

    def pass_begun(self) -> None:
        """Mark the next batch as the first of a pass."""
        self._is_filling = True

    def started_up(self, seconds: float) -> None:
        """Record that the step was traced, during which the pipeline read its first batch."""
        self.loop.start_s += seconds

    def fetched(self, wait_s: float, shapes: Shapes) -> None:
        """Record a batch of `shapes` that arrived after `wait_s`."""
        self._wait_s += wait_s
        if self._is_filling and not self._ahead:
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
        loop, (kind, is_new) = self.loop, self._ahead.popleft()
        loop.steps_s.append(time.perf_counter() - self._ready_s)
        loop.fill_s += self._wait_s if self._is_filling else 0.0
        loop.waits_s.append(0.0 if self._is_filling else self._wait_s)
        loop.examples.append(kind.shapes[0][0])
        loop.kinds.append(kind)
        loop.starts_up.append(is_new)
        self._wait_s, self._is_filling = 0.0, False

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
