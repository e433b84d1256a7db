"""Sampling thread of a run: memory, CPU and GPU usage, and the pipelines while they fill."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Self

from etlrun.measure.resources import GpuUse
from etlrun.measure.usage import Usage
from etlrun.measure.watched import Watch

_PAUSE_S = 0.03


class Sampler:
    """Context manager around a training that samples it in a thread.

    Attributes:
        gpu: Utilization and memory of the GPUs.
        usage: Memory and CPU over the training.
    """

    def __init__(self, watches: Iterable[Watch], *, with_gpu: bool) -> None:
        self._watches = tuple(watches)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="etlrun-sampler", daemon=True)
        self.gpu, self.usage = GpuUse(), Usage()
        self._with_gpu = with_gpu

    def __enter__(self) -> Self:
        if self._with_gpu:
            self.gpu.open()
        self.usage.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.gpu.close()
        for watch in self._watches:
            watch.spent.clear()

    def _look_on(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            self.gpu.look()
            self.usage.look()
            for watch in self._watches:
                iterator = watch.filling
                if iterator is not None:
                    watch.look(iterator)
                del iterator
                watch.spent.clear()
