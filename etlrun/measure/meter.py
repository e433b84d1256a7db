"""What one loop over a pipeline costs, step by step: waiting for a batch, working on it, and all between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Loop:
    """The steps of one epoch, in order. All times are in seconds.

    Attributes:
        waits_s: Before each step, how long it was blocked on data.
        steps_s: How long each step took once its batch was there.
        examples: Of each step.
        starts_up: Of each step whether it was the first with a batch of its shape, which may compile the model.
        fill_s: The wait for the first batch of a pass: files, shuffle buffer. No part of the steady state.
        start_s: What the first pass of a process takes beside that, once: its graph is made.
        tail_s: The wait for the news that a pass is over.
        digest_s: The wait for digests of earlier batches, where they don't keep up.
        wall_s: From the loop's begin to its end.
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

    @property
    def input_wait_s(self) -> float:
        """All waiting of the steady state, which a pass enters with its first batch."""
        return sum(self.waits_s) + self.tail_s

    @property
    def startup_s(self) -> float:
        """What only the first steps of a process take: the steps that may compile, and the making of the graph."""
        return self.start_s + sum(
            step for step, starts_up in zip(self.steps_s, self.starts_up, strict=True) if starts_up
        )

    @property
    def startup_examples(self) -> int:
        """The examples of those steps."""
        return sum(count for count, starts_up in zip(self.examples, self.starts_up, strict=True) if starts_up)

    @property
    def measured_s(self) -> float:
        """`wall_s` without the start-up: what a faster pipeline or model would change."""
        return self.wall_s - self.startup_s

    @property
    def warm_steps_s(self) -> list[float]:
        """The steps that don't compile."""
        return [step for step, starts_up in zip(self.steps_s, self.starts_up, strict=True) if not starts_up]

    @property
    def overhead_s(self) -> float:
        """What is neither waiting for data nor a step: callbacks, progress, Keras itself, digests."""
        return max(0.0, self.wall_s - self.start_s - self.fill_s - self.input_wait_s - sum(self.steps_s))

    def split_fill(self, fill_s: float) -> None:
        """Count what of `fill_s` exceeds the given seconds as start-up."""
        self.start_s, self.fill_s = max(0.0, self.fill_s - fill_s), min(self.fill_s, fill_s)

    def described(self) -> dict[str, float]:
        """As an epoch of `summary.json` has it."""
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
    """Median and 95th percentile of the waits of steps, in milliseconds."""
    median, p95 = (float(1000 * np.percentile(waits_s, share)) if waits_s else 0.0 for share in (50, 95))
    return {"input_wait_ms_median": median, "input_wait_ms_p95": p95}


class Meter:
    """Keeps the loops of a run over one pipeline.

    A loop calls `begin`, then for each step `fetched` (once or more: some loops read a batch ahead) and `stepped`, and
    at last `end`. `pass_begun` says that the next wait is for the first batch of a pass.
    """

    def __init__(self) -> None:
        self.loop = Loop()
        self._shapes: set[Any] = set()
        self._ahead: deque[tuple[int, bool]] = deque()
        self._wait_s = 0.0
        self._began_s = self._ready_s = time.perf_counter()
        self._is_filling = False

    def begin(self) -> None:
        """Start the clock of a loop."""
        self.loop, self._wait_s = Loop(), 0.0
        self._began_s = time.perf_counter()

    def pass_begun(self) -> None:
        """The next batch is the first of a pass."""
        self._is_filling = True

    def fetched(self, wait_s: float, shape: tuple[int, ...]) -> None:
        """A batch of `shape` has come after `wait_s`."""
        self._wait_s += wait_s
        self._ahead.append((shape[0], shape not in self._shapes))
        self._shapes.add(shape)
        self.ready()

    def ready(self) -> None:
        """What comes from here on is the step's own time."""
        self._ready_s = time.perf_counter()

    def held_up(self, seconds: float) -> None:
        """The loop has waited for so long for digests, while the pipeline went on."""
        self.loop.digest_s += seconds
        self.ready()

    def stepped(self) -> None:
        """The step on the oldest batch is done."""
        loop = self.loop
        loop.steps_s.append(time.perf_counter() - self._ready_s)
        if self._is_filling:
            loop.fill_s, self._is_filling, wait_s = loop.fill_s + self._wait_s, False, 0.0
        else:
            wait_s = self._wait_s
        loop.waits_s.append(wait_s)
        self._wait_s = 0.0
        count, is_new = self._ahead.popleft()
        loop.examples.append(count)
        loop.starts_up.append(is_new)

    def end(self) -> Loop:
        """The loop that is over; a wait since the last step was for the pass's end."""
        self.loop.tail_s, self._wait_s = self._wait_s, 0.0
        self.loop.wall_s = time.perf_counter() - self._began_s
        return self.loop

    def ended(self, wait_s: float) -> None:
        """The pass is over, as was known after `wait_s`; a loop that reads ahead has a step to do yet."""
        self._wait_s += wait_s
        self.ready()
