"""A store on this machine that is as slow as one behind a network. Used by remote.py.

    python -m benchmarks.limited_server FOLDER [--mb-per-s 100] [--request-ms 30]

It sends so many bytes a second for all connections together, and waits before each answer. It answers what clients of
S3 ask to list and read the files of a folder, of which each folder in it is a bucket, and prints its address.
`/counters` has the bytes and requests so far, and its CPU seconds, at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

_PART_BYTES = 1 << 16
_LATE_S = 0.01
"""How late a thread may wake up without a loss of bytes."""


@dataclass
class Limit:
    """Bytes a second, in the order in which they are asked for.

    Attributes:
        bytes_per_s: The rate.
        request_s: Seconds before an answer.
        bytes: Bytes that have been sent.
        requests: Requests that have been answered.
    """

    bytes_per_s: float
    request_s: float
    bytes: int = 0
    requests: int = 0
    _due_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self) -> None:
        """Wait before an answer."""
        with self._lock:
            self.requests += 1
        time.sleep(self.request_s)

    def take(self, count: int) -> None:
        """Wait until so many bytes may be sent."""
        with self._lock:
            self.bytes += count
            now_s = time.monotonic()
            self._due_s = max(self._due_s, now_s - _LATE_S) + count / self.bytes_per_s
            left_s = self._due_s - now_s
        if left_s > 0:
            time.sleep(left_s)


@cache
def _tag(path: str, _size: int, _time_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/counters":
            limit, used = self.server.limit, os.times()
            found = {"bytes": limit.bytes, "requests": limit.requests, "cpu_s": used.user + used.system}
            return self._text(200, json.dumps(found))
        self.server.limit.answer()
        path = self.server.folder / unquote(url.path).strip("/")
        asked = dict(parse_qsl(url.query))
        if path.is_file():
            return self._file(path)
        if path.parent == self.server.folder and path.is_dir():
            return self._text(200, _listing(path, asked) if self.command == "GET" else "")
        return self._text(404, "<Error><Code>NoSuchKey</Code></Error>")

    def _text(self, status: int, text: str) -> None:
        content = text.encode()
        self._head(status, {"Content-Type": "application/xml", "Content-Length": str(len(content))})
        if self.command == "GET":
            self.wfile.write(content)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _file(self, path: Path) -> None:
        with path.open("rb") as file:
            of = os.fstat(file.fileno())
            start, stop = 0, of.st_size
            headers = {"ETag": f'"{_tag(str(path), of.st_size, of.st_mtime_ns)}"', "Accept-Ranges": "bytes"}
            headers["Last-Modified"] = formatdate(of.st_mtime, usegmt=True)
            if wanted := self.headers.get("Range", "").removeprefix("bytes="):
                first, _, last = wanted.partition("-")
                start, stop = (int(first), min(int(last or stop) + 1, stop)) if first else (stop - int(last), stop)
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{of.st_size}"
            self._head(206 if wanted else 200, headers | {"Content-Length": str(stop - start)})
            if self.command == "GET":
                self._send(file.fileno(), start, stop)

    def _send(self, file: int, start: int, stop: int) -> None:
        while start < stop:
            count = min(_PART_BYTES, stop - start)
            self.server.limit.take(count)
            try:
                start += os.sendfile(self.connection.fileno(), file, start, count)
            except OSError:  # the reader has left
                self.close_connection = True
                return


def _listing(bucket: Path, asked: Mapping[str, str]) -> str:
    """The answer to `ListObjectsV2`, in one page."""
    prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
    found, folders = [], set()
    for path in sorted(path for path in bucket.rglob("*") if path.is_file()):
        key = path.relative_to(bucket).as_posix()
        if not key.startswith(prefix):
            continue
        head, cut, _ = key.removeprefix(prefix).partition(delimiter or "\0")
        if cut:
            folders.add(prefix + head + cut)
            continue
        of = path.stat()
        time_of = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(of.st_mtime))
        tag = _tag(str(path), of.st_size, of.st_mtime_ns)
        found.append(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{time_of}</LastModified><ETag>&quot;{tag}&quot;</ETag>"
            f"<Size>{of.st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    found += [f"<CommonPrefixes><Prefix>{escape(of)}</Prefix></CommonPrefixes>" for of in sorted(folders)]
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{escape(bucket.name)}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
    )


class _Http(ThreadingHTTPServer):
    folder: Path
    limit: Limit
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader may leave at any time."""


@dataclass(frozen=True)
class Store:
    """A server in a process of its own.

    Attributes:
        url: Its address.
        mb_per_s: MB that it sends a second.
        request_ms: Milliseconds before each answer.
    """

    url: str
    mb_per_s: float
    request_ms: float

    def counters(self) -> dict[str, float]:
        """Bytes, requests, and CPU seconds so far."""
        with urllib.request.urlopen(f"{self.url}/counters") as answer:  # noqa: S310 - of this module
            found: dict[str, float] = json.load(answer)
        return found

    @contextmanager
    def counting(self, into: dict[str, Any]) -> Iterator[None]:
        """Add what the server does in the block to a mapping."""
        before = self.counters()
        yield
        into.update({name: value - before[name] for name, value in self.counters().items()})


@contextmanager
def limited(folder: Path, mb_per_s: float, request_ms: float) -> Iterator[Store]:
    """Serve the folders in `folder` as buckets until the end of the block."""
    words = [str(folder), "--mb-per-s", str(mb_per_s), "--request-ms", str(request_ms)]
    command = [sys.executable, "-m", "benchmarks.limited_server", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Store(process.stdout.readline().strip(), mb_per_s, request_ms)
        finally:
            process.terminate()


def plain_reads(store: Store, names: list[str], at_once: int) -> float:
    """MB a second of plain requests for whole files, so many connections at once."""
    sizes, left, lock = list[int](), iter(names), threading.Lock()

    def read() -> None:
        while True:
            with lock:
                name = next(left, None)
            if name is None:
                return
            with urllib.request.urlopen(f"{store.url}/{name}") as answer:  # noqa: S310 - as above
                while part := answer.read(1 << 20):
                    sizes.append(len(part))

    threads = [threading.Thread(target=read) for _ in range(at_once)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sizes) / 1e6 / (time.perf_counter() - began_s)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mb-per-s", type=float, default=100.0)
    parser.add_argument("--request-ms", type=float, default=30.0)
    known = parser.parse_args()
    with _Http(("127.0.0.1", 0), _Handler) as http:
        http.folder, http.limit = known.folder, Limit(known.mb_per_s * 1e6, known.request_ms / 1e3)
        print(f"http://127.0.0.1:{http.server_port}", flush=True)
        http.serve_forever()


if __name__ == "__main__":
    main()
