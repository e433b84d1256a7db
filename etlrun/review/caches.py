"""Effect of a change of plan on the caches: which stay valid, and which will be rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from etlrun.graph.identity import planned
from etlrun.planning.plan import Plan, at_cache
from etlrun.sources.open import on_disk
from etlrun.stages.cache import Cache, cache_bytes
from etlrun.stages.trainer import Trainer
from etlrun.system.machine import megabytes

VALID, REBUILT, FIRST, UNUSED, EACH_RUN = (
    "stays valid", "will be rebuilt", "will be built by the first run", "is no longer read", "is filled by each run"
)  # fmt: skip
_DEVICE, _AUTO = Trainer.key("device"), "auto"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """State of a cache after a change of plan.

    Attributes:
        pipeline: `train` or `validation`.
        target: `cache.disk` or `cache.memory`, and the point at which it caches.
        state: One of `VALID`, `REBUILT`, `FIRST`, `UNUSED`, `EACH_RUN`.
        because: For `REBUILT`, the values that differ before the cache.
        provided: For `VALID`, conditions that the configs do not determine.
        size_bytes: Size of the new cache in bytes; None if it is unknown.
        size: The size as text; if it is unknown, what is known of it.
    """

    pipeline: str
    target: str
    state: str
    because: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    size_bytes: int | None = None
    size: str = ""

    def __str__(self) -> str:
        because = (
            f", since {', '.join(self.because)} {'differ' if self.because[1:] else 'differs'}" if self.because else ""
        )
        provided = f" {' and '.join(self.provided)}" if self.provided else ""
        return f"{self.target} {self.state}{because}{provided}{f' ({self.size})' if self.size else ''}"


def caches(old: Plan, new: Plan) -> tuple[Kept, ...]:
    """Return the state of the caches of both pipelines, compared by all that they rest on.

    A memory cache with the same content is left out.
    """
    return tuple(kept for name in new.pipelines if (kept := _kept(old, new, name)) is not None)


def _kept(old: Plan, new: Plan, name: str) -> Kept | None:
    was, now = (at_cache(plan.pipelines[name])[1] for plan in (old, new))
    if now is None:
        return Kept(pipeline=name, target=_target(was), state=UNUSED) if was and was.outlives_run else None
    before, after = planned(old, name), planned(new, name)
    devices = before.get(_DEVICE), after.get(_DEVICE)
    unsure = {_DEVICE} if _AUTO in devices else set()
    differs = tuple(key for key in sorted((before | after).keys() - unsure) if before.get(key) != after.get(key))
    because: tuple[str, ...] = ()
    if not now.outlives_run:
        if was is not None and not was.outlives_run and not differs:
            return None  # each run fills it with the same content as before
        state = EACH_RUN
    elif was is not None and was.outlives_run and was.dir == now.dir:
        state = REBUILT if differs else VALID
        because = tuple(key for key in differs if key != now.key("at")) or differs
    else:
        state = FIRST
    provided = tuple(_conditions(old, new, devices)) if state == VALID else ()
    size_bytes, size = size_of(new, name)
    kept = Kept(pipeline=name, target=_target(now), state=state, because=because, provided=provided)
    return replace(kept, size_bytes=size_bytes, size="" if state == VALID else size)


def _conditions(old: Plan, new: Plan, devices: tuple[str | None, str | None]) -> Iterator[str]:
    """Yield the conditions for a cache to stay valid that the values of the plans do not determine."""
    if old.spec.dataset.home != new.spec.dataset.home:
        yield "if dataset.data_dir holds the same files"
    others = [device for device in devices if device not in (None, _AUTO)]
    if len(others) == 1:
        yield f"if {_DEVICE}={_AUTO} selects {'a GPU' if others[0] == 'gpu' else 'the CPU'}"


def _target(cache: Cache) -> str:
    return f"{cache.path} at {cache.at}"


def cached_bytes(plan: Plan, name: str, count: int) -> int | None:
    """Return the bytes of so many examples in the cache of a pipeline; None if they depend on the images."""
    before, _, _ = at_cache(plan.pipelines[name])
    flow, dataset = before[-1].gives, plan.spec.dataset
    is_encoded = plan.spec.cache.quality is None and any(of.format == "image" for of in flow.features.values())
    known = on_disk(dataset).examples(dataset.split_of(name) or "") if is_encoded else None
    return cache_bytes(flow, count, None if known is None else int(known.encoded_bytes))


def size_of(plan: Plan, name: str) -> tuple[int | None, str]:
    """Return the size of the cache of a pipeline: in bytes (None if unknown) and as text."""
    dataset = plan.spec.dataset
    known = on_disk(dataset).examples(dataset.split_of(name) or "")
    size_bytes = cached_bytes(plan, name, 1 if known is None else known.count)
    if size_bytes is None:
        return None, "its size depends on the images"
    if known is None:
        return None, f"{size_bytes:,} bytes per example; the dataset is not prepared here"
    return size_bytes, f"{megabytes(size_bytes)} of {known.count:,} examples"
