"""Copies of objects on this machine, which processes share: each object is fetched once.

DIR/fetched/KEY/NAME      the whole object
DIR/fetched/KEY/.part     what has arrived of it; a later process goes on behind it
DIR/fetched/KEY/.lock     held by the process that fetches it
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from time import monotonic

from etlrun.remote.failures import UnreachableError
from etlrun.remote.fetch import Fetch, SilentError
from etlrun.remote.objects import Object, Storage
from etlrun.system.errors import EtlrunError, Fault
from etlrun.system.progress import fetching

AT_ONCE = 8
"""Objects that are fetched at once, if `storage` doesn't say it."""
_POLL_S = 0.2
"""Seconds after which a wait looks around: one without end in the main thread can sleep through Ctrl-C."""


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
    """The copies in a folder."""

    def __init__(self, folder: Path, storage: Storage, keep_bytes: int | None = None) -> None:
        """Create no file.

        Args:
            folder: The folder of caches; the copies are in its folder `fetched`.
            storage: How their store is reached; `at_once` is the number of objects that are fetched at once.
            keep_bytes: The most that the copies take on disk; None for no limit.
        """
        self.folder, self.storage, self.keep_bytes = folder / "fetched", storage, keep_bytes
        self.at_once = int(storage.get("at_once", AT_ONCE))
        self._traffic, self._fetching, self._changed_s = Traffic(), 0, monotonic()
        self._lock = Lock()

    def path(self, of: Object) -> str:
        """Return the path of the copy of an object, whether it is there or not."""
        return str(self.folder / of.key / of.name)

    def missing(self, objects: Iterable[Object]) -> list[Object]:
        """Return the objects of which there is no copy yet."""
        return [of for of in objects if not Path(self.path(of)).exists()]

    def all(self, objects: Sequence[Object]) -> list[str]:
        """Return the paths of copies of objects, in order; those that are missing are fetched, several at once.

        Raises:
            EtlrunError: Objects can't be read, have changed, or arrive damaged; or there is no space for them.
        """
        if missing := list(dict.fromkeys(self.missing(objects))):
            self._fetch(missing)
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

    def ahead(self, objects: Sequence[Object]) -> Ahead:
        """Begin to fetch objects in this order, ahead of a reader; to be closed."""
        return Ahead(self, objects, window=2 * self.at_once)

    def count(self, *, requests: int = 0, arrived: int = 0, fetching: int = 0, waited_s: float = 0.0) -> None:
        """Add to what has been fetched; `fetching` to the number of objects that are being fetched."""
        with self._lock:
            of, now_s = self._traffic, monotonic()
            busy_s = of.busy_s + (now_s - self._changed_s if self._fetching else 0.0)
            self._traffic = Traffic(of.bytes + arrived, of.requests + requests, busy_s, of.waited_s + waited_s)
            self._fetching, self._changed_s = self._fetching + fetching, now_s

    @property
    def traffic(self) -> Traffic:
        """What this process has fetched so far."""
        self.count()
        return self._traffic


class Ahead:
    """The fetching of objects by own threads, ahead of their reader. The first of them has the bandwidth first."""

    def __init__(
        self,
        copies: Copies,
        objects: Sequence[Object],
        *,
        window: int,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Begin to fetch.

        Args:
            copies: Where the copies are.
            objects: In the order in which they are read.
            window: The most objects that are there, or being fetched, before the reader takes them.
            tell: Is called with numbers of new bytes.
        """
        self._copies, self._tell = copies, tell
        self._todo = OrderedDict((of.key, of) for of in objects)
        self._wanted: deque[Object] = deque()
        self._ended: dict[str, EtlrunError | None] = {}
        self._room, self._ahead = window, set[str]()
        self._first = next(iter(self._todo), "")
        self._changed, self._stop = Condition(), Event()
        self._threads = [
            Thread(target=self._work, name=f"fetch-{number}", daemon=True)
            for number in range(min(copies.at_once, len(self._todo)))
        ]
        for thread in self._threads:
            thread.start()

    def take(self, of: Object) -> str:
        """Return the path of the copy of an object; wait until it is there. It is in use until `leave`.

        Raises:
            EtlrunError: It can't be fetched; or `close` was called.
        """
        asked_s = monotonic()
        with self._changed:
            if self._todo.pop(of.key, None) is not None:  # before those that were to come first
                self._wanted.append(of)
            self._changed.notify_all()
            while of.key not in self._ended:
                if self._stop.is_set():
                    raise UnreachableError(of.url, "an interruption", "the whole object", "run it again, which goes on")
                self._changed.wait(_POLL_S)
            self._copies.count(waited_s=monotonic() - asked_s)
            self._ahead.discard(of.key)
            self._changed.notify_all()
            if (error := self._ended[of.key]) is not None:
                raise error
        return self._copies.path(of)

    def leave(self, of: Object) -> None:
        """End the use of the copy of an object."""

    def close(self) -> None:
        """End the threads, and the use of all copies; what has arrived stays."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(1 / len(self._threads))  # none waits for a server that is silent

    def _work(self) -> None:
        while (of := self._next()) is not None:
            error: EtlrunError | None = None
            try:
                path = Path(self._copies.path(of))
                if not path.exists():
                    self._fetch(of, path)
            except EtlrunError as found:
                error = found
            except Exception as found:  # noqa: BLE001 - a thread of its own tells no one else
                error = UnreachableError.of(of.url, found)
            with self._changed:
                self._ended[of.key] = error
                self._changed.notify_all()

    def _fetch(self, of: Object, path: Path) -> None:
        self._copies.count(fetching=1)
        try:
            Fetch(of, path, self._copies.storage, self._stop, self._asked, self._arrived).run()
        finally:
            self._copies.count(fetching=-1)

    def _next(self) -> Object | None:
        """Return the next object to fetch; wait while there are enough, or the first has not arrived."""
        with self._changed:
            while not self._stop.is_set():
                if self._wanted:
                    of = self._wanted.popleft()
                elif self._todo and self._may_go_on():
                    of = self._todo.popitem(last=False)[1]
                else:
                    self._changed.wait()
                    continue
                self._ahead.add(of.key)
                return of
        return None

    def _may_go_on(self) -> bool:
        return len(self._ahead) < self._room and (self._first in self._ended or self._first in self._todo)

    def _asked(self) -> None:
        self._copies.count(requests=1)

    def _arrived(self, count: int, new: int) -> None:
        self._copies.count(arrived=count)
        self._tell(new)
