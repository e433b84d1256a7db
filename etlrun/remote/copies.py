"""Copies of objects on this machine, which processes share: each object is fetched once.

DIR/fetched/KEY/NAME      the whole object
DIR/fetched/KEY/.part     what has arrived of it; a later process goes on behind it
DIR/fetched/KEY/.lock     held by the process that fetches it
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from math import ceil
from pathlib import Path
from threading import Condition, Event, Lock, Thread

from etlrun.cache.store import folder_of
from etlrun.remote.objects import Object, Storage, UnreachableError, changed, interrupted
from etlrun.remote.room import FETCHED, room_of
from etlrun.remote.transfers import LONGEST_S, ObjectFetch, SilentError
from etlrun.stages.dataset import Declared
from etlrun.stages.paths import AT_ONCE, UNITS
from etlrun.system.errors import EtlrunError, Fault, WorldError, counted
from etlrun.system.machine import rounded
from etlrun.system.terminal import fetching

_APART_BYTES = 1 << 20
"""Bytes of a transfer that arrive before the next of the first ones begins."""
POLL_S = 0.2
"""Seconds after which a wait looks around: one without end in the main thread can sleep through Ctrl-C."""
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
        self.room = room_of(os.getpid(), self.folder)
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

    def one(self, of: Object) -> str:
        """Return the path of the copy of an object, fetched if it is missing; it may soon be removed again."""
        with closing(self.ahead([of])) as ahead:
            return ahead.take(of)

    def require(self, objects: Sequence[Object], num_open: int) -> None:
        """Raise `WorldError` if the largest `num_open` of these objects take more space than there may be."""
        needed = sum(sorted(of.bytes for of in objects)[-num_open:])
        if self.keep_bytes is not None and needed > self.keep_bytes:
            raise self.too_small(needed, min(num_open, len(objects)))

    def too_small(self, needed_bytes: int, count: int, *, by_others: bool = False) -> WorldError:
        """Return the error for a limit below what is read at once, here or also by other processes."""
        others = " beside those that other processes use" if by_others else ""
        return WorldError(
            "dataset.keep",
            rounded(self.keep_bytes or 0),
            f"at least {ceil(10 * needed_bytes / _MB) / 10:,.1f} MB for {counted(count, 'file')} read at once{others}",
            "set dataset.keep=all, or to a size that is large enough",
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


class Ahead:
    """The fetching of objects by own threads, ahead of their reader. The first of them has the bandwidth first.

    It may be used by several threads. An object that is read again after `leave` is fetched again if it was removed.

    Attributes:
        ahead: What is there or is being fetched and is not taken yet, by its key.
    """

    def __init__(
        self,
        copies: Copies,
        objects: Sequence[Object],
        *,
        window: int,
        tell: Callable[[int], None] = lambda _: None,
        compares: bool = False,
    ) -> None:
        """Begin to fetch.

        Args:
            copies: Where the copies are.
            objects: In the order in which they are read.
            window: The most objects that are there, or being fetched, before the reader takes them.
            tell: Is called with numbers of new bytes.
            compares: Whether the versions of copies that are there are compared with those of their store.
        """
        self.ahead: dict[str, Object] = {}
        self._copies, self._tell, self._window = copies, tell, window
        self._todo = OrderedDict((of.key, of) for of in objects)
        self._wanted: dict[str, Object] = {}
        self._ended: dict[str, EtlrunError | None] = {}
        self._taken: dict[str, list[Object]] = {}
        self._marked: list[Object] = []
        self._failed: EtlrunError | None = None
        self._first = self._latest = next(iter(self._todo), "")
        self._begun = self._latest_bytes = 0
        self._changed, self._choosing, self._stop = Condition(), Lock(), Event()
        copies.room.readers.add(self)
        count = min(copies.at_once, len(self._todo))
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(count)]
        if compares:
            self._threads.append(Thread(target=self._look_up, args=[list(self._todo.values())], daemon=True))
        for thread in self._threads:
            thread.start()

    def take(self, of: Object) -> str:
        """Return the path of the copy of an object; wait until it is there. It is in use until `leave`.

        Raises:
            EtlrunError: It can't be fetched; with those that are in use it takes more than `keep_bytes`; or `close` was
                called.
        """
        asked_s = time.monotonic()
        with self._changed:
            is_known = of.key in self.ahead or of.key in self._ended or of.key in self._taken
            if self._todo.pop(of.key, None) is not None or not is_known:
                self._wanted[of.key] = of  # before those that were to come first
            self._changed.notify_all()
            while not self._is_there(of):
                self._changed.wait(POLL_S)
            self._copies.count(waited_s=time.monotonic() - asked_s)
            if (error := self._ended.get(of.key)) is not None:
                raise error
            if of.key in self._taken:
                self._copies.room.use([of], None)
            self._ended.pop(of.key, None)
            self.ahead.pop(of.key, None)
            self._taken.setdefault(of.key, []).append(of)
            self._changed.notify_all()
        return self._copies.path(of)

    def _is_there(self, of: Object) -> bool:
        if self._stop.is_set() or self._failed is not None:
            raise self._failed or interrupted(of.url)
        return of.key in self._ended or of.key in self._taken

    def leave(self, of: Object) -> None:
        """End the use of the copy of an object, as its reader has come to its end."""
        with self._changed:
            if of.key not in self._taken:
                return
            self._taken[of.key].pop()
            if not self._taken[of.key]:
                del self._taken[of.key]
            self._copies.room.leave([of], soon=self._copies.keep_bytes is not None)
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads, and the use of all copies; what has arrived stays."""
        with self._changed:
            self._stop.set()
            ready = [self.ahead.pop(key) for key in self._ended if key in self.ahead]
            self._copies.room.leave([*ready, *itertools.chain(*self._taken.values()), *self._marked])
            self._marked = []
            self._taken.clear()
            self._ended.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(1 / len(self._threads))  # none waits for a server that is silent

    def give_back(self) -> bool:
        """Give up an object that is there before it is taken; return whether there was one."""
        with self._changed:
            ready = [key for key in self.ahead if self._ended.get(key, self) is None]
            if not ready:
                return False
            of = self.ahead.pop(ready[-1])
            del self._ended[of.key]
            self._todo[of.key] = of
            self._todo.move_to_end(of.key, last=False)
            self._copies.room.leave([of])
        return True

    def _work(self) -> None:
        try:
            while (of := self._next()) is not None:
                error = self._fetched(of)
                with self._changed:
                    self._end(of, error)
                    if error is not None or self._stop.is_set():
                        self.ahead.pop(of.key)
                        self._copies.room.leave([of])
        except EtlrunError as error:  # of the folder, not of an object
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _look_up(self, objects: Sequence[Object]) -> None:
        """Refuse to go on if objects of which there are copies have changed; what is fetched is compared then."""
        with self._changed:
            while not self._is_first_there() and not self._stop.is_set():
                self._changed.wait(POLL_S)
        there = [of for of in objects if Path(self._copies.path(of)).exists()]
        errors: list[UnreachableError] = []
        for error in changed(there, self._copies.storage):
            errors.append(error)
            with self._changed:
                self._failed = UnreachableError.together(errors)
                self._changed.notify_all()
            if self._stop.is_set():
                return

    def _is_first_there(self) -> bool:
        key = self._first
        return key in self._ended or not (key in self._todo or key in self._wanted or key in self.ahead)

    def _fetched(self, of: Object) -> EtlrunError | None:
        """Fetch an object that is not there; return why it can't be."""
        path = Path(self._copies.path(of))
        self._copies.count(fetching=1)
        self._begun += 1
        try:
            asked = partial(self._copies.count, requests=1)
            ObjectFetch(of, path, self._copies.storage, self._stop, asked, partial(self._arrived, of.key)).run()
        except EtlrunError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a thread of its own tells no one else
            return UnreachableError.of(of.url, error)
        finally:
            self._copies.count(fetching=-1)
        return None

    def _end(self, of: Object, error: EtlrunError | None) -> None:
        self._ended[of.key] = error
        self._changed.notify_all()

    def _next(self) -> Object | None:
        """Return the next object to fetch, now in use; None after `close`. One thread at a time chooses."""
        with self._choosing:
            waits_for, since_s, keep_bytes = "", 0.0, self._copies.keep_bytes
            while not self._stop.is_set():
                with self._changed:
                    of = None if self._stop.is_set() else self._chosen()
                    order = {} if keep_bytes is None else {key: place for place, key in enumerate(self._todo)}
                    if of is not None and keep_bytes is None:
                        self._mark(of)
                    if of is not None and self._copies.room.use([of], keep_bytes, order):
                        self._wanted.pop(of.key, None)
                        self._todo.pop(of.key, None)
                        self.ahead[of.key] = of
                        if not Path(self._copies.path(of)).exists():
                            self._latest, self._latest_bytes = of.key, 0
                            return of
                        self._end(of, None)  # here, since a change of the thread takes longer
                        continue
                    if of is None or of.key not in self._wanted:
                        self._changed.wait(POLL_S)
                        continue
                if of.key != waits_for:
                    waits_for, since_s = of.key, time.monotonic()
                if not any(reader.give_back() for reader in list(self._copies.room.readers)):
                    self._wait_for_room(of, since_s)
        return None

    def _mark(self, of: Object) -> None:
        """Mark an object and those that follow as in use, all in one file, where none is removed for another."""
        if of not in self._marked:
            marked = list(dict.fromkeys([of, *itertools.islice(self._todo.values(), 2 * self._window)]))
            self._copies.room.use(marked, None)
            self._copies.room.leave(self._marked, soon=False)
            self._marked = marked

    def _chosen(self) -> Object | None:
        """Return the object that is fetched next; None while there are enough, or it is too early."""
        if self._wanted:
            return next(iter(self._wanted.values()))
        if self._todo and len(self.ahead) < self._window and self._may_begin():
            return next(iter(self._todo.values()))
        return None

    def _may_begin(self) -> bool:
        """Return whether a transfer may begin: the first one alone, the next ones as those before begin to arrive.

        Objects of one size that begin together end together, again and again, and each time the network is idle.
        """
        if self._first in self._todo or not self._is_first_there():
            return self._first in self._todo
        is_arriving = (
            self._latest_bytes >= _APART_BYTES or self._latest in self._ended or self._latest not in self.ahead
        )
        return is_arriving or self._begun >= self._copies.at_once

    def _wait_for_room(self, of: Object, since_s: float) -> None:
        """Wait for others that leave copies; refuse an object for which there will be no room."""
        room, keep_bytes = self._copies.room, self._copies.keep_bytes or 0
        held = [
            size for key, size in room.used().items() if not any(key in reader.ahead for reader in list(room.readers))
        ]
        needed = sum(held) + of.bytes
        with self._changed:
            if needed > keep_bytes or time.monotonic() - since_s > LONGEST_S:
                del self._wanted[of.key]
                self._end(of, self._copies.too_small(needed, len(held) + 1, by_others=needed <= keep_bytes))
            else:
                self._changed.wait(POLL_S)

    def _arrived(self, key: str, count: int, new: int) -> None:
        self._copies.count(arrived=count)
        self._tell(new)
        if key == self._latest and self._begun < self._copies.at_once:
            with self._changed:
                self._latest_bytes += count
                self._changed.notify_all()


