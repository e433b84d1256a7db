"""Progress of commands: bars for a terminal, and of what is fetched also lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

Begin = Callable[[str, int], Callable[[int], None]]
"""A function that begins a task of so many images or megabytes, and returns one to which progress is told."""


@contextmanager
def progress() -> Iterator[Begin]:
    """Yield a function that begins a task of so many images or megabytes, and returns one to which progress is told."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def begin(what: str, total: int) -> Callable[[int], None]:
            task = bars.add_task(what, total=total)
            return lambda count: bars.advance(task, count)

        yield begin


@contextmanager
def fetching(total_bytes: int, line_every_s: float = 10.0) -> Iterator[Callable[[int], None]]:
    """Yield a function to which numbers of new bytes are told, from any thread; it shows the rate and the time left.

    A terminal has a bar; elsewhere a line is printed on standard error each `line_every_s` seconds.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(total_bytes, line_every_s).tell
        return
    columns = (TextColumn("Fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=total_bytes)
        yield lambda count: bars.advance(task, count)


class _Lines:
    """Lines on the progress of a transfer."""

    def __init__(self, total_bytes: int, every_s: float) -> None:
        self._total_bytes, self._every_s = total_bytes, every_s
        self._bytes, self._lock = 0, Lock()
        self._began_s = self._said_s = time.monotonic()

    def tell(self, count: int) -> None:
        with self._lock:
            self._bytes, now_s = self._bytes + count, time.monotonic()
            if now_s - self._said_s < self._every_s or not self._bytes:
                return
            self._said_s, rate = now_s, self._bytes / max(now_s - self._began_s, 1e-9)
            left_s = max(0, self._total_bytes - self._bytes) / rate
            of = f"{self._bytes / 1e6:,.1f} of {self._total_bytes / 1e6:,.1f} MB"
            print(f"etlrun: fetched {of} at {rate / 1e6:,.1f} MB/s, {left_s:,.0f} s left", file=sys.stderr)
