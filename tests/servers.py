"""A server of files on this machine, which fails as it is told."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Server:
    """What a server has, and how it answers.

    Attributes:
        url: Its address.
        files: Content by name.
        versions: ETag by name; none for a file without one.
        checksums: Content-MD5 by name; none for a file without one.
        has_ranges: Whether it serves parts of files.
        first: Statuses of HTTP with which it answers the next requests for content.
        cut_bytes: After how many bytes it closes a connection; None for never.
        resets: Whether it does so by a reset.
        lengths: Content-Length of answers with content by name, in the place of the right one.
        pause: What ends all pauses.
        pause_s: Seconds before each 64 KiB.
        login: User and password that each request has to have, such as `me:pass`; empty for none.
        held: Names of files that are not sent before the end of all pauses.
        sent: Names and numbers of bytes of the answers.
        starts: Names, and the first byte of each answer with content.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    has_ranges: bool = True
    first: list[int] = field(default_factory=list)
    cut_bytes: int | None = None
    resets: bool = False
    lengths: dict[str, int] = field(default_factory=dict)
    pause: threading.Event = field(default_factory=threading.Event)
    pause_s: float = 0.0
    login: str = ""
    held: set[str] = field(default_factory=set)
    sent: list[tuple[str, int]] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)

    def put(self, name: str, content: bytes) -> str:
        """Serve a file; return its URL."""
        self.files[name], self.versions[name] = content, f'"{len(self.versions)}-{hash(content)}"'
        return f"{self.url}/{name}"

    def put_folder(self, folder: Path) -> str:
        """Serve the files of a folder by their paths in it, with a page of links for each folder; return its URL."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(str(path.relative_to(folder)), path.read_bytes())
        return self.url

    def children(self, name: str) -> list[str]:
        """Names of what is in a folder; those of folders end in a slash."""
        inside = (of.removeprefix(name.rstrip("/")).lstrip("/") for of in self.files if of.startswith(name.rstrip("/")))
        return sorted({first + slash for first, slash, _ in (of.partition("/") for of in inside)})

    def sent_of(self, name: str) -> int:
        """Bytes of a file that have been sent."""
        return sum(count for of, count in self.sent if of == name)


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_content=False)

    def do_GET(self) -> None:
        self._answer(has_content=True)

    def _answer(self, *, has_content: bool) -> None:
        of, name = self.server.of, self.path[1:]
        login = f"Basic {base64.b64encode(of.login.encode()).decode()}"
        if of.login and self.headers.get("Authorization") != login:
            self._head(401)
            return
        if name.startswith("moved/"):
            self._head(302, Location=f"/{name.removeprefix('moved/')}")
            return
        if name.startswith("around/"):
            self._head(302, Location=self.path)
            return
        if name not in of.files and (children := of.children(name)):
            by_name = '<a href="?C=N;O=D">Name</a>'  # as on pages of Apache
            links = "".join([by_name, *(f'<a href="{child}">{child}</a>' for child in children)]).encode()
            self._head(200, **{"Content-Length": str(len(links)), "Content-Type": "text/html"})
            if has_content:
                self.wfile.write(links)
            return
        status = of.first.pop(0) if of.first and has_content else 200 if name in of.files else 404
        if status != 200:
            self._head(status)
            return
        content, start, stop = of.files[name], 0, len(of.files[name])
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        headers = {"ETag": of.versions[name]} if name in of.versions else {}
        headers |= {"Content-MD5": of.checksums[name]} if name in of.checksums else {}
        if wanted and of.has_ranges:
            first, _, last = wanted.partition("-")
            start, stop = int(first), min(int(last or stop) + 1, stop)
            if start >= stop:
                self._head(416)
                return
            headers["Content-Range"], status = f"bytes {start}-{stop - 1}/{len(content)}", 206
        length = of.lengths.get(name, stop - start) if has_content else stop - start
        headers |= {"Content-Length": str(length)} | ({} if of.has_ranges else {"Accept-Ranges": "none"})
        self._head(status, **headers)
        if has_content:
            of.starts.append((name, start))
            self._send(name, content[start:stop])

    def _head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, name: str, content: bytes) -> None:
        of, left = self.server.of, content[: self.server.of.cut_bytes]
        if name in of.held:
            of.pause.wait()
        while left:
            if of.pause_s:
                of.pause.wait(of.pause_s)
            of.sent.append((name, len(left[: 1 << 16])))  # before the reader can have it
            try:
                self.wfile.write(left[: 1 << 16])
            except OSError:  # the reader has left
                of.sent.remove((name, len(left[: 1 << 16])))
                return
            left = left[1 << 16 :]
        if of.resets and of.cut_bytes is not None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


class _Http(ThreadingHTTPServer):
    of: Server
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader may leave at any time."""


@contextmanager
def serving() -> Iterator[Server]:
    """Serve until the end of the block."""
    with _Http(("127.0.0.1", 0), _Handler) as http:
        http.of = Server(url=f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield http.of
        finally:
            http.of.pause.set()
            http.shutdown()
            thread.join()
