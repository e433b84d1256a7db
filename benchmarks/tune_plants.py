"""Plants of `benchmarks.tune`, which each forked window gets by being imported into the server of forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PLANT = "ETLRUN_BENCHMARK_PLANT"
READ = "read"
_Grid = dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A pipeline with something in it that the best config copes with.

    Attributes:
        overrides: Overrides of the baseline, beside those of all plants.
        sleeps_ms: Milliseconds that a kind of step sleeps for each example, by the name of its class, or `read`.
        is_locked: Whether these sleeps hold one lock, so that threads don't help.
        free_bytes: Memory and disk that are told to be free; None for what is.
        grid: Values of the keys that the exhaustive grid combines.
    """

    overrides: tuple[str, ...] = ()
    sleeps_ms: dict[str, float] = field(default_factory=dict)
    is_locked: bool = False
    free_bytes: int | None = None
    grid: _Grid = field(default_factory=dict)


_THREADS: _Grid = {"transform.num_parallel_calls": ("1", "2", "8", "autotune")}
_CACHES: _Grid = {"cache.name": ("none", "memory", "disk")}
_PREFETCH: _Grid = {"load.prefetch": ("0", "autotune")}
_READERS: _Grid = {"extract.num_parallel_calls": ("1", "4", "autotune")}
_UNCACHED = "cache=none"
PLANTS: dict[str, Plant] = {
    "slow storage": Plant(
        overrides=(_UNCACHED, "extract.num_parallel_calls=1"), sleeps_ms={READ: 2.0}, grid=_READERS | _CACHES
    ),
    "slow storage, one epoch": Plant(
        overrides=(_UNCACHED, "extract.num_parallel_calls=1", "trainer.epochs=1"),
        sleeps_ms={READ: 2.0},
        grid=_READERS | _THREADS,
    ),
    "serial map": Plant(
        overrides=(_UNCACHED, "transform.num_parallel_calls=null"), sleeps_ms={"Decode": 1.0}, grid=_THREADS | _CACHES
    ),
    "contention for a lock": Plant(
        overrides=(_UNCACHED, "transform.num_parallel_calls=8", "trainer.epochs=1"),
        sleeps_ms={"Decode": 0.5},
        is_locked=True,
        grid=_THREADS | _PREFETCH,
    ),
    "no prefetch": Plant(overrides=(_UNCACHED, "load.prefetch=0"), sleeps_ms={"Decode": 0.5}, grid=_PREFETCH | _CACHES),
    "caches too large": Plant(
        overrides=(_UNCACHED, "transform.num_parallel_calls=1"),
        sleeps_ms={"Decode": 1.0},
        free_bytes=1_000_000,
        grid=_THREADS | _PREFETCH,
    ),
    "a fill that does not pay": Plant(
        overrides=("cache=disk", "trainer.epochs=1", "transform.num_parallel_calls=2"), grid=_THREADS | _CACHES
    ),
    "a model that bounds": Plant(overrides=("cache=memory", "model.step_ms=40"), grid=_PREFETCH | _CACHES),
    "slow augmentation": Plant(
        overrides=(
            "transform.steps=[decode,resize,random_flip,scale_minus_one_one]",
            "cache.at=resize",
            "transform.num_parallel_calls=1",
        ),
        sleeps_ms={"RandomFlip": 1.0},
        grid=_THREADS | _PREFETCH,
    ),
    "an expensive step, cached too early": Plant(
        overrides=("cache=memory", "cache.at=source"),
        sleeps_ms={"Resize": 1.0},
        grid=_THREADS | {"cache.at": ("source", "transformed")},
    ),
    "nothing to mend": Plant(overrides=("cache=memory",), grid=_THREADS | _PREFETCH),
    "many small faults": Plant(
        overrides=(_UNCACHED, "load.prefetch=0", "transform.num_parallel_calls=null", "extract.num_parallel_calls=1"),
        sleeps_ms={"Decode": 0.5},
        grid=_THREADS | _CACHES | _PREFETCH,
    ),
}


def plant(of: Plant) -> None:
    """Put what a plant says into the stages of this process, for good."""
    from benchmarks import planted

    lock = threading.Lock()
    if of.is_locked:
        vars(planted)["time"] = _Locked(lock)  # for its sleeps
    kinds: dict[str, Any] = {kind.__name__: kind for kind in planted.STEPS}
    planted.planted({kinds.get(name, name): ms for name, ms in of.sleeps_ms.items()}).__enter__()


class _Locked:
    """The module `time` with a sleep that holds a lock, and takes longer the more threads wait for it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self._waiting = lock, 0

    def sleep(self, seconds: float) -> None:
        self._waiting += 1
        with self._lock:
            time.sleep(seconds * (1 + 0.1 * (self._waiting - 1)))
            self._waiting -= 1

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(time, name)  # type: ignore[no-any-return]


if os.environ.get(PLANT):
    plant(PLANTS[os.environ[PLANT]])
