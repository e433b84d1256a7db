"""Step floors: the time of a step on a batch that is ready, of each kind of steps."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from etlrun.measure.assessment import Assessment, Work
from etlrun.measure.meter import Loop, Meter
from etlrun.measure.watched import Watch, Watched
from etlrun.run.hosts.here import here

_FLOOR_STEPS, _FEWEST_FLOOR_STEPS = 20, 2
_FEWEST_KINDS = 3
"""Kinds of steps that are timed, also if they take longer than a probe."""
_STEPS_OF_HOSTS = 5
"""Steps on several hosts, which all have to take the same number of them."""


@contextmanager
def without_end_warnings() -> Iterator[None]:
    """Suppress Keras's warning at the end of every dataset of unknown length."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data", category=UserWarning)
        yield


class _Floor(keras.callbacks.Callback):  # type: ignore[misc]
    """Times steps until there are enough, or until the time is up."""

    def __init__(self, meter: Meter, seconds: float) -> None:
        super().__init__()
        self.meter, self.until_s = meter, time.perf_counter() + seconds

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record the end of a step, and stop the training after enough of them."""
        self.meter.stepped()
        steps = len(self.meter.loop.steps_s)
        is_late = time.perf_counter() > self.until_s and steps >= _FEWEST_FLOOR_STEPS
        is_over = is_late or steps > _FLOOR_STEPS
        self.model.stop_training = steps >= _STEPS_OF_HOSTS if here().count > 1 else is_over


def ready_steps(model: keras.Model, work: Work, assessment: Assessment) -> list[Loop]:
    """Time steps on batches that are ready: a loop for each kind, on one batch again and again.

    The kinds that took most of the training come first, until the time of a probe is up. The model has been saved, so
    these updates are discarded.
    """
    watch, found = work.watches["train"], list[Loop]()
    shares = assessment.shares(watch.meter.times_compiled) if here().count == 1 else {}  # hosts take the same steps
    batches = sorted(watch.ready.items(), key=lambda of: -shares.get(of[0], 0.0))
    number, probe_s = watch.meter.times_compiled, assessment.probe_s()
    until_s = time.perf_counter() + probe_s
    for shapes, batch in batches if shares else batches[:1]:
        if len(found) >= _FEWEST_KINDS and time.perf_counter() > until_s:
            break
        own = Watch(with_digest=False)
        own.meter = watch.meter = Meter(times_compiled=number)
        found.append(_timed(model, batch, own, probe_s * shares.get(shapes, 1.0)))
    return found


def _timed(model: keras.Model, batch: Any, watch: Watch, seconds: float) -> Loop:
    """Return the loop of steps on a batch that is ready."""
    if keras.backend.backend() == "jax":  # averages share the memory of weights after each `fit`: a step overwrites it
        for variable in model.optimizer.variables:
            variable.assign(keras.ops.copy(variable))
    ready = tf.data.Dataset.from_tensors(batch).repeat()
    watch.meter.begin()
    began_s = time.process_time()
    with without_end_warnings():
        model.fit(Watched(ready, watch), callbacks=[_Floor(watch.meter, seconds)], shuffle=False, verbose=0)
    loop = watch.meter.end()
    loop.cores = (time.process_time() - began_s) / loop.wall_s
    return loop
