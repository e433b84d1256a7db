"""Resource usage of a run: CPU, memory, bytes read, GPU."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from typing import Any

import psutil
import pynvml

from etlrun.system.machine import visible_gpus

_LOOKS_APART_S = 0.5
"""Sampling interval; NVML's own window is at least as long."""


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
