"""The fetching of one object into its copy on this machine: checked, and published whole."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path
from threading import Event

import google_crc32c

from etlrun.remote.failures import (
    ChangedError,
    UnreachableError,
    interrupted,
    is_worth_a_retry,
    pauses_s,
    reason_of,
    status_of,
)
from etlrun.remote.objects import Object, Storage, changed, looked_up
from etlrun.remote.room import PART, unwritable
from etlrun.remote.streams import Answer, answer_of
from etlrun.system.errors import WorldError
from etlrun.system.locks import SILENT_S, Lock

LONGEST_S = 120.0
"""Seconds of tries in which nothing arrives, after which the last reason is reported."""
_CHUNK_BYTES = 1 << 20
_NO_MORE = 416
"""Status of HTTP for a range behind the end."""


class SilentError(UnreachableError):
    """An object of which nothing arrives any more: others of its server will not arrive, either."""


def _md5(file: BufferedReader) -> str:
    return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def _crc32c(file: BufferedReader) -> str:
    found = 0
    while chunk := file.read(_CHUNK_BYTES):
        found = google_crc32c.extend(found, chunk)
    return f"{found:08x}"


_DIGESTS = {"MD5": _md5, "CRC32C": _crc32c}


@dataclass
class Fetch:
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
        try:
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
        except OSError as error:
            raise self._unwritable(error) from error

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
        answer: Answer | None = None
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
                        self.of.url, found, "a server that answers", "run it again, which goes on where this ends"
                    ) from error
                if self.stop.wait(next(pauses)):
                    raise interrupted(self.of.url) from error
        self._check(answer)

    @property
    def _done(self) -> int:
        with suppress(FileNotFoundError):
            return self.part.stat().st_size
        return 0

    def _go_on(self) -> Answer:
        """Fetch what is missing; return the answer of the server."""
        self.asked()
        done = self._done
        answer = answer_of(self.of, self.storage, done)
        with closing(answer.chunks), self._opened("ab" if answer.start == done else "wb") as file:
            done = answer.start
            for chunk in answer.chunks:
                if self.stop.is_set():
                    raise interrupted(self.of.url)
                self._write(file, chunk)
                done += len(chunk)
                self._tell(done, len(chunk))
        if done < self.of.bytes:
            raise ConnectionError(f"the end of the transfer at byte {done:,} of {self.of.bytes:,}")
        return answer

    @contextmanager
    def _opened(self, mode: str) -> Iterator[FileIO]:
        try:
            file = FileIO(self.part, mode)
        except OSError as error:
            raise self._unwritable(error) from error
        with file:
            yield file

    def _write(self, file: FileIO, chunk: bytes) -> None:
        try:
            while chunk:
                chunk = chunk[file.write(chunk) :]
        except OSError as error:
            raise self._unwritable(error) from error

    def _check(self, answer: Answer | None) -> None:
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

    def _unwritable(self, error: OSError) -> WorldError:
        return unwritable(error, self.path.parent, self.of.bytes, self.of.url)
