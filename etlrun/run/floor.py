"""Step floor: the time of a step on a batch that is ready."""

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


def floor(model: keras.Model, work: Work, assessment: Assessment) -> Loop | None:
    """Time steps on one repeated batch in the same loop. The model has been saved, so these updates are discarded."""
    batch = work.watches["train"].batch
    if batch is None:
        return None
    ready = tf.data.Dataset.from_tensors(batch).repeat()
    watch = Watch(with_digest=False)
    watch.meter.begin()
    work.watches["train"].meter = watch.meter  # that of steps which are taken at once
    if keras.backend.backend() == "jax":
        for (
            variable
        ) in model.optimizer.variables:  # averages, which share the memory of weights, that a step overwrites
            variable.assign(keras.ops.copy(variable))
    began_s = time.process_time()
    with without_end_warnings():
        model.fit(
            Watched(ready, watch), callbacks=[_Floor(watch.meter, assessment.probe_s())], shuffle=False, verbose=0
        )
    loop = watch.meter.end()
    loop.cores = (time.process_time() - began_s) / loop.wall_s
    return loop
