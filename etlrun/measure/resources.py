"""Resource usage of a run: CPU, memory, bytes read and GPU, in total and over the time of its training."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import psutil
import pynvml

from etlrun.measure.beside import Beside
from etlrun.measure.watched import Watch
from etlrun.system.machine import visible_gpus

MOST = 300
"""Number of intervals; when there are as many, they are halved in number and doubled in length."""
_FIRST_S = 0.1
"""Length of the first intervals: a look takes about 0.1 ms."""
_PAUSE_S = 0.03
_LOOKS_APART_S = 0.5
"""Pause between looks, and between looks at the GPUs; NVML's own window is at least as long."""


class Resources:
    """Resources that the process uses from the creation of this object on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = time.perf_counter(), time.process_time(), self._bytes_read()

    def _bytes_read(self) -> int | None:
        """Return the bytes this process has read from files, page cache included; None if the system does not count."""
        if not hasattr(self._process, "io_counters"):
            return None
        return int(getattr(self._process.io_counters(), "read_chars", 0))

    def used(self) -> dict[str, Any]:
        """Return `cpu_s`, `cores_used` (all threads), `bytes_read`, and `peak_rss_bytes` since the process started."""
        wall_s, cpu_s, read = time.perf_counter(), time.process_time(), self._bytes_read()
        wall_s, cpu_s = wall_s - self._start[0], cpu_s - self._start[1]
        return {
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * (1 if sys.platform == "darwin" else 1024),
            "cpu_s": cpu_s,
            "cores_used": cpu_s / wall_s if wall_s > 0 else 0.0,
            "bytes_read": None if read is None or self._start[2] is None else read - self._start[2],
        }


class GpuUse:
    """Utilization of each NVIDIA GPU visible to this process, and the memory that the process holds on it."""

    def __init__(self) -> None:
        self._devices: dict[int, Any] = {}
        self._shares: dict[int, list[int]] = {}
        self._sizes: dict[int, list[int]] = {}
        self._looked_s = 0.0
        self._is_open = False

    def open(self) -> None:
        """Connect to the driver; without a driver nothing is measured."""
        try:
            pynvml.nvmlInit()
            self._is_open = True
            self._devices = {gpu.index: pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in visible_gpus()}
        except pynvml.NVMLError:
            self._devices = {}

    def look(self) -> None:
        """Sample the current usage, at most twice per second."""
        now = time.monotonic()
        if not self._devices or now - self._looked_s < _LOOKS_APART_S:
            return
        self._looked_s = now
        for index, device in list(self._devices.items()):
            try:
                share = pynvml.nvmlDeviceGetUtilizationRates(device).gpu
                processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
            except pynvml.NVMLError:  # a device without these figures, such as a MIG instance
                del self._devices[index]
                continue
            self._shares.setdefault(index, []).append(share)
            mine = [item.usedGpuMemory for item in processes if item.pid == os.getpid() and item.usedGpuMemory]
            self._sizes.setdefault(index, []).extend(mine)

    def described(self) -> list[dict[str, Any]]:
        """Return the mean utilization in percent and this process's peak memory in bytes (None if unknown) per GPU."""
        return [
            {
                "index": index,
                "utilisation_percent": statistics.fmean(shares),
                "peak_memory_bytes": max(self._sizes[index], default=None),
            }
            for index, shares in self._shares.items()
        ]

    def close(self) -> None:
        """Disconnect from the driver."""
        if self._is_open:
            pynvml.nvmlShutdown()
            self._is_open = False


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


class Sampler:
    """Context manager around a training that samples it in a thread.

    Attributes:
        gpu: Utilization and memory of the GPUs.
        usage: Memory and CPU over the training.
        beside: Others that measure at the same time.
    """

    def __init__(self, watches: Iterable[Watch], beside: Beside, *, with_gpu: bool) -> None:
        self._watches = tuple(watches)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="etlrun-sampler", daemon=True)
        self.gpu, self.usage, self.beside = GpuUse(), Usage(), beside
        self._with_gpu = with_gpu

    def __enter__(self) -> Self:
        if self._with_gpu:
            self.gpu.open()
        self.beside.__enter__()
        self.usage.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.beside.__exit__()
        self.gpu.close()
        for watch in self._watches:
            watch.wait_deleted()

    def _look_on(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            self.gpu.look()
            self.usage.look()
            self.beside.look()
            for watch in self._watches:
                iterator = watch.filling
                if iterator is not None:
                    watch.look(iterator)
                del iterator
                watch.delete_spent()
