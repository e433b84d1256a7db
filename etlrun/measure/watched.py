"""A dataset that tells how long each of its batches was waited for.

The wait is taken on the side of the loop that reads, around the very call that blocks, so that it is the wait that the
step had, on any Keras backend. It costs two readings of a clock; the iterator is TensorFlow's own.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import tensorflow as tf

from etlrun.graph.passes import Passes
from etlrun.measure.digest import Digest
from etlrun.measure.meter import Meter

_FIRST_LOOK_S, _LOOKS_APART_S = 0.05, 0.5


class Watch:
    """What is kept of the passes over one pipeline.

    Attributes:
        meter: Their times.
        digest: Of the examples that were read; None where it is not asked for.
        batch: The first batch that was read, for a step on a batch that is there; None before.
        filling: TensorFlow's iterator, as long as its first batch is being waited for; None otherwise.
        iterator: TensorFlow's, of the pass in progress; None before and after.
        pass_batches: Of passes that follow each other in one iterator; None where each pass has its own.
        passed: Batches of all passes so far.
        spent: TensorFlow's iterators that have done their work. To drop one may take it half a second, which no step
            is to wait for: the sampler does it.
    """

    def __init__(self, *, with_digest: bool) -> None:
        self.meter = Meter()
        self.digest = Digest() if with_digest else None
        self.batch: Any = None
        self.filling: Any = None
        self.iterator: Any = None
        self.pass_batches: int | None = None
        self.passed = 0
        self.spent: list[Any] = []
        self._lock = threading.Lock()
        self._models: list[Any] = []

    def fetched(self, wait_s: float, batch: Any) -> None:
        """Note a batch (inputs, target) that came after `wait_s` seconds."""
        self.meter.fetched(wait_s, tuple(tf.nest.flatten(batch)[0].shape))
        if self.batch is None:
            self.batch = batch
        if self.digest is not None:
            began_s = time.perf_counter()
            self.digest.add(*batch)
            self.meter.held_up(time.perf_counter() - began_s)

    def look(self, iterator: Any) -> None:
        """Keep the model of its graph that tf.data has for AUTOTUNE, which takes it 0.3 ms.

        tf.data drops the nodes of a stage once they have come to their end, which with a large shuffle buffer is
        before the first batch. So the latest model of the greatest depth counts, and the last one for what it lacks.
        """
        with suppress(tf.errors.OpError):  # there is none yet
            model = tf.data.experimental.get_model_proto(iterator)
            depth = _depth(model)
            with self._lock:
                deepest = self._models[0] if self._models and depth < _depth(self._models[0]) else model
                self._models = [deepest, model]

    def taken_models(self) -> list[Any]:
        """The deepest and the last of what was kept since the last call; empty where no pass was long enough."""
        with self._lock:
            models, self._models = self._models, []
        return models

    def release(self) -> None:
        """The pass is over, whether or not its end was read."""
        if self.iterator is not None:
            self.spent.append(self.iterator)
            self.iterator = None

    def close(self) -> None:
        """Drop TensorFlow's iterators now: Python can't end while one of them has Python's functions at work."""
        self.release()
        self.filling = None
        self.spent.clear()
        if self.digest is not None:
            self.digest.close()


def _depth(model: Any) -> int:
    """Nodes from the pipeline's end to its farthest source."""

    def below(identity: int) -> int:
        return 1 + max((below(key) for key in model.nodes[identity].inputs), default=0)

    return below(model.output)


class Watched(Passes):
    """`dataset`, whose passes are noted in `watch`; its elements are the same."""

    def __init__(self, dataset: tf.data.Dataset, watch: Watch) -> None:
        super().__init__(dataset, lambda: _Pass(dataset, watch))


class _Pass:
    """One pass, as a Python iterator. TensorFlow's begins with the first batch: Keras makes iterators that it drops."""

    def __init__(self, dataset: tf.data.Dataset, watch: Watch) -> None:
        self._dataset, self._watch, self._has_begun = dataset, watch, False
        self._looked_s = self._look_in_s = 0.0

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        watch, asked_s = self._watch, time.perf_counter()
        if not self._has_begun:
            self._has_begun, self._looked_s, self._look_in_s = True, asked_s, _FIRST_LOOK_S
            watch.release()
            watch.meter.pass_begun()
            watch.iterator = watch.filling = iter(self._dataset)
        elif watch.pass_batches is not None and watch.passed % watch.pass_batches == 0:
            watch.meter.pass_begun()
        watch.passed += 1
        try:
            batch = next(watch.iterator)
        except StopIteration:
            watch.meter.ended(time.perf_counter() - asked_s)
            raise
        finally:
            watch.filling = None
        now_s = time.perf_counter()
        watch.fetched(now_s - asked_s, batch)
        if now_s - self._looked_s > self._look_in_s:
            watch.look(watch.iterator)
            self._looked_s, self._look_in_s = now_s, min(2 * self._look_in_s, _LOOKS_APART_S)
            watch.meter.ready()
        return batch
