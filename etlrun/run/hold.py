"""Stand-in of a training step, for as long as the step of a model takes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np

_CHUNK = 20_000
"""Numbers that a thread computes without looking at its clock: a fraction of a millisecond without Python's lock."""


class Hold:
    """Context manager that holds each batch for the time of a step.

    Steps of an accelerator wait. Those of a CPU compute: each thread works until its own clock has advanced by the time
    of the step, so that a pipeline that takes its core makes the step longer.
    """

    def __init__(self, step_ms: float, cores: float) -> None:
        """Hold each batch for `step_ms` milliseconds, in which `cores` cores compute; 0 for none."""
        whole, part = divmod(cores, 1)
        self._computed_s = [step_ms / 1000 * share for share in (*[1.0] * int(whole), part) if share * step_ms]
        self._waited_s = step_ms / 1000 * max(0.0, 1 - cores)
        self._pool = ThreadPoolExecutor(len(self._computed_s)) if self._computed_s else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def step(self) -> None:
        """Return after the time of a step."""
        if self._pool is not None:
            list(self._pool.map(_compute, self._computed_s))
        if self._waited_s:
            time.sleep(self._waited_s)


def _compute(seconds: float) -> None:
    """Compute until this thread has used so many seconds of a core."""
    numbers, until_s = np.linspace(0.0, 1.0, _CHUNK), time.thread_time() + seconds
    while time.thread_time() < until_s:
        np.sin(numbers, out=numbers)
