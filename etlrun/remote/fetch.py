"""Copies of objects on this machine: each is fetched once, checked, and published whole.

DIR/fetched/KEY.lock      held by the process that fetches an object
DIR/fetched/KEY/.part     what has arrived of it; a later process goes on behind it
DIR/fetched/KEY/NAME      the whole object
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from etlrun.remote.failures import UnreachableError, is_worth_a_retry, reason_of
from etlrun.remote.objects import Object, file_system, looked_up
from etlrun.system.errors import WorldError
from etlrun.system.locks import Lock, acquire
from etlrun.system.progress import progress

LONGEST_S = 120.0
"""Seconds of tries in which nothing arrives, after which the last reason is reported."""
_AT_ONCE, _CHUNK_BYTES, _LEAST_BYTES = 8, 8 << 20, 1 << 18
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_MB = 1_000_000


def fetched(objects: Sequence[Object], folder: Path, storage: Mapping[str, bool | str]) -> list[str]:
    """Return the paths of copies of objects in `folder`, in order; those that are missing are fetched, several at once.

    Raises:
        WorldError: An object can't be read, has changed, or arrives damaged; or there is no space for it.
    """
    paths = [str(folder / "fetched" / of.key / of.name) for of in objects]
    missing = [(of, Path(path)) for of, path in zip(objects, paths, strict=True) if not Path(path).exists()]
    if missing:
        _fetch_all(missing, storage)
    return paths


def _fetch_all(missing: Sequence[tuple[Object, Path]], storage: Mapping[str, bool | str]) -> None:
    stop, arrived = Event(), 0
    with progress() as begin, ThreadPoolExecutor(_AT_ONCE) as pool:
        advance = begin("Fetching (MB)", max(1, sum(of.bytes for of, _ in missing) // _MB))

        def tell(count: int) -> None:
            nonlocal arrived
            before, arrived = arrived // _MB, arrived + count
            advance(arrived // _MB - before)

        fetching = [pool.submit(_Fetch(of, path, storage, stop, tell).run) for of, path in missing]
        try:
            for one in fetching:
                one.result()
        finally:
            stop.set()  # the others, if one has failed or the user has interrupted


@dataclass(frozen=True)
class _Fetch:
    """The fetching of one object."""

    of: Object
    path: Path
    storage: Mapping[str, bool | str]
    stop: Event
    tell: Callable[[int], None]

    @property
    def part(self) -> Path:
        return self.path.with_name(".part")

    def run(self) -> None:
        """Fetch the object, unless another process has done so; raise `WorldError` if that can't be."""
        lock = Lock(self.path.parent.with_suffix(".lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            waiting = f"waiting for another process, which fetches {self.of.url}"
            acquire(lock, longest_s=math.inf, waiting=waiting)
            try:
                if not self.path.exists():
                    self._arrive()
                    self._check()
                    self.part.replace(self.path)
            finally:
                lock.release()
        except OSError as error:
            raise self._unwritable(error) from error

    def _arrive(self) -> None:
        """Try until the whole object is there; raise `UnreachableError` when nothing has arrived for `LONGEST_S`."""
        pause_s, since_s, before, chunk_bytes = _FIRST_PAUSE_S, time.monotonic(), self._done, _CHUNK_BYTES
        while self._done < self.of.bytes or not self.part.exists():
            try:
                self._go_on(chunk_bytes)
            except WorldError:
                raise
            except Exception as error:
                if self._done > before:
                    pause_s, since_s, before = _FIRST_PAUSE_S, time.monotonic(), self._done
                if not is_worth_a_retry(error):
                    raise UnreachableError.of(self.of.url, error) from error
                self._require_unchanged()
                if time.monotonic() - since_s > LONGEST_S:
                    found = f"no byte in {LONGEST_S:.0f} s of tries, at last: {reason_of(error)}"
                    remedy = "run it again, which goes on where this ends"
                    raise UnreachableError(self.of.url, found, "a server that answers", remedy) from error
                if self.stop.wait(pause_s * random.uniform(0.5, 1.5)):  # noqa: S311 - no secret
                    raise self._stopped from error
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                chunk_bytes = max(chunk_bytes // 2, _LEAST_BYTES)  # a request that fails leaves nothing

    @property
    def _done(self) -> int:
        with suppress(FileNotFoundError):
            return self.part.stat().st_size
        return 0

    @property
    def _stopped(self) -> WorldError:
        return UnreachableError(self.of.url, "an interruption", "the whole object", "run it again, which goes on")

    def _go_on(self, chunk_bytes: int) -> None:
        """Fetch what is missing, in ranges; from the beginning if the server has none."""
        files = file_system(self.of.url, self.storage)
        try:
            with files.open(self.of.url, "rb", block_size=chunk_bytes, cache_type="none") as source:
                if self._done:
                    source.seek(self._done)
                self._copy(source, chunk_bytes)
        except ValueError:  # fsspec's word for a server without ranges
            self._write(b"", mode="wb")
            with files.open(self.of.url, "rb", block_size=0) as source:
                self._copy(source, chunk_bytes)

    def _copy(self, source: Any, chunk_bytes: int) -> None:
        while (left := self.of.bytes - self._done) > 0 or not self.part.exists():
            if self.stop.is_set():
                raise self._stopped
            chunk = source.read(min(left, chunk_bytes)) if left else b""
            if left and not chunk:
                raise ConnectionError(f"the end of the transfer at byte {self._done:,} of {self.of.bytes:,}")
            self._write(chunk)
            self.tell(len(chunk))

    def _write(self, chunk: bytes, mode: str = "ab") -> None:
        try:
            with self.part.open(mode) as file:
                file.write(chunk)
        except OSError as error:
            raise self._unwritable(error) from error

    def _check(self) -> None:
        """Raise `UnreachableError` for an object that has changed or is damaged, which is removed."""
        self._require_unchanged()
        if (size := self._done) != self.of.bytes:
            self._refuse(f"{size:,} bytes", f"{self.of.bytes:,} bytes")
        with self.part.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest() if self.of.md5 else ""
            os.fsync(file.fileno())
        if found != self.of.md5:
            self._refuse(f"bytes with the MD5 {found}", f"the MD5 {self.of.md5}, which the server says")

    def _require_unchanged(self) -> None:
        try:
            now = looked_up(self.of.url, self.storage)
        except UnreachableError:  # the next try, or the comparison at the end, says more
            if self._done < self.of.bytes:
                return
            raise
        if now != self.of:
            self._refuse("another version than at the start of the run", "an object that stays")

    def _refuse(self, found: str, expected: str) -> None:
        self.part.unlink(missing_ok=True)
        raise UnreachableError(self.of.url, found, expected, "run it again; if that remains, ask who writes the object")

    def _unwritable(self, error: OSError) -> WorldError:
        return WorldError(
            where=str(error.filename or self.path.parent),
            found=error.strerror or str(error),
            expected=f"a folder with space for {self.of.bytes / _MB:,.1f} MB of {self.of.url}",
            remedy="free disk space, or set dataset.dir to another folder",
        )
