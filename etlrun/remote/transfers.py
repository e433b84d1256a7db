"""Transfers of objects: each arrives checked and whole."""

import hashlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path
from threading import Event
from typing import Any

import google_crc32c

from etlrun.remote.objects import (
    GCS,
    S3,
    WEB,
    ChangedError,
    Object,
    Storage,
    UnreachableError,
    changed,
    file_system,
    interrupted,
    is_worth_a_retry,
    looked_up,
    pauses_s,
    reason_of,
    scheme_of,
    status_of,
    version_of,
)
from etlrun.remote.room import PART, unwritable
from etlrun.system.errors import WorldError
from etlrun.system.files import SILENT_S, Lock
from etlrun.system.values import frozen

Read = Callable[[int], Awaitable[bytes]]
_READ_BYTES, _RANGE_BYTES = 1 << 20, 8 << 20


@frozen
class ObjectStream:
    """The content of an object, as it arrives.

    Attributes:
        start: The byte at which it begins: that asked for, or 0 of a server without ranges.
        chunks: The content from there on, whose `close` ends the transfer.
        is_of_version: Whether it is known to be of the version that was asked for.
        is_tag_md5: Whether its ETag may be its MD5: not of objects of S3 that a key of their own encrypts.
    """

    start: int
    chunks: Generator[bytes, None, None]
    is_of_version: bool
    is_tag_md5: bool = True


def _answer_of(of: Object, storage: Storage, start: int) -> ObjectStream:
    """Ask for an object from the byte `start` on; it raises `ChangedError`, or what the library of the store raises."""
    scheme, files = scheme_of(of.url), file_system(of.url, storage)
    if scheme in WEB:
        return _of_http(files, of, start)
    if scheme in S3:
        return _of_s3(files, of, start)
    version = {"generation": of.version} if scheme in GCS else {}
    places = ((at, min(at + _RANGE_BYTES, of.bytes)) for at in range(start, of.bytes, _RANGE_BYTES))
    chunks = (files.cat_file(of.url, start=at, end=end, **version) for at, end in places)
    return ObjectStream(start=start, chunks=chunks, is_of_version=bool(version))


def _of_http(files: Any, of: Object, start: int) -> ObjectStream:
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    source = files.open(of.url, "rb", block_size=0, size=max(1, of.bytes), headers=headers)
    chunks = _chunks(files.loop, source.r.content.read, source.close)
    answer = source.r.headers
    said = answer.get("Content-Range", "").rpartition("/")[2] or answer.get("Content-Length", "")
    version = version_of(answer)
    if (version and version != of.version) or (said.isdigit() and int(said) != of.bytes):
        source.close()
        if version in ("", of.version):
            raise UnreachableError(
                of.url,
                f"an answer of {int(said):,} bytes",
                f"{of.bytes:,} bytes, as its server said before",
                "ask who runs the server",
            )
        raise ChangedError(of.url)
    begins = start if answer.get("Content-Range") else 0
    return ObjectStream(start=begins, chunks=chunks, is_of_version=bool(version))


def _of_s3(files: Any, of: Object, start: int) -> ObjectStream:
    bucket, key, _ = files.split_path(of.url)
    ranged = {"Range": f"bytes={start}-"} if start else {}
    answer = files.call_s3("get_object", Bucket=bucket, Key=key, IfMatch=of.version, **ranged)
    body = answer["Body"]
    if version_of(answer) != of.version:
        body.close()
        raise ChangedError(of.url)
    chunks = _chunks(files.loop, body.read, lambda: files.loop.call_soon_threadsafe(body.close))
    is_tag_md5 = "SSECustomerAlgorithm" not in answer and "kms" not in answer.get("ServerSideEncryption", "")
    return ObjectStream(start=start, chunks=chunks, is_of_version=True, is_tag_md5=is_tag_md5)


def _chunks(loop: Any, read: Read, close: Callable[[], None]) -> Generator[bytes, None, None]:
    from fsspec.asyn import sync

    try:
        while chunk := sync(loop, _chunk, read):
            yield chunk
    finally:
        close()


async def _chunk(read: Read) -> bytes:
    """Return what arrives, up to `_READ_BYTES`: each change of the thread costs more than to read on."""
    parts: list[bytes] = []
    left = _READ_BYTES
    while left:
        try:
            part = await read(left)
        except Exception:
            if not parts:
                raise
            break  # to be raised by the next read
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


LONGEST_S = 120.0
"""Seconds of tries in which nothing arrives, after which the last reason is reported."""
_CHUNK_BYTES = 1 << 20
_NO_MORE = 416
"""Status of HTTP for a range behind the end."""


class SilentError(UnreachableError):
    """An object of which nothing arrives any more: others of its server will not arrive, either."""


def md5_of(file: BufferedReader) -> str:
    """Return the MD5 of a file, in hexadecimal."""
    return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def _crc32c(file: BufferedReader) -> str:
    found = 0
    while chunk := file.read(_CHUNK_BYTES):
        found = google_crc32c.extend(found, chunk)
    return f"{found:08x}"


_DIGESTS = {"MD5": md5_of, "CRC32C": _crc32c}


