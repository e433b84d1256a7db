"""Copies of objects on this machine, which processes share: each object is fetched once.

DIR/fetched/KEY/NAME      the whole object
DIR/fetched/KEY/.part     what has arrived of it; a later process goes on behind it
DIR/fetched/KEY/.lock     held by the process that fetches it
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from math import ceil
from pathlib import Path
from threading import Lock

from etlrun.remote.ahead import POLL_S, Ahead
from etlrun.remote.failures import UnreachableError
from etlrun.remote.fetch import LONGEST_S, SilentError
from etlrun.remote.objects import Object, Storage
from etlrun.remote.room import FETCHED, Room
from etlrun.stages.paths import AT_ONCE
from etlrun.system.errors import EtlrunError, Fault, WorldError
from etlrun.system.machine import rounded
from etlrun.system.progress import fetching

__all__ = ["Ahead", "Copies"]

_MB = 1_000_000


@dataclass(frozen=True)
class Traffic:
    """What this process has fetched.

    Attributes:
        bytes: Bytes that have arrived.
        requests: Requests that were made for them.
        busy_s: Seconds in which at least one object was being fetched.
        waited_s: Seconds in which readers waited for objects.
    """

    bytes: int = 0
    requests: int = 0
    busy_s: float = 0.0
    waited_s: float = 0.0

    def since(self, before: Traffic) -> Traffic:
        """Return what was fetched since then."""
        return Traffic(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    @property
    def bytes_per_s(self) -> float | None:
        """Rate at which objects arrive; None if none was fetched."""
        return self.bytes / self.busy_s if self.busy_s > 0 and self.bytes else None


class Copies:
    """The copies in a folder.

    Attributes:
        room: The room that there is for copies.
    """

    def __init__(self, folder: Path, storage: Storage, keep_bytes: int | None = None) -> None:
        """Create no file.

        Args:
            folder: The folder of caches; the copies are in its folder `fetched`.
            storage: How their store is reached; `at_once` is the number of objects that are fetched at once.
            keep_bytes: The most that the copies take on disk; None for no limit.
        """
        self.folder, self.storage, self.keep_bytes = folder / FETCHED, storage, keep_bytes
        self.at_once = int(storage.get("at_once", AT_ONCE))
        self._traffic, self._fetching, self._changed_s = Traffic(), 0, time.monotonic()
        self.room = Room.of(self.folder)
        self._lock = Lock()

    def path(self, of: Object) -> str:
        """Return the path of the copy of an object, whether it is there or not."""
        return str(self.folder / of.key / of.name)

    def missing(self, objects: Iterable[Object]) -> list[Object]:
        """Return the objects of which there is no copy yet."""
        return [of for of in objects if not Path(self.path(of)).exists()]

    def all(self, objects: Sequence[Object]) -> list[str]:
        """Return the paths of copies of objects, in order; those that are missing are fetched, several at once.

        They are in use until this process ends.

        Raises:
            EtlrunError: Objects can't be read, have changed, or arrive damaged; or there is no space for them.
        """
        wanted = list(dict.fromkeys(objects))
        self.require(wanted, len(wanted))
        since_s = time.monotonic()
        while not self.room.use(wanted, self.keep_bytes):
            if time.monotonic() - since_s > LONGEST_S:
                raise self.too_small(sum(of.bytes for of in wanted), len(wanted), by_others=True)
            time.sleep(POLL_S)
        try:
            if missing := self.missing(wanted):
                self._fetch(missing)
        except BaseException:
            self.room.leave(wanted)
            raise
        return [self.path(of) for of in objects]

    def _fetch(self, missing: Sequence[Object]) -> None:
        faults: list[Fault] = []
        with fetching(sum(of.bytes for of in missing)) as tell:
            ahead = Ahead(self, missing, window=len(missing), tell=tell)
            try:
                for of in missing:
                    try:
                        ahead.take(of)
                    except UnreachableError as error:
                        faults += error.faults
                        if isinstance(error, SilentError):
                            break
            finally:
                ahead.close()
        if faults:
            raise EtlrunError(faults)

    def ahead(self, objects: Sequence[Object], num_open: int = 1) -> Ahead:
        """Begin to fetch objects in this order, ahead of a reader, who has up to `num_open` of them open; to be closed.

        Raises:
            WorldError: They take more space than `keep_bytes`.
        """
        self.require(objects, num_open)
        return Ahead(self, objects, window=2 * self.at_once, compares=True)

    def require(self, objects: Sequence[Object], num_open: int) -> None:
        """Raise `WorldError` if the largest `num_open` of these objects take more space than there may be."""
        needed = sum(sorted(of.bytes for of in objects)[-num_open:])
        if self.keep_bytes is not None and needed > self.keep_bytes:
            raise self.too_small(needed, min(num_open, len(objects)))

    def too_small(self, needed_bytes: int, count: int, *, by_others: bool = False) -> WorldError:
        """Return the error for a limit below what is read at once, here or also by other processes."""
        others = " beside those that other processes use" if by_others else ""
        files = f"{count} files that are" if count > 1 else "1 file that is"
        return WorldError(
            where="dataset.keep",
            found=rounded(self.keep_bytes or 0),
            expected=f"at least {ceil(10 * needed_bytes / _MB) / 10:,.1f} MB for {files} read at once{others}",
            remedy="set dataset.keep=all, or to a size that is large enough",
        )

    def count(self, *, requests: int = 0, arrived: int = 0, fetching: int = 0, waited_s: float = 0.0) -> None:
        """Add to what has been fetched; `fetching` to the number of objects that are being fetched."""
        with self._lock:
            of, now_s = self._traffic, time.monotonic()
            busy_s = of.busy_s + (now_s - self._changed_s if self._fetching else 0.0)
            self._traffic = Traffic(of.bytes + arrived, of.requests + requests, busy_s, of.waited_s + waited_s)
            self._fetching, self._changed_s = self._fetching + fetching, now_s

    @property
    def traffic(self) -> Traffic:
        """What this process has fetched so far."""
        self.count()
        return self._traffic
