"""What becomes of the caches when one plan takes the place of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etlrun.cache.limits import kept_bytes, megabytes
from etlrun.plan.plan import Plan, at_cache, changes_data, data_values
from etlrun.plan.spec import RunSpec
from etlrun.sources.on_disk import examples
from etlrun.stages.cache import DiskCache, MemoryCache

VALID, ANEW, FIRST, UNUSED, EACH_RUN = (
    "stays valid", "is made anew", "is made by the first run", "is not read any more", "is filled by each run"
)  # fmt: skip
_PRECISION, _DEVICE, _AUTO = "trainer.mixed_precision", "trainer.device", "auto"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A cache, before or after.

    Attributes:
        pipeline: `train` or `validation`.
        target: `cache.disk` or `cache.memory`, with its point.
        state: One of `VALID`, `ANEW`, `FIRST`, `UNUSED`, `EACH_RUN`.
        because: For `ANEW`, what differs before the cache.
        provided: For `VALID`, on what conditions, which configs don't tell.
        size_bytes: Of the new one; None where it can't be known.
        size: The same in words, with what is known where it can't.
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
    """Of both pipelines. What they hold is compared by what decides it: the data set and all stages before.

    A cache in memory that holds what it held is left out.
    """
    found = []
    for name in new.pipelines.keys() | old.pipelines.keys():
        (was, before), (now, after) = (_content(plan, name) for plan in (old, new))
        if now is None:
            found += [Kept(pipeline=name, target=_target(was), state=UNUSED)] if isinstance(was, DiskCache) else []
            continue
        size_bytes, size = size_of(new, name)
        devices = before.get(_DEVICE), after.get(_DEVICE)
        unsure = {_DEVICE} if _AUTO in devices else set()
        differs = tuple(key for key in sorted((before | after).keys() - unsure) if before.get(key) != after.get(key))
        because: tuple[str, ...] = ()
        if isinstance(now, MemoryCache):
            if isinstance(was, MemoryCache) and not differs:
                continue  # each run fills it, with the same as before
            state = EACH_RUN
        elif isinstance(was, DiskCache) and was.dir == now.dir:
            state = ANEW if differs else VALID
            because = tuple(key for key in differs if key != "cache.at") or differs
        else:
            state = FIRST
        size = "" if state == VALID else size
        provided = tuple(_conditions(old, new, devices)) if state == VALID else ()
        found.append(
            Kept(
                pipeline=name,
                target=_target(now),
                state=state,
                because=because,
                provided=provided,
                size_bytes=size_bytes,
                size=size,
            )
        )
    return tuple(sorted(found, key=lambda kept: kept.pipeline))


def _conditions(old: Plan, new: Plan, devices: tuple[str | None, str | None]) -> Iterator[str]:
    """On what it depends that a cache stays valid between two plans, beside what their values say."""
    if old.spec.dataset.data_dir != new.spec.dataset.data_dir:
        yield "as long as dataset.data_dir holds the same files"
    others = [device for device in devices if device not in (None, _AUTO)]
    if len(others) == 1:
        yield f"where {_DEVICE}={_AUTO} means {'a GPU' if others[0] == 'gpu' else 'the CPU'}"


def _target(cache: Any) -> str:
    return f"{cache.path} at {cache.at}"


def _content(plan: Plan, name: str) -> tuple[DiskCache | MemoryCache | None, dict[str, Any]]:
    """The cache of a pipeline, and what decides what is in it; see `etlrun.graph.identity`."""
    before, cache, _ = at_cache(plan.pipelines[name])
    if not isinstance(cache, DiskCache | MemoryCache):
        return None, {}
    dataset, split = plan.spec.dataset, "split" if name == "train" else "eval_split"
    keys = ("name", "version", "image_key", "label_key", "features", "target", "on_corrupt", split)
    decides = {f"dataset.{key}": getattr(dataset, key) for key in keys}
    flat = [inner.stage for outer in before for inner in (outer, *outer.steps)]
    decides["the steps before it"] = [stage.path for stage in flat if changes_data(stage)]
    for stage in flat:
        decides |= data_values(stage, "")
    decides["cache.at"] = str(before[-1].gives)  # to decode is no step that counts, yet what it gives is kept
    if any(stage.path == "model.backbone" for stage in flat):
        decides |= data_values(plan.spec.model, "") | _features(plan.spec)
    return cache, decides


def _features(spec: RunSpec) -> dict[str, Any]:
    """What of the trainer decides what a frozen base makes of a picture."""
    drawn = {"trainer.seed": spec.trainer.seed} if getattr(spec.model, "weights", None) is None else {}
    decides = {key: getattr(spec.trainer, key.removeprefix("trainer."), None) for key in (_PRECISION, _DEVICE)}
    return {**drawn, **decides}


def size_of(plan: Plan, name: str) -> tuple[int | None, str]:
    """Of the cache of a pipeline: bytes where they can be known, and words."""
    before, _, _ = at_cache(plan.pipelines[name])
    flow, dataset = before[-1].gives, plan.spec.dataset
    known = examples(dataset, (dataset.split if name == "train" else dataset.eval_split) or "")
    each = flow.example_bytes
    is_encoded = any(feature.format == "image" for feature in flow.features.values())
    if each is None and known is not None and is_encoded:
        each = int(known.encoded_bytes) + flow.fixed_bytes
    if each is None:
        return None, "its size depends on the images"
    if known is None:
        return None, f"{kept_bytes(1, each):,} bytes an example; the data set is not here to count them"
    size_bytes = kept_bytes(known.count, each)
    return size_bytes, f"{megabytes(size_bytes)} of {known.count:,} examples"
