"""What a run used of its machine."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from typing import Any

import psutil
import pynvml


class Resources:
    """What the process uses from here on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = time.perf_counter(), time.process_time(), self._bytes_read()

    def _bytes_read(self) -> int | None:
        """By this process from files, the page cache included; None where the system does not count it."""
        if not hasattr(self._process, "io_counters"):
            return None
        return int(getattr(self._process.io_counters(), "read_chars", 0))

    def used(self) -> dict[str, Any]:
        """`cpu_s` and `cores_used` of all threads, `bytes_read`, and `peak_rss_bytes` since the process began."""
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
    """Utilisation of each NVIDIA GPU and the memory that this process holds on it; empty where there is none."""

    def __init__(self) -> None:
        self._devices: list[Any] = []
        self._seen: list[tuple[list[int], list[int]]] = []
        self._looked_s = 0.0
        try:
            pynvml.nvmlInit()
            self._devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            return
        self._seen = [([], []) for _ in self._devices]

    def look(self) -> None:
        """Note the use of this moment, at most twice a second."""
        now = time.monotonic()
        if not self._devices or now - self._looked_s < 0.5:  # noqa: PLR2004 - NVML's own window
            return
        self._looked_s = now
        for device, (shares, sizes) in zip(self._devices, self._seen, strict=True):
            shares.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
            mine = [
                item.usedGpuMemory or 0
                for item in pynvml.nvmlDeviceGetComputeRunningProcesses(device)
                if item.pid == os.getpid()
            ]
            sizes.append(sum(mine) or int(pynvml.nvmlDeviceGetMemoryInfo(device).used))

    def described(self) -> list[dict[str, Any]]:
        """For each GPU its mean utilisation in percent and its peak memory in bytes."""
        return [
            {"utilisation_percent": statistics.fmean(shares), "peak_memory_bytes": max(sizes)}
            for shares, sizes in self._seen
            if shares
        ]

    def close(self) -> None:
        """Give the driver back."""
        if self._devices:
            pynvml.nvmlShutdown()
