"""A bucket of a real S3 server on this machine, behind a server that fails as it is told."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

_OF_A_CONNECTION = ("connection", "transfer-encoding", "content-length", "server", "date")


@dataclass
class Bucket:
    """The bucket `bucket`.

    Attributes:
        endpoint: Address of the server.
        store: Address of the server behind it.
        statuses: Statuses of HTTP with which it answers the next requests that write, instead of writing; None writes,
            and 0 closes the connection when the object has been written, so that the answer is lost.
        written: Names of the objects that were written, in order.
        files: Its file system.
        is_encrypted: Whether it answers as of objects that a key of their own encrypts: an ETag is then no MD5.
        most: How many objects are written until requests that write wait for `goes_on`; None for any number.
        is_waiting: Is set when one waits.
        goes_on: Ends these waits, whose objects are not written.
    """

    endpoint: str
    store: str
    files: Any = None
    is_encrypted: bool = False
    most: int | None = None
    goes_on: threading.Event = field(default_factory=threading.Event)
    is_waiting: threading.Event = field(default_factory=threading.Event)
    statuses: list[int | None] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """Return the names of its objects."""
        self.files.invalidate_cache()
        return sorted(path.removeprefix("bucket/") for path in self.files.find("bucket"))


class _Handler(BaseHTTPRequestHandler):
    server: _Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _forward(self) -> None:
        of = self.server.of
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        writes = self.command in ("PUT", "POST") and "/bucket/" in self.path
        status = of.statuses.pop(0) if of.statuses and writes else None
        if writes and of.most is not None and len(of.written) >= of.most:
            of.is_waiting.set()
            of.goes_on.wait()
            status = 500
        if status:
            self._answer(status, {}, b"")
            return
        store = http.client.HTTPConnection(urlsplit(of.store).netloc)
        given = dict(self.headers)
        given |= {"If-Match": given["If-Match"][::-1]} if of.is_encrypted and "If-Match" in given else {}
        store.request(self.command, self.path, body, given)
        answer = store.getresponse()
        content = answer.read()
        if writes and answer.status == 200:
            of.written.append(self.path.partition("/bucket/")[2])
        if status == 0:
            self.close_connection = True
            return
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_A_CONNECTION}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length", "0")
        if of.is_encrypted and "ETag" in headers:
            headers |= {"ETag": headers["ETag"][::-1], "x-amz-server-side-encryption": "aws:kms"}
        self._answer(answer.status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815 - names of the base class

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class _Proxy(ThreadingHTTPServer):
    of: Bucket
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client may leave at any time."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket; the environment names the server, and has credentials."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with _Proxy(("127.0.0.1", 0), _Handler) as proxy:
        proxy.of = Bucket(endpoint=f"http://127.0.0.1:{proxy.server_port}", store=f"http://{host}:{port}")
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "secret-of-test")
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.of.endpoint)
        s3fs.S3FileSystem.clear_instance_cache()
        try:
            proxy.of.files = s3fs.S3FileSystem(endpoint_url=proxy.of.store)
            if proxy.of.files.exists("bucket"):  # servers of a process share it
                proxy.of.files.rm("bucket", recursive=True)
            proxy.of.files.mkdir("bucket")
            yield proxy.of
        finally:
            proxy.of.goes_on.set()
            s3fs.S3FileSystem.clear_instance_cache()
            proxy.shutdown()
            thread.join()
            server.stop()
