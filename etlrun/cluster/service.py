"""Pipelines whose passes are read from the workers of tf.data's service, in the order of the plan; and its servers."""

import os
import queue
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import cancellation

from etlrun.cache.keeper import Keeper
from etlrun.graph.build import Passes, Pipeline, every_nth, of_pass, require_portable
from etlrun.graph.context import Context
from etlrun.planning.plan import Plan, PlannedStage, stage_of
from etlrun.stages.load import Batch, Prefetch, Service, batches_in
from etlrun.system.errors import WorldError, headline
from etlrun.system.terminal import tell

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_FORGOTTEN = ("iteration client", "dataset id", "iteration id", "task")
"""What a dispatcher that was started again doesn't know."""
_NO_FILE = "no such file"
_BEFORE_CAUSE = re.compile(r".*Failed to get element: ")
"""What stands before the reason in an error of a worker."""


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
        "workers that have the files of the dataset at the same paths",
        "mount the folder of the dataset on the machines of the workers, at the path that it has here",
    )


def _is_forgotten(message: str) -> bool:
    """Return whether a server does not know a part of a pass; the path of a missing file may have the same words."""
    return _NO_FILE not in message.lower() and any(of in message for of in _FORGOTTEN)


_POLL_S = 1.0
_ITERATION_UNUSED_MS, _CHECKED_EACH_MS, _JOINED_MS = 5_000, 1_000, 20_000
"""Time after which a dispatcher forgets a pass that nobody reads, the interval of such checks, and the longest time in
which a worker reaches its dispatcher."""


