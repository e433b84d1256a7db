"""Use of a cache on disk by one pipeline: each pass fills it, reads it, or runs without it."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from etlrun.cache.parts import Array, BrokenError, Manifest, PartWriter
from etlrun.cache.store import CacheStore, Claim, Opened, key_of
from etlrun.system.errors import WorldError

READ, UNCACHED = 0, -1
"""Modes of a pass; a positive number is the number of an attempt to fill the cache."""


Compare = Callable[[Any, Any], None]
"""A function that compares what a pass reads with the key: of a place, which is the number of a shard, the next record.

Or of a record that names a file its bytes. Several threads may call it.
"""


class Identified(Protocol):
    """Content of files, on which a key rests, at the time of construction: what is modified later has changed."""

    @property
    def digest(self) -> str | None:
        """First 16 hex digits of a SHA-256 over what is read; None if it can't be read."""

    @property
    def compared(self) -> Callable[[], Compare] | None:
        """Function that returns what compares another pass; None where what it reads can't change, or is elsewhere."""

    def changed(self) -> str | None:
        """Return the path of a file that is, or was when a pass read it, another than at first; None if none is."""

    def files(self, *, whole: bool) -> list[list[object]]:
        """Return names with what identifies their content; `WorldError` if a file can't be read."""


class Keeper:
    """Keeps the cache of a pipeline. TensorFlow's threads and the run's own call it, one at a time.

    Attributes:
        key: Key of the cache.
        kept: What the cache is to hold.
        store: Store of the cache.
        passes: Mode of each pass so far: `filled`, `read`, `uncached`, or `filling` if it was not read to its end.
        failure: Error that ended reading; None if there was none.
    """

    def __init__(
        self, store: CacheStore, kept: Manifest, *, count: int | None, content: Identified, say: Callable[[str], None]
    ) -> None:
        """Make a keeper that has not opened its cache yet.

        Args:
            store: Store of the cache.
            kept: What the cache is to hold.
            count: Number of examples of a whole pass; None if it is not known in advance.
            content: Content of the files that the identity names.
            say: Reports the state of the cache.
        """
        self.key, self.kept, self.store = key_of(kept.identity), kept, store
        self.passes: list[str] = []
        self.failure: WorldError | None = None
        self._whole, self._content, self._say = count, content, say
        self._compare: Compare | None = None
        self._opened: Opened | None = None
        self._claim: Claim | None = None
        self._writer: PartWriter | None = None
        self._fill, self._given_up = 0, False
        self._lock = threading.RLock()

    @property
    def count(self) -> int:
        """Number of examples that can be read; 0 before the cache is published."""
        return self._opened.manifest.count if self._opened else 0

    @property
    def numbers(self) -> Array:
        """Numbers in the data of the examples that can be read (int64)."""
        return self._read(lambda opened: opened.numbers)  # type: ignore[no-any-return]

    @property
    def held_bytes(self) -> int:
        """Size of the examples that can be read."""
        return self._opened.manifest.payload_bytes if self._opened else 0

    @property
    def is_to_fill(self) -> bool:
        """Whether this run has claimed the cache, which does not exist yet."""
        return self._claim is not None and self._opened is None

    def prepare(self) -> None:
        """Open the cache, or claim it unless another run fills it; raise `WorldError` if it can't be made."""
        if not self.store.has(self.key):
            self.store.make()
        self._open_or_claim()

    def read_only(self) -> None:
        """Open the cache if it is there; if not, passes run without it, and leave it to a run to fill it."""
        if not (self.store.has(self.key) and self._open()):
            self._given_up = True
            self._say(f"the cache {self.key} is not filled yet, as a run does: passes run without it")

    def _open_or_claim(self) -> None:
        try:
            if not self._open() and self._claim is None and not self.store.is_claimed_here(self.key):
                self._claim = self.store.claim(self.key)
                if self._claim is not None and self._open():  # published a moment ago
                    self._abandon()
        except OSError as error:
            self._give_up(error)

    def _open(self) -> bool:
        if self._opened is None:
            try:
                self._opened = self.store.open(self.key)
            except BrokenError as error:
                self.store.remove(self.key, broken=error.inode)
                self._say(f"the cache {self.key} was broken and will be rebuilt: {error}")
        return self._opened is not None

    def _abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        if self._claim is not None:
            self._claim.release()
        self._writer = self._claim = None

    def begin(self) -> np.int64:
        """Begin a pass and return its mode."""
        with self._lock:
            if self._writer is not None:  # a pass that was not read to its end leaves an incomplete cache
                self._abandon()
            if self._opened is None and not self._given_up:
                self._open_or_claim()
                if self._claim is not None:
                    self._writer = PartWriter(self._claim.folder)
                    self._compare = self._content.compared and self._content.compared()
                    self._fill += 1
                elif not self._opened and not self._given_up:
                    who = "this run" if self.store.is_claimed_here(self.key) else "another run"
                    self._say(f"{who} is filling the cache {self.key}: this pass runs without it")
            mode, kind = (READ, "read") if self._opened else (UNCACHED, "uncached")
            if self._writer is not None:
                mode, kind = self._fill, "filling"
            self.passes.append(kind)
            return np.int64(mode)

    def add(self, fill: np.int64, *features: Any, number: Any = None) -> np.int64:
        """Write an example, with its number in the data if that isn't the next; if the disk is full, go on without."""
        with self._lock:
            if self._writer is not None and fill == self._fill:
                try:
                    self._writer.add(*features, number=number)
                except OSError as error:
                    self._give_up(error)
        return np.int64(0)

    def compare(self, fill: np.int64, place: Any, data: Any) -> np.int64:
        """Compare what a pass reads for that fill with the files that the key names."""
        compare = self._compare
        if compare is not None and fill == self._fill:
            compare(place, data)
        return np.int64(0)

    def publish(self, fill: np.int64) -> np.int64:
        """Publish the cache after that fill."""
        with self._lock:
            if self._writer is None or self._claim is None or fill != self._fill:
                return np.int64(0)
            if self._whole is not None and self._writer.count != self._whole:  # an example failed
                self._abandon()
                return np.int64(0)
            path = self._content.changed()  # other runs would take the new content for the old
            if path is not None:
                self._go_without(f"was discarded: {path} has changed since the run began")
                return np.int64(0)
            try:
                kept = replace(self.kept, made_by={**self.kept.made_by, "made_s": time.time()})
                self._opened = self.store.publish(self.key, self._claim, self._writer.close(kept))
            except OSError as error:
                self._give_up(error)
            else:
                self._writer = self._claim = None
                self.passes[-1] = "filled"
        return np.int64(0)

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if isinstance(error, PermissionError | TimeoutError) and error.filename:
            reason = f"{error.filename}: {reason}"
        self._go_without(f"could not be {'written' if self._claim else 'opened'} in {self.store.folder}: {reason}")

    def _go_without(self, why: str) -> None:
        self._abandon()
        self._given_up = True
        self.passes[-1:] = ["uncached"] if self.passes else []
        self._say(f"the cache {self.key} {why}; passes run without it")

    def one(self, number: np.int64) -> tuple[Any, ...]:
        """Return an example; see `PartReader.one`."""
        return self._read(lambda opened: opened.one(int(number)))  # type: ignore[no-any-return]

    def batch(self, numbers: npt.NDArray[np.int64]) -> tuple[Array, ...]:
        """Return a batch; see `PartReader.batch`."""
        return self._read(lambda opened: opened.batch(numbers))  # type: ignore[no-any-return]

    def _read(self, work: Callable[[Opened], Any]) -> Any:
        opened = self._opened
        if opened is None:
            raise RuntimeError(f"the cache {self.key} is not open")
        try:
            return work(opened)
        except OSError as error:
            self._fail(opened, error)
            raise

    def _fail(self, opened: Opened, error: OSError) -> None:
        where, found, expected = opened.folder, str(error.strerror or error), "files that can be read"
        if isinstance(error, BrokenError):
            where, found, expected = error.path, error.found, error.expected
        with self._lock:
            if self.failure is None:
                remedy = "resume the run, or start it again: the cache has been removed and will be rebuilt"
                try:
                    self.store.remove(self.key, broken=opened.inode)
                except OSError as other:
                    reason = f"{opened.folder} could not be removed ({other.strerror or other})"
                    remedy = f"resume the run with another cache.dir: {reason}"
                self.failure = WorldError(where, found, expected, remedy)

    def close(self) -> None:
        """Close the cache at the end of the run; discard it if it is incomplete."""
        with self._lock:
            self._given_up = True
            self._abandon()
            if self._opened is not None:
                self._opened.close()
                self._opened = None