_urls: dict[str, str] = {}


def copied(objects: Mapping[str, Object], copies: Copies) -> dict[str, str]:
    """Return the paths of copies of objects by URL as `Copies.all` does; from now on they are named by the URLs."""
    name_copies(objects.values(), copies)
    return dict(zip(objects, copies.all([*objects.values()]), strict=True))


def name_copies(objects: Iterable[Object], copies: Copies) -> None:
    """Name copies of objects, which may be fetched later, by the URLs from now on."""
    _urls.update({copies.path(of): of.url for of in objects})


def name_of(path: str) -> str:
    """Return the URL of a copy; other paths as they are."""
    return _urls.get(path, path)


@contextmanager
def named_by_url() -> Iterator[None]:
    """Let the faults of an `EtlrunError` in the block name URLs instead of the paths of their copies."""
    try:
        yield
    except EtlrunError as error:
        parts = ("where", "found", "expected", "remedy")
        for path, url in _urls.items():
            error.faults = tuple(
                dataclasses.replace(of, **{part: getattr(of, part).replace(path, url) for part in parts})
                for of in error.faults
            )
        error.args = ("\n".join(map(str, error.faults)),)
        raise


def copies_of(dataset: Declared) -> Copies:
    """Return the copies of the objects of a dataset."""
    keep = dataset.keep
    kept_bytes = None if keep == "all" else int(float(keep[:-2]) * UNITS[keep[-2]])
    return Copies(folder_of(dataset.copies), dataset.storage or {}, kept_bytes)
