"""Pipelines whose passes are read from the workers of tf.data's service, in the order of the plan; and its servers."""

from __future__ import annotations

import os
import queue
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import cancellation

from etlrun.cache.keeper import Keeper
from etlrun.graph.build import Passes, Pipeline, every_nth, of_pass, require_portable
from etlrun.graph.context import Context
from etlrun.graph.disk import Mapped
from etlrun.planning.plan import Plan, PlannedStage, stage_of
from etlrun.stages.load import Batch, Prefetch, Service, batches_in
from etlrun.system.errors import WorldError, headline

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_FORGOTTEN = ("iteration client", "dataset id", "iteration id", "task")
"""What a dispatcher that was started again doesn't know."""
_NO_FILE = "no such file"
_BEFORE_CAUSE = re.compile(r".*(Failed to get element|ParallelMapV2): ")
"""What stands before the reason in an error of a worker: of the service, and of the map that reads a cache."""


def is_gone(error: tf.errors.OpError) -> bool:
    """Return whether an error says that a server is gone or was started again, and nothing of data."""
    is_unknown = isinstance(error, tf.errors.NotFoundError) and _is_forgotten(error.message)
    return isinstance(error, _GONE) or is_unknown


def refused(error: tf.errors.OpError) -> Exception:
    """Return the error to raise for what a worker could not do."""
    if not isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError):
        return cast("Exception", error)
    if _is_forgotten(error.message.lower()):
        return WorldError(
            Service.key("address"),
            f"servers that do not know this pass: {headline(error)}",
            "the dispatcher and the workers with which it began",
            "look whether one was started again, or shares its port with another, and run again",
        )
    return WorldError(
        Service.key("address"),
        f"a worker that can't read a file: {_BEFORE_CAUSE.sub('', headline(error))}",
        "workers that have the files of the dataset, and of a cache, at the same paths",
        "mount the folder of the dataset, and cache.dir, on the machines of the workers, at the paths that "
        "they have here",
    )


def _is_forgotten(message: str) -> bool:
    """Return whether a server does not know a part of a pass; the path of a missing file may have the same words."""
    return _NO_FILE not in message.lower() and any(of in message for of in _FORGOTTEN)


_POLL_S = 1.0
_ITERATION_UNUSED_MS, _CHECKED_EACH_MS, _JOINED_MS = 5_000, 1_000, 20_000
"""Time after which a dispatcher forgets a pass that nobody reads, the interval of such checks, and the longest time in
which a worker reaches its dispatcher."""


def dispatch(port: int, say: Callable[[str], None]) -> None:
    """Serve as a dispatcher at `port` until a KeyboardInterrupt; raise `WorldError` if the port is taken."""
    service = _imported(port)
    config = service.DispatcherConfig(
        port=port, job_gc_check_interval_ms=_CHECKED_EACH_MS, job_gc_timeout_ms=_ITERATION_UNUSED_MS
    )
    _serve(lambda: service.DispatchServer(config), f"dispatcher at port {port}", say, lambda text: _taken(port, text))


