"""Several steps of a loop of Keras in one dispatch, of which Keras and its callbacks get one after the other."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from etlrun.measure.watched import Pass, Watch, shapes_of
from etlrun.stages.measure import Window
from etlrun.stages.trainer import Trainer

Ends = Callable[[int, int], int]
"""Function from the number of a step in its epoch, and in its training, to the number of steps up to the next end."""

_WARM_STEPS = 5
_DISPATCH_S, _MOST_STEPS, _FEWEST_STEPS = 0.1, 32, 4
_GAIN = 0.9
"""`auto` measures single steps, then one dispatch of as many as take 0.1 s; these are taken if a tenth faster."""


def ends_of(trainer: Trainer, windows: Sequence[Window], first: int) -> Ends:
    """Return where dispatches end: at the end of an epoch, at checkpoints, and at both ends of profile windows.

    `first` is the number in the run of the first step of the training.
    """
    edges = sorted({edge - first for window in windows for edge in window})

    def ends(batch: int, step: int) -> int:
        left = [edge - step for edge in edges if edge > step]
        if trainer.checkpoint_every_steps is not None:
            left.append(trainer.checkpoint_every_steps - batch % trainer.checkpoint_every_steps)
        if trainer.steps_per_epoch is not None:
            left.append(trainer.steps_per_epoch - batch)
        return min(left, default=sys.maxsize)

    return ends


class Steps(Protocol):
    """Steps of a model on one backend; `state` has one value on JAX, and is empty where variables have the state."""

    def __call__(self, state: Sequence[Any], batches: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """Return the logs of each of the steps on `batches`, of equal shapes, and the state after the last one."""
        ...

    def trace(self) -> object:
        """Trace what can be traced before the first batch."""
        ...

    def copied(self, state: Sequence[Any]) -> Any:
        """Return a copy of the state, as `restored` takes it."""
        ...

    def restored(self, copy: Any) -> Sequence[Any]:
        """Return the state of a copy, which stays as it is."""
        ...


class Executions(keras.callbacks.Callback):  # type: ignore[misc]
    """Step function of a loop of Keras that dispatches several steps at once, and a callback that counts them.

    Keras calls it for each step, and its callbacks get the number and the logs of each; the variables are those after
    the last step of a dispatch. So a dispatch ends where something needs them: see `ends`.

    Attributes:
        count: Steps of a dispatch; None until they are chosen.
        chosen: Function that is called with the number that is chosen, and with why.
    """

    def __init__(self, steps: Steps, count: int | None, watch: Watch) -> None:
        super().__init__()
        self.count, self._steps, self._watch, self._meter = count, steps, watch, watch.meter
        self.chosen: Callable[[int, str], object] = lambda *_: None
        self._ends: Ends | None = None
        self._batch, self._step = 0, -1
        self._is_counted = self._is_traced = False
        self._logs: deque[Any] = deque()
        self._read: deque[Any] = deque()
        self._seen: set[Any] = set()
        self._singles_s: list[float] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to count."""
        self._is_counted = True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Count the step that is next."""
        self._batch, self._step = batch, self._step + 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forget what the epoch before has read and not trained on."""
        self._logs.clear()
        self._read.clear()

    def on_train_end(self, logs: Any = None) -> None:
        """Count no more: later steps are measured alone, and have no ends, and nothing is tried."""
        if self.count is None:
            self._choose(1, "the training has too few steps in a row to try several")
        self._is_counted = False
        self.on_epoch_begin(0)

    def end_at(self, ends: Ends) -> None:
        """Let dispatches end where `ends` says."""
        self._ends = ends

    def __call__(self, *arguments: Any) -> Any:
        """Return the logs of the next step, for (iterator); on JAX also the state, for (state, iterator)."""
        *state, batches = arguments
        if self._meter is not self._watch.meter:  # steps on batches that are ready, a loop for each of their shapes
            self._meter = self._watch.meter
            self.on_epoch_begin(0)
        if not self._logs:
            state = [*self._dispatched(state, batches)]
        logs = self._logs.popleft()
        return (logs, *state) if state else logs

    def _dispatched(self, state: Sequence[Any], batches: Any) -> Sequence[Any]:
        """Dispatch the next steps."""
        if not self._is_traced and isinstance(batches, Pass):
            batches.begin(meanwhile=self._steps.trace)
        self._is_traced = True
        if self._read:
            self._watch.meter.ready()
        else:
            self._read.extend(self._taken(batches))
        if self.count is None:
            return self._tried(state) if len(self._read) >= _FEWEST_STEPS and self._is_even() else self._run(state, 1)
        return self._run(state, self.count if len(self._read) == self.count and self._is_even() else 1)

    def _taken(self, batches: Any) -> list[Any]:
        """Read the batches of the next dispatch; at the end of a pass they are fewer."""
        found = [next(batches)]
        ends = self._ends if self._ends and self._is_counted else lambda *_: sys.maxsize
        left = ends(self._batch, self._step)
        wanted = min(self._to_try(), ends(0, self._step)) if self.count is None else self.count
        if wanted > left:
            return found
        for _ in range(wanted - 1):
            try:
                found.append(next(batches))
            except StopIteration:
                break
        return found

    def _is_even(self) -> bool:
        """Return whether the batches that were read have the same shapes."""
        return len({shapes_of(of) for of in self._read}) == 1

    def _run(self, state: Sequence[Any], count: int) -> Sequence[Any]:
        batches = [self._read.popleft() for _ in range(count)]
        kind = (count, shapes_of(batches[0]))
        began_s = time.perf_counter()
        logs, state = self._steps(state, batches)
        if self.count is None and kind in self._seen:
            self._singles_s.append(time.perf_counter() - began_s)
        self._watch.meter.executed(count, compiles=kind not in self._seen)
        self._seen.add(kind)
        self._logs.extend(logs)
        return state

    def _to_try(self) -> int:
        """Return how many batches are to be read at once while the number of steps is not chosen."""
        if len(self._singles_s) < _WARM_STEPS:
            return 1
        single_s = float(np.median(self._singles_s))
        count = min(_MOST_STEPS, 1 << int(math.log2(max(1.0, _DISPATCH_S / single_s))))
        if count >= _FEWEST_STEPS:
            return count
        self._choose(1, f"a step takes {_ms(single_s)}, of which its dispatch is a small part")
        return 1

    def _tried(self, state: Sequence[Any]) -> Sequence[Any]:
        """Train on the batches that were read one by one, and choose by a trial of all at once from the same state."""
        batches, began_s = [*self._read], time.perf_counter()
        count, copy = len(batches), self._steps.copied(state)
        logs, after = self._steps(self._steps.restored(copy), batches)
        at_once = logs, self._steps.copied(after)
        state = self._steps.restored(copy)
        before_s = time.perf_counter()
        self._steps(state, batches)
        at_once_s = (time.perf_counter() - before_s) / count
        state = self._steps.restored(copy)
        tried_s = time.perf_counter() - began_s
        self._read.clear()
        found = []
        before_s = time.perf_counter()
        for batch in batches:
            logs, state = self._steps(state, [batch])
            found += [keras.tree.map_structure(float, of) for of in logs]
        single_s = (time.perf_counter() - before_s) / count
        self._logs.extend(found)
        self._watch.meter.started_up(tried_s)
        self._watch.meter.executed(count, compiles=False, without_s=tried_s)
        shown = f"{count} steps at once take {_ms(at_once_s)} each, and {_ms(single_s)} one by one"
        if not _equal(at_once, (found, self._steps.copied(state))):
            self._choose(1, f"{count} steps at once have other results in the last bits")
        elif at_once_s > _GAIN * single_s:
            self._choose(1, shown)
        else:
            self._choose(count, f"{shown}, with the same results to the bit")
        self._seen.add((count, shapes_of(batches[0])))
        return state

    def _choose(self, count: int, why: str) -> None:
        self.count = count
        self.chosen(count, why)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    return all(np.array_equal(of, as_in, equal_nan=True) for of, as_in in pairs)
