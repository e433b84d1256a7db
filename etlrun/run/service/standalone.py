"""The servers of `etlrun service`, which serve runs on other machines until they are stopped."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from etlrun.run.loading import loading
from etlrun.run.service.loopback import bind_to_loopback, is_open, is_shared
from etlrun.run.service.versions import Hello, join
from etlrun.stages.service import is_loopback
from etlrun.system.errors import WorldError

_OPEN = "note  the port is open on all interfaces, without encryption or authentication: let a firewall limit it"


def dispatch(host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve as a dispatcher at `port`, and compare versions at `port + 1`, until a KeyboardInterrupt.

    Raises:
        WorldError: A port is taken, or `host` has no address.
    """
    try:
        hello = Hello(host.strip("[]"), port + 1)
    except socket.gaierror as error:
        found, expected = f"{host}: {error.strerror}", "a name of this machine that has an IPv4 address"
        raise WorldError(where="--host", found=found, expected=expected, remedy="choose another --host") from error
    except OSError as error:
        raise _taken(port + 1, error.strerror or str(error)) from error
    with hello:
        server = _started(lambda servers: servers.dispatch_server(port), host, port)
        threading.Thread(target=hello.serve_forever, daemon=True).start()
        _until_interrupted(f"dispatcher at {host}:{port}, versions at {host}:{port + 1}", say)
        del server


def work(dispatcher: str, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve as a worker of `dispatcher` HOST:PORT until a KeyboardInterrupt, or until the dispatcher ends.

    Raises:
        WorldError: There is no dispatcher of the same versions, it has ended, or the port is taken.
    """
    connection = join(dispatcher, "--dispatcher")
    server = _started(lambda servers: servers.worker_server(dispatcher, port, host), host, port)
    ended = threading.Thread(target=lambda: connection.recv(1), daemon=True)
    ended.start()
    is_stopped = _until_interrupted(f"worker of {dispatcher}", say, ended)
    del server
    if not is_stopped:
        raise WorldError(
            where="--dispatcher",
            found=f"the end of the dispatcher {dispatcher}",
            expected="a dispatcher that serves",
            remedy="start it again, and then this worker",
        )


def _started(serve: Callable[..., object], host: str, port: int) -> object:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are for models
    with loading():
        import tensorflow as tf

        from etlrun.run.service import processes as servers
    _require_free(port)
    if is_loopback(host):
        bind_to_loopback()
    try:
        server = serve(servers)
    except tf.errors.OpError as error:
        raise _taken(port, error.message) from error
    if port and is_shared(port):  # both have looked before either served
        raise _taken(port, "Address already in use")
    return server


def _require_free(port: int) -> None:
    """Raise `WorldError` if another process serves at `port`: TensorFlow's servers would share it, and the clients."""
    try:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections hold no server up
            own.bind(("", port))
    except OSError as error:
        raise _taken(port, error.strerror or str(error)) from error


def _until_interrupted(what: str, say: Callable[[str], None], other: threading.Thread | None = None) -> bool:
    """Say `what` serves, and wait for a KeyboardInterrupt, or the end of `other`; return whether it was the first."""
    try:
        say(what)
        if is_open():
            say(_OPEN)
        if other is None:
            threading.Event().wait()
        else:
            other.join()
    except KeyboardInterrupt:
        return True
    return False


def _taken(port: int, reason: str) -> WorldError:
    return WorldError(
        where="--port", found=f"{port}: {reason}", expected="a free port, and the next one free for a dispatcher",
        remedy="choose another with --port",
    )  # fmt: skip
