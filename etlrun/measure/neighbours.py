"""Other runs and sweeps of etlrun that measure on this machine at the same time, of the same user."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self

import platformdirs

from etlrun.system.files import Lock

_APART_S = 0.5
_NOTE = "It was measured beside other runs of etlrun on this machine: "


class Beside:
    """Context manager around what `own` measures: a run, or one of a sweep's or search's, whose others don't count.

    Attributes:
        seen: Others that measured at the same time.
    """

    def __init__(self, own: str) -> None:
        place = platformdirs.user_cache_path("etlrun") / "measuring" / platform.node()
        self._own, self._lock = own, Lock(place / str(os.getpid()))
        self.seen, self._looked_s = set[str](), 0.0

    def __enter__(self) -> Self:
        with suppress(OSError):  # which is no reason to measure nothing
            self._lock.acquire(timeout_s=_APART_S)
            self._lock.path.write_bytes(os.fsencode(self._own))
        self.look()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):
            self._lock.path.unlink()
        self._lock.release()

    def look(self) -> None:
        """See who measures now, at most twice per second."""
        if time.monotonic() - self._looked_s < _APART_S:
            return
        self._looked_s = time.monotonic()
        with suppress(OSError):
            for path in {*self._lock.path.parent.iterdir()} - {self._lock.path}:
                other = Lock(path)
                try:
                    other.acquire()
                except TimeoutError:
                    self.seen |= {os.fsdecode(path.read_bytes())} - {"", self._own}
                else:  # its process was killed
                    path.unlink()
                    other.release()

    def notes(self) -> Iterator[str]:
        """Yield the note on those that were seen."""
        if self.seen:
            yield f"{_NOTE}{', '.join(sorted(self.seen))}."


def note_on_others(runs: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield the note on those of a sweep's or search's runs, names with their notes, that were not alone."""
    found = {name: note for name, notes in runs for note in notes if note.startswith(_NOTE)}
    if found:
        others = sorted({of for note in found.values() for of in note.removeprefix(_NOTE)[:-1].split(", ")})
        yield (
            f"runs {', '.join(found)} were measured beside other runs of etlrun on this machine, which take from their "
            f"speed: {', '.join(others)}"
        )