def work(dispatcher: str, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve as a worker of `dispatcher` HOST:PORT, which runs reach at `host`, until a KeyboardInterrupt.

    Raises:
        WorldError: The port is taken, or there is no dispatcher of the same version of TensorFlow.
    """
    service = _imported(port)
    config = service.WorkerConfig(
        dispatcher_address=dispatcher,
        worker_address=f"{host}:%port%",
        port=port,
        heartbeat_interval_ms=_CHECKED_EACH_MS,
        dispatcher_timeout_ms=_JOINED_MS,
    )

    def failure(text: str) -> WorldError:
        return WorldError(
            "--dispatcher",
            f"no dispatcher at {dispatcher}: {text}",
            "HOST:PORT of a dispatcher that `etlrun service dispatcher` has started",
            "start it, with the same version of TensorFlow, and check the firewalls between",
        )

    _serve(lambda: service.WorkerServer(config), f"worker of {dispatcher}", say, failure)


def _imported(port: int) -> Any:
    """Return tf.data's service, for a server at a `port` that is free."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are for models
    try:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections hold no server up
            own.bind(("", port))
    except OSError as error:
        raise _taken(port, error.strerror or str(error)) from error
    return tf.data.experimental.service


def _serve(
    start: Callable[[], object], what: str, say: Callable[[str], None], failure: Callable[[str], WorldError]
) -> None:
    """Start a server, say `what` it is, and wait for a KeyboardInterrupt."""
    try:
        server = start()
    except tf.errors.OpError as error:
        raise failure(error.message) from error
    try:
        say(f"{what}, on all interfaces, without encryption or authentication: let a firewall limit it")
        while True:  # a wait without an end sleeps through a Ctrl-C that another thread receives
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        del server


def _taken(port: int, reason: str) -> WorldError:
    return WorldError("--port", f"{port}: {reason}", "a free port", "choose another with --port")


_PUT_S = 0.1
"""Interval at which a thread with a full queue looks whether its lane is closed."""


class Lane:
    """The elements of a dataset that other processes compute, read ahead by a thread.

    Reading can be cancelled, which an iterator of its own can't: its `next` waits for a server without end.

    Attributes:
        thread: The thread, which ends soon after the lane is closed or deleted.
    """

    def __init__(self, make: Callable[[], tf.data.Dataset], capacity: int) -> None:
        """Start to read what `make` returns, which is called in the thread; at most `capacity` elements ahead."""
        self._found: queue.Queue[tuple[Any, Any]] = queue.Queue(capacity)
        self._closed, self._cancel = threading.Event(), cancellation.CancellationManager()
        work = (make, self._found, self._closed, self._cancel)
        self.thread = threading.Thread(target=_read, args=work, name="etlrun-lane", daemon=True)
        self.thread.start()
        self._finalizer = weakref.finalize(self, _close, self._closed, self._cancel)

    def take(self, timeout_s: float) -> Any:
        """Return the next element.

        Raises:
            queue.Empty: There is none after `timeout_s`.
            StopIteration: There are no more.
            tf.errors.OpError: A server refuses, or can't read or transform an example.
        """
        element, error = self._found.get(timeout=timeout_s)
        if error is not None:
            self._found.put((element, error))
            raise error
        return element

    def close(self) -> None:
        """Stop reading; does not wait for it."""
        self._finalizer()


def _close(closed: threading.Event, cancel: Any) -> None:
    closed.set()
    cancel.start_cancel()


def _read(make: Callable[[], tf.data.Dataset], found: queue.Queue[Any], closed: threading.Event, cancel: Any) -> None:
    try:
        with tf.device("/CPU:0"):
            iterator = iter(make())
            # TensorFlow has one thread for all calls of a function: a lane that waits for a server that is gone would
            # hold up all that share it.
            next_of = tf.function(lambda of: of.get_next_as_optional(), autograph=False)
            read = cancel.get_cancelable_function(next_of.get_concrete_function(iterator))
            while not closed.is_set() and (element := read(iterator)).has_value():
                _put(found, (element.get_value(), None), closed)
        _put(found, (None, StopIteration()), closed)
    except Exception as error:  # noqa: BLE001 - raised where the element is taken
        _put(found, (None, error), closed)


def _put(found: queue.Queue[Any], element: Any, closed: threading.Event) -> None:
    while not closed.is_set():
        try:
            found.put(element, timeout=_PUT_S)
        except queue.Full:
            continue
        return


_END_S = 2.0
"""Longest wait for the threads of closed lanes."""
_LANE_AHEAD = 2
"""Batches that a lane holds with load.prefetch=autotune."""
_REQUESTED = 2
"""Batches that are requested from a worker ahead."""
_LOOK_S = 0.1
"""Interval at which a pass that waits for a batch looks at the time."""


class ServicePass:
    """Batches of a pass in the order of the plan, by turns from each lane; those that were taken are not read again."""

    def __init__(self, pipeline: ServedPipeline, number: int, done: int) -> None:
        self._pipeline, self._number, self._done = pipeline, number, done
        self._addresses = pipeline.service.addresses
        each = len(self._addresses)
        self._lanes = [pipeline.lane(number, lane, max(0, -(-(done - lane) // each))) for lane in range(each)]

    @property
    def left(self) -> int:
        """Number of batches that are yet to come."""
        return self._pipeline.batches_in_pass - self._done

    def __iter__(self) -> ServicePass:
        return self

    def __next__(self) -> Any:
        if self.left <= 0:
            self._lanes.clear()
            raise StopIteration
        own, lane = divmod(self._done, len(self._lanes))
        count, batch = self._taken(lane, own)
        while count < own:  # a worker that was started again sends some again
            count, batch = self._taken(lane, own)
        if count > own:
            raise self._incomplete(own, f"its batch {count + 1}")
        self._done += 1
        return batch

    def _taken(self, lane: int, own: int) -> tuple[int, Any]:
        """Return the next batch of a lane with its number; begin again after `own` batches if its server is gone."""
        service = self._pipeline.service
        until_s = time.monotonic() + service.timeout_s
        while time.monotonic() < until_s:
            try:
                fingerprint, (count, batch) = self._lanes[lane].take(_LOOK_S)
            except queue.Empty:
                continue
            except StopIteration:
                raise self._incomplete(own, "the end of its part") from None
            except tf.errors.OpError as error:
                if not is_gone(error):
                    raise self._pipeline.refused(error) from error
                time.sleep(_LOOK_S)
                self._lanes[lane].close()
                self._lanes[lane] = self._pipeline.lane(self._number, lane, own)
                continue
            if fingerprint.numpy() != self._pipeline.fingerprint:
                raise WorldError(
                    Service.key("address"),
                    f"batches of another plan from {self._addresses[lane]}",
                    "those of this run",
                    "look whether two workers share a port, give each its own --port, and run again",
                )
            return int(count), batch
        raise WorldError(
            Service.key("timeout_s"),
            f"no batch in {service.timeout_s:g} s from {self._addresses[lane]}",
            "a dispatcher with a worker, which reach each other",
            f"look whether they run (etlrun service worker --dispatcher {self._addresses[lane]} --trusted-network), or "
            "set a longer load.service.timeout_s",
        )

    def _incomplete(self, own: int, found: str) -> WorldError:
        return WorldError(
            Service.path,
            f"{found} of a worker after {own} batches",
            f"{self._pipeline.batches_in_pass} batches of all workers in pass {self._number} of {self._pipeline.name}",
            "check that all workers have the same files",
        )


class ServedPipeline(Pipeline):
    """A pipeline whose passes are read from the workers of a service. A cache is whole before the first of them.

    Attributes:
        name: `train` or `validation`.
        service: Where its workers are.
        batch: Its batches.
        batches_in_pass: Number of batches of a pass.
        fingerprint: Fingerprint of the plan, which each batch brings along.
    """

    def __init__(self, name: str, plan: Plan, context: Context, service: Service, keeper: Keeper | None = None) -> None:
        """Build the graph; raise `ConfigError` if another process can't run it."""
        super().__init__(plan.pipelines[name], context, keeper)
        self._mapped: Mapped | None = None
        self.name, self.service, self.fingerprint = name, service, plan.fingerprint.encode()
        batch = stage_of(self.stages, Batch)
        assert batch is not None  # noqa: S101 - all plans have it
        self.batch, self.batches_in_pass = batch, batches_in(batch, int(self.split.num_examples))
        self._contexts = dict[int, Context]()
        self._lock = threading.Lock()
        self._open, self._threads = weakref.WeakSet[Lane](), list[threading.Thread]()
        require_portable(self._part(1, 0, 0))

    @property
    def _lanes(self) -> int:
        return len(self.service.addresses)

    def lane(self, number: int, lane: int, done: int) -> Lane:
        """Start to read a lane of the pass of that number, after `done` batches."""
        prefetch = stage_of(self.stages, Prefetch)
        ahead = 1 if prefetch is None else prefetch.buffer_size
        capacity = _LANE_AHEAD if isinstance(ahead, str) else -(-ahead // self._lanes)
        begun = Lane(partial(self._distributed, number, lane, done), capacity)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), begun.thread]
        self._open.add(begun)
        return begun

    def _distributed(self, number: int, lane: int, done: int) -> tf.data.Dataset:
        made_for = tf.data.Dataset.from_tensors(self.fingerprint).repeat()
        marked = tf.data.Dataset.zip((made_for, self._part(number, lane, done)))
        distribute = tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
            service=f"grpc://{self.service.addresses[lane]}",
            compression=None,
            max_outstanding_requests=_REQUESTED,
        )
        return marked.apply(distribute)

    def _part(self, number: int, lane: int, done: int) -> tf.data.Dataset:
        cached = self._cached()
        with self._lock:
            context = self._contexts.get(number)
            if context is None:  # the lanes of a pass share it, and so what is traced
                context = of_pass(self.context, number)
                self._contexts = {**{of: self._contexts[of] for of in [*self._contexts][-1:]}, number: context}
        return every_nth(self.stages, context, cached, place=lane, of=self._lanes, done=done)

    def _cached(self) -> Mapped | None:
        """Return the examples of the cache; None without one, or if this run can't have it."""
        with self._lock:
            found = self.keeper.parts if self._mapped is None and self.keeper is not None else []
            if found:
                self._mapped = Mapped(found, self._kept, self.keeper.numbers)  # type: ignore[union-attr]
            return self._mapped

    def _next_pass(self) -> Any:
        if self.keeper is not None and self.fill() and self.keeper.count:
            self.keeper.begin()
        return self._served()

    def _served(self) -> Any:
        self._cached()  # which may take longer than a batch
        self._number += 1
        done, self._skipped = self._skipped // self.batch.batch_size, 0
        return ServicePass(self, self._number, done)

    def refused(self, error: tf.errors.OpError) -> Exception:
        """Return the error to raise for what a worker could not do: of a cache whose files have changed, or its own."""
        failure = self.keeper.examined(Mapped.changed(error)) if self.keeper is not None else None
        return failure or refused(error)

    def endless(self) -> tf.data.Dataset:
        """Return the batches of the next pass and all later ones; each begins before the end of the one before it."""
        return Passes(self.dataset, partial(self._all_passes, self._next_pass), self.dataset.handed)

    def _all_passes(self, begin: Callable[[], ServicePass]) -> Iterator[Any]:
        following: ServicePass | None = begin()
        while following is not None:
            now, following = following, None
            for batch in now:
                if following is None and now.left <= self._lanes:
                    following = begin()
                yield batch
            following = following or begin()

    def repeated_alone(self, stages: Sequence[PlannedStage], *, from_cache: bool) -> Iterator[Any]:
        """Return the batches of the next passes, from the service as it is."""
        return self._all_passes(self._served)

    def close(self) -> None:
        """Stop reading."""
        for lane in (*self._open,):
            lane.close()
        until_s = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))


def pipelines_of(plan: Plan, contexts: Mapping[str, Context], keepers: Mapping[str, Keeper]) -> dict[str, Pipeline]:
    """Return the pipelines of a run by name, which read from a service if its plan has one.

    Raises:
        ConfigError: A step can't be done by another process.
    """
    service = plan.spec.load.service
    if service is None:
        return {name: Pipeline(plan.pipelines[name], of, keepers.get(name)) for name, of in contexts.items()}
    return {name: ServedPipeline(name, plan, of, service, keepers.get(name)) for name, of in contexts.items()}
