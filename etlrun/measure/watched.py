"""Passes over a pipeline that measure the wait for each batch, and the resources that the process uses meanwhile."""

from __future__ import annotations

import math
import resource
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import tensorflow as tf

from etlrun.graph.build import Passes
from etlrun.measure.digest import Digest
from etlrun.measure.meter import Meter, Shapes
from etlrun.remote.copies import Traffic

_FIRST_LOOK_S, _LOOKS_APART_S = 0.05, 0.5
_MOST_READY, _MOST_READY_VALUES = 16, 2**22
"""Batches of further shapes that are kept, and values in them."""
_PAUSE_S = 0.03
"""Pause between looks."""


class Watch:
    """Measurements of the passes over one pipeline.

    Attributes:
        meter: Times of the passes.
        digest: Digest of the examples that were read; None if it is not enabled.
        ready: First batch of each of the first shapes, for timing steps on ready batches: in all as many as are small.
        filling: TensorFlow's iterator while its first batch is pending; None otherwise.
        iterator: TensorFlow's iterator of the pass in progress; None before and after.
        first: First batch of the pass in progress, if a thread reads it, until a step has it; else None.
        pass_batches: Number of batches per pass, if consecutive passes share an iterator; None if each has its own.
        passed: Number of batches of all passes so far.
        resumed_batches: Number of batches of the epoch in progress that an earlier process has trained on.
        shapes: Shapes of all batches so far.
        keep: Called with each batch (inputs, targets, perhaps weights); None if none is to be kept.
        spent: Iterators of passes that have ended. The sampler has them deleted, outside of the steps.
    """

    def __init__(self, digest: Digest | None = None, traffic: Callable[[], Traffic] = Traffic) -> None:
        self.meter, self.digest = Meter(traffic), digest
        self.ready: dict[Shapes, Any] = {}
        self.filling: Any = None
        self.iterator: Any = None
        self.first: Future[Any] | None = None
        self.pass_batches: int | None = None
        self.passed = self.resumed_batches = 0
        self.shapes = set[Shapes]()
        self.keep: Callable[..., None] | None = None
        self.spent: list[Any] = []
        self._deletions: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._models: list[Any] = []

    def fetched(self, wait_s: float, batch: Any) -> None:
        """Record a batch (inputs, target) that arrived after `wait_s` seconds."""
        shapes = tuple(tuple(of.shape) for of in tf.nest.flatten(batch) if of is not None)
        self.meter.fetched(wait_s, shapes)
        if shapes not in self.shapes or not self.ready:
            self.shapes.add(shapes)
            values = sum(math.prod(shape) for kept in (*self.ready, shapes) for shape in kept)
            if not self.ready or (len(self.ready) < _MOST_READY and values <= _MOST_READY_VALUES):
                self.ready[shapes] = batch
        if self.keep is not None:
            self.keep(*batch)
        if self.digest is not None:
            began_s = time.perf_counter()
            self.digest.add(*batch)
            self.meter.held_up(time.perf_counter() - began_s)

    def look(self, iterator: Any) -> None:
        """Save the model of the graph that tf.data keeps for AUTOTUNE, which takes 0.3 ms.

        tf.data drops the nodes of a stage once they are exhausted, which with a large shuffle buffer is before the
        first batch. So the latest model of the greatest depth is used, and the last one for stages that it lacks.
        What other processes compute has none here.
        """
        if not isinstance(iterator, tf.data.Iterator):
            return
        with suppress(tf.errors.OpError):  # there is none yet
            model = tf.data.experimental.get_model_proto(iterator)
            with self._lock:  # the later of two of one depth
                deepest = max([model, *self._models[:1]], key=lambda of: _depth(of, of.output))
                self._models = [deepest, model]

    def taken_models(self) -> list[Any]:
        """Return the deepest and the last model since the previous call; empty if no pass was long enough."""
        with self._lock:
            models, self._models = self._models, []
        return models

    def release(self) -> None:
        """End the pass, whether or not its end was read."""
        if self.iterator is not None:
            self.spent.append(self.iterator)
            self.iterator = self.first = None

    def delete_spent(self) -> None:
        """Begin to delete the iterators of passes that have ended, each in a thread of its own.

        About one in ten is deleted only when AUTOTUNE, which tf.data's cancellation has not woken, looks again: its
        pauses double from 10 ms on, up to 2 minutes. One after the other, each would wait for a longer pause.
        """
        self._deletions = [thread for thread in self._deletions if thread.is_alive()]
        while self.spent:
            last = [self.spent.pop()]
            thread = threading.Thread(target=last.clear, name="etlrun-deletion", daemon=True)
            thread.start()
            self._deletions.append(thread)

    def wait_deleted(self) -> None:
        """Return when all iterators of passes that have ended are deleted, whatever interrupts."""
        self.delete_spent()
        for thread in self._deletions:
            while thread.is_alive():
                with suppress(KeyboardInterrupt):
                    thread.join()

    def close(self) -> None:
        """Delete TensorFlow's iterators: Python cannot exit while one of them runs Python functions."""
        while self.first is not None and not self.first.done():
            with suppress(KeyboardInterrupt):  # the reader would go on
                wait([self.first])
        self.release()
        self.filling = None
        self.wait_deleted()
        if self.digest is not None:
            self.digest.close()


