"""Connections between hosts: host 0 hears from all others, and they from it.

A line of JSON is a message. A connection that ends, or on which nothing comes for a while, is the loss of a host.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from etlrun.run.hosts.place import Place

JOIN_S = 300.0
"""Longest time between the start of the first host and that of the last one."""
SILENT_S = 25.0
"""Time without a message after which a host counts as lost."""
_BEAT_S = 5.0
_AGAIN_S = 0.2
_LONGEST = 1 << 20
LOST, REFUSED = "lost", "refused"
"""Kinds of news, beside `message`, about a host."""
MESSAGE = "message"
_ENDED = "the end of its connection"

News = tuple[int, str, Any]
"""Number of a host, the kind of the news, and a message (a mapping) or the reason (a text)."""


class Link:
    """Connections of a host to those that it hears from, whose news come in `news`.

    Attributes:
        news: What has come, in this order.
    """

    def __init__(self, place: Place, hello: Mapping[str, Any], welcome: Mapping[str, Any]) -> None:
        """Connect in the background; host 0 sends a `welcome` to others whose `hello` is the same."""
        self.news: SimpleQueue[News] = SimpleQueue()
        self._place, self._hello, self._welcome = place, dict(hello), welcome
        self._open: dict[int, socket.socket] = {}
        self._lock, self._is_closed, self._is_whole = threading.Lock(), threading.Event(), threading.Event()
        self._server = _server(place) if place.leads else None
        for work in (self._accept if place.leads else self._connect, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send `message` to all; a host that is gone is found out by the thread that hears from it."""
        line = _line(message)
        with self._lock:
            for connection in self._open.values():
                with suppress(OSError):
                    connection.sendall(line)

    def wait(self, longest_s: float) -> None:
        """Wait until all hosts are connected, but not longer than that."""
        self._is_whole.wait(longest_s)

    def close(self) -> None:
        """End all connections."""
        self._is_closed.set()
        for connection in (*self._open.values(), *([self._server] if self._server else [])):
            connection.close()

    def _beat(self) -> None:
        while not self._is_closed.wait(_BEAT_S):
            self.send({})

    def _accept(self) -> None:
        until_s, missing = time.monotonic() + JOIN_S, {*range(1, self._place.count)}
        assert self._server is not None  # noqa: S101 - host 0 has it
        while missing and not self._is_closed.is_set():
            if (left_s := until_s - time.monotonic()) <= 0:
                for number in sorted(missing):
                    self.news.put((number, LOST, f"no connection within {JOIN_S:.0f} s"))
                return
            self._server.settimeout(left_s)
            try:
                connection, _ = self._server.accept()
            except OSError:  # the time is up, a connection ended before it was accepted, or too many files are open
                self._is_closed.wait(_AGAIN_S)
                continue
            missing -= self._greeted(connection, missing)
        self._is_whole.set()

    def _greeted(self, connection: socket.socket, missing: set[int]) -> set[int]:
        """Return the number of the host that this is, if its run is the same; others are closed."""
        connection.settimeout(SILENT_S)
        lines = connection.makefile("rb")
        try:
            hello = json.loads(lines.readline(_LONGEST))
            number = hello.pop("host")
        except (OSError, ValueError, KeyError, AttributeError, TypeError):  # a stranger
            number = None
        if type(number) is not int:
            connection.close()
            return set()
        differs = [key for key, value in self._hello.items() if hello.get(key) != value]
        with self._lock:
            self._open.setdefault(number, connection)
        if number not in missing or differs:
            key = differs[0] if differs else "number"
            found = (str(hello.get(key)), str(self._hello[key])) if differs else (str(number), "another on each host")
            self.news.put((number, REFUSED, (key, *found)))
            return set()
        with suppress(OSError):  # the thread that hears from it finds out
            connection.sendall(_line(self._welcome))
        threading.Thread(target=self._hear, args=(number, lines), daemon=True).start()
        return {number}

    def _connect(self) -> None:
        until_s, reason = time.monotonic() + JOIN_S, ""
        while not self._is_closed.is_set() and time.monotonic() < until_s:
            try:
                connection = socket.create_connection((self._place.host, self._place.port - 1), timeout=SILENT_S)
                connection.sendall(_line({"host": self._place.number, **self._hello}))
            except OSError as error:
                reason = error.strerror or str(error)
                self._is_closed.wait(_AGAIN_S)
                continue
            with self._lock:
                self._open[0] = connection
            self._is_whole.set()
            self._hear(0, connection.makefile("rb"))
            return
        self.news.put((0, LOST, f"no connection to its port {self._place.port - 1} within {JOIN_S:.0f} s: {reason}"))

    def _hear(self, number: int, lines: Any) -> None:
        try:
            while line := lines.readline(_LONGEST):
                if message := json.loads(line):
                    self.news.put((number, MESSAGE, message))
            reason = _ENDED
        except ConnectionResetError:  # it has ended with something unread
            reason = _ENDED
        except TimeoutError:
            reason = f"no sign of it for {SILENT_S:.0f} s"
        except (OSError, ValueError) as error:
            reason = f"a broken connection: {error}"
        if not self._is_closed.is_set():
            self.news.put((number, LOST, reason))


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _server(place: Place) -> socket.socket:
    """Return the socket on which host 0 listens; `OSError` if the port is in use."""
    if place.is_loopback:
        return socket.create_server((place.host, place.port - 1), backlog=place.count)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", place.port - 1), family=socket.AF_INET6, dualstack_ipv6=True, backlog=place.count
        )
    return socket.create_server(("", place.port - 1), backlog=place.count)
