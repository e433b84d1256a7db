"""Memory and CPU of this process over time, in a bounded number of intervals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import psutil

MOST = 300
"""Number of intervals; when there are as many, they are halved in number and doubled in length."""
_FIRST_S = 0.1
"""Length of the first intervals: a look takes about 0.1 ms."""


class Interval(NamedTuple):
    """Usage between two looks.

    Attributes:
        at_s: Its end, in seconds since the start.
        rss_bytes: Largest resident memory that was seen.
        cores: Mean number of cores in use: CPU seconds of all threads per second.
    """

    at_s: float
    rss_bytes: int
    cores: float


class Usage:
    """Series of the memory and the CPU time of this process from `begin` on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._intervals: list[Interval] = []
        self._length_s = _FIRST_S
        self.begin()

    def begin(self) -> None:
        """Start the clock."""
        self._start_s = self._looked_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def look(self) -> None:
        """Add an interval if the last one began long enough ago."""
        now_s = time.perf_counter()
        lasted_s = now_s - self._looked_s
        if lasted_s < self._length_s:
            return
        cpu_s, rss_bytes = time.process_time(), int(self._process.memory_info().rss)
        found = Interval(now_s - self._start_s, rss_bytes, (cpu_s - self._cpu_s) / lasted_s)
        self._looked_s, self._cpu_s = now_s, cpu_s
        intervals = [*self._intervals, found]
        if len(intervals) >= MOST:
            intervals, self._length_s = [*halved(intervals)], 2 * self._length_s
        self._intervals = intervals  # replaced, since another thread may read it

    def described(self) -> dict[str, list[float]] | None:
        """Return the intervals as `summary.json` holds them; None without one."""
        at_s, rss_bytes, cores = zip(*self._intervals, strict=True) if self._intervals else ((), (), ())
        if not at_s:
            return None
        return {
            "at_s": [round(value, 2) for value in at_s],
            "rss_bytes": [*rss_bytes],
            "cores": [round(value, 2) for value in cores],
        }


def halved(intervals: Sequence[Interval]) -> Iterator[Interval]:
    """Yield one interval for each two of them; the last of an odd number stays."""
    began_s = 0.0
    for first in range(0, len(intervals), 2):
        pair = intervals[first : first + 2]
        at_s, cpu_s = began_s, 0.0
        for interval in pair:
            cpu_s += interval.cores * (interval.at_s - at_s)
            at_s = interval.at_s
        yield Interval(at_s, max(interval.rss_bytes for interval in pair), cpu_s / (at_s - began_s))
        began_s = at_s
