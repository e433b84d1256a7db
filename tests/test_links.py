"""Connections between hosts, by real sockets of loopback: strangers, silence, and hosts that never come."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from etlrun.run.hosts import link
from etlrun.run.hosts.link import LOST, MESSAGE, Link
from etlrun.run.hosts.place import Place
from tests.hosts import free_port

HELLO = {"plan": "1234"}
WAIT_S = 30.0
Open = Callable[[int], Link]


@pytest.fixture
def of_host() -> Iterator[Open]:
    """Opens the links of two hosts."""
    address, opened = f"127.0.0.1:{free_port()}", list[Link]()

    def opens(number: int) -> Link:
        opened.append(Link(Place(number=number, count=2, address=address), HELLO, {"run": "outputs/run"}))
        return opened[-1]

    yield opens
    for one in opened:
        one.close()


def told(of: Link) -> Any:
    return of.news.get(timeout=WAIT_S)


def connection_to(first: Link, said: bytes) -> socket.socket:
    """A connection to host 0 over which this was said."""
    connection = socket.create_connection(("127.0.0.1", first._place.port - 1), timeout=WAIT_S)
    connection.sendall(said)
    return connection


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"plan": "1234"}\n', b'{"host": [1]}\n', b'{"host": true}\n', b"\xff\n"],
)
def test_a_stranger_is_hung_up_on_and_the_host_still_joins(of_host: Open, said: bytes) -> None:
    first = of_host(0)
    with connection_to(first, said) as stranger, suppress(ConnectionResetError):  # there may be more that nobody read
        assert stranger.recv(1) == b""
    second = of_host(1)
    assert told(second) == (0, MESSAGE, {"run": "outputs/run"})
    second.send({"rank": "completed"})
    assert told(first) == (1, MESSAGE, {"rank": "completed"})


def test_connections_that_can_not_be_accepted_do_not_end_the_listening(of_host: Open) -> None:
    first = of_host(0)
    assert first._server is not None
    accept, failed = first._server.accept, threading.Event()

    class Full(socket.socket):
        """A socket of a process with too many open files, once."""

        __slots__ = ()

        def accept(self) -> Any:
            if failed.is_set():
                return accept()
            failed.set()
            raise OSError(24, "Too many open files")

    first._server.__class__ = Full
    connection_to(first, b"").close()  # the accept that has begun; the next one fails
    second = of_host(1)
    assert told(second) == (0, MESSAGE, {"run": "outputs/run"})
    assert failed.is_set()


def test_a_host_that_says_nothing_is_lost(of_host: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENT_S", 0.1)
    first = of_host(0)
    with connection_to(first, json.dumps({"host": 1, **HELLO}).encode() + b"\n"):
        assert told(first) == (1, LOST, "no sign of it for 0 s")


def test_a_host_that_ends_with_something_unread_has_ended(of_host: Open) -> None:
    first = of_host(0)
    connection = connection_to(first, json.dumps({"host": 1, **HELLO}).encode() + b"\n")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert told(first) == (1, LOST, "the end of its connection")


def test_hosts_that_are_at_work_are_not_lost(of_host: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENT_S", 2.0)
    monkeypatch.setattr(link, "_BEAT_S", 0.01)
    first, second = of_host(0), of_host(1)
    assert told(second) == (0, MESSAGE, {"run": "outputs/run"})
    beats, send = threading.Semaphore(0), second.send

    def sent(message: dict[str, Any]) -> None:
        send(message)
        beats.release()

    monkeypatch.setattr(second, "send", sent)
    for _ in range(10):
        assert beats.acquire(timeout=WAIT_S)
    assert first.news.empty()


@pytest.mark.parametrize(("number", "reason"), [(0, "no connection within 0 s"), (1, "no connection to its port")])
def test_a_host_that_never_comes_is_lost(
    of_host: Open, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    monkeypatch.setattr(link, "JOIN_S", 0.1)
    other, kind, why = told(of_host(number))
    assert (other, kind) == (1 - number, LOST)
    assert why.startswith(reason)