def serve(port: int, dispatcher: str | None = None, host: str = "localhost") -> None:
    """Serve at `port` until a KeyboardInterrupt: as a dispatcher, or as a worker of `dispatcher` HOST:PORT.

    Runs reach a worker at `host`.

    Raises:
        WorldError: The port is taken, or there is no dispatcher of the same version of TensorFlow.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are for models
    service, what = tf.data.experimental.service, f"dispatcher at port {port}"

    def taken(reason: str) -> WorldError:
        return WorldError("--port", f"{port}: {reason}", "a free port", "choose another with --port")

    try:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections hold no server up
            own.bind(("", port))
    except OSError as error:
        raise taken(error.strerror or str(error)) from error
    try:
        if dispatcher is None:
            times = {"job_gc_check_interval_ms": _CHECKED_EACH_MS, "job_gc_timeout_ms": _ITERATION_UNUSED_MS}
            server = service.DispatchServer(service.DispatcherConfig(port=port, **times))
        else:
            what = f"worker of {dispatcher}"
            times = {"heartbeat_interval_ms": _CHECKED_EACH_MS, "dispatcher_timeout_ms": _JOINED_MS}
            server = service.WorkerServer(service.WorkerConfig(dispatcher, f"{host}:%port%", port=port, **times))
    except tf.errors.OpError as error:
        if dispatcher is None:
            raise taken(error.message) from error
        raise WorldError(
            "--dispatcher",
            f"no dispatcher at {dispatcher}: {error.message}",
            "HOST:PORT of a dispatcher that `etlrun service dispatcher` has started",
            "start it, with the same version of TensorFlow, and check the firewalls between",
        ) from error
    try:
        tell(f"{what}, on all interfaces, without encryption or authentication: let a firewall limit it")
        while True:  # a wait without an end sleeps through a Ctrl-C that another thread receives
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        del server


_PUT_S = 0.1
"""Interval at which a thread with a full queue looks whether its lane is closed."""


class Lane:
    """The elements of a dataset that other processes compute, read ahead by a thread.

    Reading can be cancelled, which an iterator of its own can't: its `next` waits for a server without end.

    Attributes:
        found: Elements, each without an error; behind the last one None with that which ended them, or StopIteration.
        thread: The thread, which ends soon after the lane is closed or deleted.
    """

    def __init__(self, make: Callable[[], tf.data.Dataset], capacity: int) -> None:
        """Start to read what `make` returns, which is called in the thread; at most `capacity` elements ahead."""
        self.found: queue.Queue[tuple[Any, Any]] = queue.Queue(capacity)
        closed, cancel = threading.Event(), cancellation.CancellationManager()
        work = (make, self.found, closed, cancel)
        self.thread = threading.Thread(target=_read, args=work, name="etlrun-lane", daemon=True)
        self.thread.start()
        self.close = weakref.finalize(self, _close, closed, cancel)


def _close(closed: threading.Event, cancel: Any) -> None:
    closed.set()
    cancel.start_cancel()


def _read(make: Callable[[], tf.data.Dataset], found: queue.Queue[Any], closed: threading.Event, cancel: Any) -> None:
    def put(element: Any, error: Exception | None = None) -> None:
        while not closed.is_set():  # an error alone cancels `cancel`, too
            with suppress(queue.Full):
                found.put((element, error), timeout=_PUT_S)
                break

    try:
        with tf.device("/CPU:0"):
            iterator = iter(make())
            # TensorFlow has one thread for all calls of a function: a lane that waits for a server that is gone would
            # hold up all that share it.
            next_of = tf.function(lambda of: of.get_next_as_optional(), autograph=False)
            read = cancel.get_cancelable_function(next_of.get_concrete_function(iterator))
            while not closed.is_set() and (element := read(iterator)).has_value():
                put(element.get_value())
        put(None, StopIteration())
    except Exception as error:  # noqa: BLE001 - raised where the element is taken
        put(None, error)


_END_S = 2.0
"""Longest wait for the threads of closed lanes."""
_LANE_AHEAD = 2
"""Batches that a lane holds with load.prefetch=autotune."""
_REQUESTED = 2
"""Batches that are requested from a worker ahead."""
_LOOK_S = 0.1
"""Interval at which a pass that waits for a batch looks at the time."""


class ServedPipeline(Pipeline):
    """A pipeline whose passes are read from the workers of a service.

    A pass is read in the order of the plan, by turns from each lane; what was taken of it is not read again.

    Attributes:
        name: `train` or `validation`.
        service: Where its workers are.
        batches_in_pass: Number of batches of a pass.
        fingerprint: Fingerprint of the plan, which each batch brings along.
    """

    def __init__(self, name: str, plan: Plan, context: Context) -> None:
        """Build the graph; raise `ConfigError` if another process can't run it."""
        super().__init__(plan.pipelines[name], context)
        self.service = cast("Service", plan.spec.load.service)
        self.name, self.fingerprint = name, plan.fingerprint.encode()
        self._batch = cast("Batch", stage_of(self.stages, Batch))
        self.batches_in_pass = batches_in(self._batch, int(self.split.num_examples))
        self._count, self._lock = len(self.service.addresses), threading.Lock()
        self._context_of = lru_cache(2)(partial(of_pass, self.context))
        self._open, self._threads = weakref.WeakSet[Lane](), list[threading.Thread]()
        require_portable(self._part(1, 0, 0))

    def _lane(self, number: int, lane: int, done: int) -> Lane:
        """Start to read a lane of the pass of that number, after `done` batches."""
        prefetch = stage_of(self.stages, Prefetch)
        ahead = 1 if prefetch is None else prefetch.buffer_size
        capacity = _LANE_AHEAD if isinstance(ahead, str) else -(-ahead // self._count)
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
        with self._lock:  # the lanes of a pass share its context, and so what is traced
            context = self._context_of(number)
        return every_nth(self.stages, context, place=lane, of=self._count, done=done)

    def _next_pass(self) -> Any:
        """Begin to read the next pass, and return its batches."""
        self._number += 1
        done, self._skipped = self._skipped // self._batch.batch_size, 0
        each = self._count
        lanes = [self._lane(self._number, lane, max(0, -(-(done - lane) // each))) for lane in range(each)]
        return self._batches(lanes, self._number, done)

    def _batches(self, lanes: list[Lane], number: int, done: int) -> Iterator[Any]:
        for place in range(done, self.batches_in_pass):
            own, lane = divmod(place, self._count)
            count, batch = self._taken(lanes, number, lane, own)
            while count < own:  # a worker that was started again sends some again
                count, batch = self._taken(lanes, number, lane, own)
            if count > own:
                raise self._incomplete(number, own, f"its batch {count + 1}")
            yield batch

    def _taken(self, lanes: list[Lane], number: int, lane: int, own: int) -> tuple[int, Any]:
        """Return the next batch of a lane with its number; begin again after `own` batches if its server is gone."""
        address, until_s = self.service.addresses[lane], time.monotonic() + self.service.timeout_s
        while time.monotonic() < until_s:
            try:
                element, error = lanes[lane].found.get(timeout=_LOOK_S)
                if error is not None:
                    raise error
            except queue.Empty:
                continue
            except StopIteration:
                raise self._incomplete(number, own, "the end of its part") from None
            except tf.errors.OpError as wrong:
                if not is_gone(wrong):
                    raise refused(wrong) from wrong
                time.sleep(_LOOK_S)
                lanes[lane].close()
                lanes[lane] = self._lane(number, lane, own)
                continue
            fingerprint, (count, batch) = element
            if fingerprint.numpy() != self.fingerprint:
                raise WorldError(
                    Service.key("address"),
                    f"batches of another plan from {address}",
                    "those of this run",
                    "look whether two workers share a port, give each its own --port, and run again",
                )
            return int(count), batch
        raise WorldError(
            Service.key("timeout_s"),
            f"no batch in {self.service.timeout_s:g} s from {address}",
            "a dispatcher with a worker, which reach each other",
            f"look whether they run (etlrun service worker --dispatcher {address} --trusted-network), or set a longer "
            "load.service.timeout_s",
        )

    def _incomplete(self, number: int, own: int, found: str) -> WorldError:
        return WorldError(
            Service.path,
            f"{found} of a worker after {own} batches",
            f"{self.batches_in_pass} batches of all workers in pass {number} of {self.name}",
            "check that all workers have the same files",
        )

    def endless(self) -> tf.data.Dataset:
        """Return the batches of the next pass and all later ones; each begins before the end of the one before it."""
        return Passes(self.dataset, self._all_passes, self.dataset.handed)

    def _all_passes(self) -> Iterator[Any]:
        done, now = self._skipped // self._batch.batch_size, self._next_pass()
        while True:
            following: Iterator[Any] | None = None
            for place, batch in enumerate(now, done + 1):
                if following is None and self.batches_in_pass - place <= self._count:
                    following = self._next_pass()
                yield batch
            done, now = 0, following or self._next_pass()

    def repeated_alone(self, stages: Sequence[PlannedStage], *, from_cache: bool) -> Iterator[Any]:
        """Return the batches of the next passes, from the service as it is."""
        return self._all_passes()

    def close(self) -> None:
        """Stop reading."""
        for lane in (*self._open,):
            lane.close()
        until_s = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        super().close()


def pipelines_of(plan: Plan, contexts: Mapping[str, Context], keepers: Mapping[str, Keeper]) -> dict[str, Pipeline]:
    """Return the pipelines of a run, perhaps read from a service; `ConfigError` for a step that it can't do."""
    if plan.spec.load.service is not None:
        return {name: ServedPipeline(name, plan, of) for name, of in contexts.items()}
    return {name: Pipeline(plan.pipelines[name], of, keepers.get(name)) for name, of in contexts.items()}
