"""The dispatchers from which a run reads its batches, and what their errors mean."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from etlrun.stages.load import Service
from etlrun.system.errors import WorldError, headline
from etlrun.system.loading import loading

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
    with loading():
        import tensorflow as tf
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
    import tensorflow as tf

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