def _depth(model: Any, identity: int) -> int:
    """Return the number of nodes from one of them to its farthest source."""
    return 1 + max((_depth(model, key) for key in model.nodes[identity].inputs), default=0)


class Watched(Passes):
    """Wrapper of `dataset` with the same elements that records its passes in `watch`."""

    def __init__(self, dataset: tf.data.Dataset, watch: Watch) -> None:
        super().__init__(dataset, lambda: WatchedPass(dataset, watch))


class WatchedPass:
    """Python iterator over one pass. TensorFlow's iterator is created late, since Keras makes some it never uses."""

    def __init__(self, dataset: tf.data.Dataset, watch: Watch) -> None:
        self._dataset, self._watch, self._has_begun = dataset, watch, False
        self._handed = dataset.handed if isinstance(dataset, Passes) else None
        self._looked_s = self._look_in_s = 0.0

    def __iter__(self) -> WatchedPass:
        return self

    def begin(self, meanwhile: Callable[[], object]) -> None:
        """Begin the pass, and call `meanwhile` while its first batch is read; the time counts as start-up."""
        began_s = time.perf_counter()
        self._begin(began_s)
        if isinstance(self._watch.iterator, tf.data.Iterator):  # which begins when it is asked; others read ahead
            reader = ThreadPoolExecutor(1)
            self._watch.first = reader.submit(next, self._watch.iterator)
            reader.shutdown(wait=False)
        meanwhile()
        self._watch.meter.loop.start_s += time.perf_counter() - began_s

    def __next__(self) -> Any:
        watch, asked_s = self._watch, time.perf_counter()
        if not self._has_begun:
            self._begin(asked_s)
        elif watch.pass_batches is not None and watch.passed % watch.pass_batches == 0:
            watch.meter.is_filling = True
        watch.passed += 1
        try:
            batch = next(watch.iterator) if watch.first is None else watch.first.result()
        except StopIteration:
            watch.meter.ended(time.perf_counter() - asked_s)
            raise
        finally:
            watch.filling = None
        batch = batch if self._handed is None else self._handed(batch)
        now_s, watch.first = time.perf_counter(), None
        watch.fetched(now_s - asked_s, batch)
        if now_s - self._looked_s > self._look_in_s:
            watch.look(watch.iterator)
            self._looked_s, self._look_in_s = now_s, min(2 * self._look_in_s, _LOOKS_APART_S)
            watch.meter.ready()
        return batch

    def _begin(self, now_s: float) -> None:
        watch = self._watch
        self._has_begun, self._looked_s, self._look_in_s = True, now_s, _FIRST_LOOK_S
        watch.release()
        watch.meter.is_filling = True
        watch.iterator = watch.filling = self._dataset.begin() if self._handed is not None else iter(self._dataset)


def _cpu_s() -> float:
    """CPU seconds of this process so far, and of those that it has started and that still run."""
    cpu_s = time.process_time()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            cpu_s += sum(child.cpu_times()[:2])
    return cpu_s


@contextmanager
def sampled(watches: Collection[Watch]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Sample the passes during a training, in a thread; the function returns what the process has used meanwhile.

    That is `cpu_s` and `cores_used` of all threads and of processes that decode, `cores_idle` of the machine, and
    `peak_rss_bytes` since its start.
    """
    stop, start_s, start_cpu_s = threading.Event(), time.perf_counter(), _cpu_s()
    start_idle_s = psutil.cpu_times().idle

    def look_on() -> None:
        while not stop.wait(_PAUSE_S):
            for watch in watches:
                watch.look(watch.filling)
                watch.delete_spent()

    def used() -> dict[str, Any]:
        wall_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - start_cpu_s
        cores_used, cores_idle = cpu_s / wall_s, (psutil.cpu_times().idle - start_idle_s) / wall_s
        peak, unit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 1 if sys.platform == "darwin" else 1024
        return {"peak_rss_bytes": peak * unit, "cpu_s": cpu_s, "cores_used": cores_used, "cores_idle": cores_idle}

    thread = threading.Thread(target=look_on, name="etlrun-sampler", daemon=True)
    thread.start()
    try:
        yield used
    finally:
        stop.set()
        thread.join()
        for watch in watches:
            watch.wait_deleted()
