"""The servers of `etlrun service`, which serve runs on other machines until they are stopped."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from etlrun.system.errors import WorldError
from etlrun.system.loading import loading

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
            where="--dispatcher",
            found=f"no dispatcher at {dispatcher}: {text}",
            expected="HOST:PORT of a dispatcher that `etlrun service dispatcher` has started",
            remedy="start it, with the same version of TensorFlow, and check the firewalls between",
        )

    _serve(lambda: service.WorkerServer(config), f"worker of {dispatcher}", say, failure)


def _imported(port: int) -> Any:
    """Return tf.data's service, for a server at a `port` that is free."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are for models
    with loading():
        import tensorflow as tf
    _require_free(port)
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


def _require_free(port: int) -> None:
    """Raise `WorldError` if another process serves at `port`: TensorFlow's servers would share it, and the clients."""
    try:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections hold no server up
            own.bind(("", port))
    except OSError as error:
        raise _taken(port, error.strerror or str(error)) from error


def _taken(port: int, reason: str) -> WorldError:
    return WorldError(
        where="--port", found=f"{port}: {reason}", expected="a free port", remedy="choose another with --port"
    )