@dataclass
class ObjectFetch:
    """The fetching of one object.

    Attributes:
        of: The object.
        path: Path of its copy.
        storage: How its store is reached.
        stop: Ends the fetching when it is set.
        asked: Is called before each request.
        arrived: Is called with numbers of bytes that have arrived, and of those that are new here.
    """

    of: Object
    path: Path
    storage: Storage
    stop: Event
    asked: Callable[[], None]
    arrived: Callable[[int, int], None]

    _reached: int = field(default=0, init=False)

    @property
    def part(self) -> Path:
        """Path of what has arrived."""
        return self.path.with_name(PART)

    def run(self) -> None:
        """Fetch the object, unless another process has done so; raise `WorldError` if that can't be."""
        lock = Lock(self.path.parent / ".lock")
        with self._writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._acquire(lock)
            try:
                if not self.path.exists():
                    self._arrive()
                    self.part.replace(self.path)
                self._tell(self.of.bytes)
            except ChangedError:
                self.part.unlink(missing_ok=True)
                raise
            finally:
                lock.path.unlink(missing_ok=True)
                lock.release()

    def _acquire(self, lock: Lock) -> None:
        """Wait for another process that fetches the object, as long as something arrives there."""
        since_s, before, is_told = time.monotonic(), self._done, False
        while not self.stop.is_set():
            with suppress(TimeoutError):
                return lock.acquire(timeout_s=SILENT_S)
            if not is_told:
                print(f"etlrun: waiting for another process, which fetches {self.of.url}", file=sys.stderr)
            is_told, done = True, self._done
            since_s, before = (since_s, before) if done == before else (time.monotonic(), done)
            if time.monotonic() - since_s > 2 * LONGEST_S:
                raise SilentError(
                    self.of.url,
                    f"no byte in {2 * LONGEST_S:.0f} s in another process, which fetches it",
                    "a process that fetches it",
                    f"`fuser {lock.path}` names the process: let it finish, or end it",
                )
        raise interrupted(self.of.url)

    def _arrive(self) -> None:
        """Try until the whole object is there; raise `SilentError` when nothing has arrived for `LONGEST_S`."""
        pauses, since_s, before = pauses_s(), time.monotonic(), self._done
        answer: ObjectStream | None = None
        self._tell(before)
        self.part.touch()
        while self._done < self.of.bytes:
            try:
                answer = self._go_on()
            except WorldError:
                raise
            except Exception as error:
                if self._done > before:
                    pauses, since_s, before = pauses_s(), time.monotonic(), self._done
                if not is_worth_a_retry(error):
                    if status_of(error) == _NO_MORE:
                        found, expected = f"the end of the object at byte {self._done:,}", f"{self.of.bytes:,} bytes"
                        raise ChangedError(self.of.url, found, f"{expected}, as its server said before") from error
                    reason = next(changed([self.of], self.storage), None)
                    raise reason or UnreachableError.of(self.of.url, error) from error
                if time.monotonic() - since_s > LONGEST_S:
                    found = f"no byte in {LONGEST_S:.0f} s of tries, at last: {reason_of(error)}"
                    raise SilentError(
                        self.of.url, found, "a server that answers", "run it again: it goes on where this ended"
                    ) from error
                if self.stop.wait(next(pauses)):
                    raise interrupted(self.of.url) from error
        self._check(answer)

    @property
    def _done(self) -> int:
        with suppress(FileNotFoundError):
            return self.part.stat().st_size
        return 0

    def _go_on(self) -> ObjectStream:
        """Fetch what is missing; return the answer of the server."""
        self.asked()
        done = self._done
        answer = _answer_of(self.of, self.storage, done)
        with closing(answer.chunks):
            with self._writing():
                file = FileIO(self.part, "ab" if answer.start == done else "wb")
            done = answer.start
            with file:
                for chunk in answer.chunks:
                    if self.stop.is_set():
                        raise interrupted(self.of.url)
                    left = chunk
                    with self._writing():
                        while left:
                            left = left[file.write(left) :]
                    done += len(chunk)
                    self._tell(done, len(chunk))
        if done < self.of.bytes:
            raise ConnectionError(f"the end of the transfer at byte {done:,} of {self.of.bytes:,}")
        return answer

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise the error for a folder that can't be written to, unlike a server's, which are `OSError`, too."""
        try:
            yield
        except OSError as error:
            raise unwritable(error, self.path.parent, self.of.bytes, self.of.url) from error

    def _check(self, answer: ObjectStream | None) -> None:
        """Raise `UnreachableError` for an object that has changed or is damaged, which is removed."""
        is_of_version = self.of.bytes == 0 if answer is None else answer.is_of_version
        if not is_of_version and looked_up(self.of.url, self.storage) != self.of:
            raise ChangedError(self.of.url)
        if (size := self._done) != self.of.bytes:
            raise ChangedError(self.of.url, f"{size:,} bytes", f"{self.of.bytes:,} bytes")
        md5 = self.of.md5 if answer is None or answer.is_tag_md5 else ""
        kind, expected = ("MD5", md5) if md5 else ("CRC32C", self.of.crc32c)
        with self.part.open("rb") as file:
            found = _DIGESTS[kind](file) if expected else ""
            os.fsync(file.fileno())
        if found != expected:
            expected = f"the {kind} {expected}, which the server says"
            raise ChangedError(self.of.url, f"bytes with the {kind} {found}", expected)

    def _tell(self, done: int, arrived: int = 0) -> None:
        new, self._reached = max(0, done - self._reached), max(done, self._reached)
        self.arrived(arrived, new)
