"""The port beside a dispatcher, on which workers and runs compare their versions with its own."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from etlrun.system.errors import WorldError

_ANSWER_S = 20.0
"""Longest wait for an answer: a dispatcher that has just been started imports TensorFlow first."""
_WORKER = b"worker\n"


def versions() -> dict[str, str]:
    """Return the versions that a service needs to be the same everywhere."""
    return {name: metadata.version(name) for name in ("etlrun", "tensorflow")}


@dataclass
class Joined:
    """Workers of a dispatcher.

    Attributes:
        workers: Number of workers whose connections are open.
    """

    workers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def changed(self, by: int) -> None:
        """Count a worker that joins or leaves."""
        with self.lock:
            self.workers += by


class Hello(socketserver.ThreadingTCPServer):
    """Tells the versions of a dispatcher and the number of its workers; a worker keeps its connection open."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.joined = Joined()
        super().__init__((host, port), _Answer)


class _Answer(socketserver.StreamRequestHandler):
    server: Hello

    def handle(self) -> None:
        joined = self.server.joined
        self.wfile.write(json.dumps({**versions(), "workers": joined.workers}).encode() + b"\n")
        if self.rfile.readline(len(_WORKER)) != _WORKER:
            return
        joined.changed(1)
        try:
            self.rfile.read(1)  # until the connection ends with the worker
        finally:
            joined.changed(-1)


def asked(address: str, where: str) -> tuple[dict[str, Any], socket.socket]:
    """Return what a dispatcher HOST:PORT says, and the connection; `where` is the key or the option for messages.

    Raises:
        WorldError: There is none that etlrun has started, or one of other versions.
    """
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port) + 1), timeout=_ANSWER_S)
        connection.settimeout(_ANSWER_S)
        with connection.makefile("rb") as lines:
            found = json.loads(lines.readline())
    except (OSError, ValueError, OverflowError) as error:
        raise WorldError(
            where=where,
            found=f"no dispatcher at {address}: {getattr(error, 'strerror', None) or error}",
            expected="HOST:PORT of a dispatcher that `etlrun service dispatcher` has started, with PORT + 1 open",
            remedy="start it, and check the address and the firewalls between",
        ) from error
    own = versions()
    for name in (name for name, version in own.items() if found.get(name) != version):
        connection.close()
        raise WorldError(
            where=where,
            found=f"a dispatcher of {name} {found.get(name)} at {address}, and {name} {own[name]} here",
            expected="one version everywhere, since graphs and values of options differ between versions",
            remedy=f"install the same version of {name} on both machines",
        )
    return found, connection


def join(address: str, where: str) -> socket.socket:
    """Return the connection of a worker to a dispatcher, which counts it as long as that is open; raises as `asked`."""
    _, connection = asked(address, where)
    connection.sendall(_WORKER)
    connection.settimeout(None)
    return connection


def workers_of(address: str, where: str) -> int:
    """Return the number of workers of a dispatcher; raises as `asked`."""
    found, connection = asked(address, where)
    connection.close()
    return int(found["workers"])
