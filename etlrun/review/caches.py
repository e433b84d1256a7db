"""Effect of a change of plan on the caches: which stay valid, which will be rebuilt, and what filling them took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import yaml

from etlrun.graph.identity import planned
from etlrun.planning.learned import recalled
from etlrun.planning.plan import Plan, as_recorded, at_cache
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.config import PLAN, read_config
from etlrun.sources.base import on_disk
from etlrun.stages import STAGES
from etlrun.stages.cache import cache_bytes
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError, counted
from etlrun.system.machine import megabytes, rounded
from etlrun.system.values import frozen

VALID, REBUILT, FIRST, UNUSED, EACH_RUN, SHARED = (
    "stays valid", "will be rebuilt", "will be built by the first run", "is no longer read", "is filled by each run",
    "is shared",
)  # fmt: skip
_DEVICE, _AUTO = Trainer.key("device"), "auto"
_MOST_RUNS = 10
"""Runs that are looked at, the newest ones that have filled a cache."""


@frozen
class CacheChange:
    """State of a cache after a change of plan.

    Attributes:
        pipeline: `train` or `validation`.
        target: `cache.disk` or `cache.memory`, and the point at which it caches.
        state: One of `VALID`, `REBUILT`, `FIRST`, `UNUSED`, `EACH_RUN`, `SHARED`.
        because: For `REBUILT`, the values that differ before the cache.
        provided: For `VALID`, conditions that the configs do not determine; for `SHARED`, with which experiment.
        size_bytes: Size of the new cache in bytes; None if it is unknown.
        size: The size as text; if it is unknown, what is known of it.
        filled: For a cache that is filled, which run has filled one of the same kind, and in what time; else empty.
    """

    pipeline: str
    target: str
    state: str
    because: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    size_bytes: int | None = None
    size: str = ""
    filled: str = ""

    @property
    def is_filled(self) -> bool:
        """Whether the change fills a cache on disk."""
        return self.state in {REBUILT, FIRST}

    def __str__(self) -> str:
        because = f", since {', '.join(self.because)} differ{'s' * (len(self.because) == 1)}" * bool(self.because)
        provided = f" {' and '.join(self.provided)}" * bool(self.provided)
        size, filled = f" ({self.size})" * bool(self.size), f"; {self.filled}" * bool(self.filled)
        return f"{self.target} {self.state}{because}{provided}{size}{filled}"


def caches(old: Plan | None, new: Plan) -> tuple[CacheChange, ...]:
    """Return the state of the caches of both pipelines, compared by all that they rest on; without `old`, as new ones.

    A memory cache with the same content is left out.
    """
    return tuple(kept for name in new.pipelines if (kept := _kept(old, new, name)) is not None)


class Fills:
    """What else fills the caches of an experiment: other experiments, and the newest runs below a folder.

    Attributes:
        held: Caches on disk of other experiments, by all that they hold, and where, each with the name of one.
    """

    def __init__(self, plans: Mapping[str, Plan], folder: Path) -> None:
        self.held = {_held(plan, name): of for of, plan in plans.items() for name in plan.pipelines}
        self._folder = folder

    def told(self, plan: Plan, kept: CacheChange) -> CacheChange:
        """Return the state of a cache of a plan with what else fills it; as it is if it is not filled.

        A run has filled one of the same kind if it has the same stages and the same dataset before it, of any split and
        seed.
        """
        if not kept.is_filled:
            return kept
        if name := self.held.get(_held(plan, kept.pipeline)):
            provided = (f"with {name}, and is not filled again",)
            return replace(kept, state=SHARED, because=(), provided=provided, size="")
        kind = _kind(plan, kept.pipeline)
        return replace(kept, filled=next((text for known, text in self._known if known == kind), ""))

    @cached_property
    def _known(self) -> list[tuple[str, str]]:
        from etlrun.record.summary import COMPLETED, SUMMARY, read_summary  # whose models take long to define

        runs, found = [], []
        for path in self._folder.rglob(SUMMARY):
            summary = read_summary(path.parent)
            if summary is not None and summary.status == COMPLETED and summary.cache is not None:
                filled = {name: of.filled_s for name, of in summary.cache.pipelines.items() if of.filled_s}
                runs += [(summary.created_s or 0.0, path.parent, summary.dataset.examples, filled)] * bool(filled)
        for _, run, examples, filled in sorted(runs, key=itemgetter(0), reverse=True)[:_MOST_RUNS]:
            try:
                there = as_recorded(plan(recalled(parse(read_config(run) or {}, STAGES), run)), run / PLAN)
            except (EtlrunError, OSError, ValueError, yaml.YAMLError):  # of another version, or without its file
                continue
            for name, seconds in filled.items():
                of = f"one of {examples.get(name, 0):,} examples"
                found.append((_kind(there, name), f"the pass that filled {of} took {seconds:.1f} s in {run}"))
        return found


def _held(plan: Plan, name: str) -> str:
    cache = at_cache(plan.pipelines[name])[1]
    return f"{cache.dir} {_content(plan, name)}" if cache is not None and cache.outlives_run else ""


def _kind(plan: Plan, name: str) -> str:
    return _content(plan, name, Trainer.key("seed"), *map(plan.spec.dataset.key_of, plan.pipelines))


def _content(plan: Plan, name: str, *left_out: str) -> str:
    """Return what the cache of a pipeline holds, as text, beside some keys; empty without one."""
    cache = at_cache(plan.pipelines[name])[1]
    values = {key: value for key, value in planned(plan, name).items() if key not in left_out}
    return "" if cache is None else repr((cache.path, cache.codec, values))


def filled_bytes(kept: Sequence[CacheChange]) -> int | None:
    """Return the bytes of the caches on disk that are filled; None if those of one are unknown."""
    sizes = [of.size_bytes for of in kept if of.is_filled]
    return None if None in sizes else sum(filter(None, sizes))


def filled_line(kept: Sequence[CacheChange]) -> str:
    """Return the sentence on the caches on disk that are filled: their size, and what becomes of the old ones."""
    size, told = filled_bytes(kept), f"{counted(sum(of.is_filled for of in kept), 'cache')} on disk"
    told = f"{told} of unknown size" if size is None else f"{rounded(size)} in {told}"
    if not any(of.state == REBUILT for of in kept):
        return f"fills {told}"
    return f"refills {told}; what was there stays until etlrun cache gc removes it"


def _kept(old: Plan | None, new: Plan, name: str) -> CacheChange | None:
    was, now = (None if plan is None else at_cache(plan.pipelines[name])[1] for plan in (old, new))
    if now is None:
        return (
            CacheChange(pipeline=name, target=f"{was.path} at {was.at}", state=UNUSED)
            if was and was.outlives_run
            else None
        )
    before, after = {} if old is None else planned(old, name), planned(new, name)
    devices = before.get(_DEVICE), after.get(_DEVICE)
    unsure = {_DEVICE} if _AUTO in devices else set()
    differs = tuple(key for key in sorted((before | after).keys() - unsure) if before.get(key) != after.get(key))
    because = tuple[str, ...]()
    if not now.outlives_run:
        if was is not None and not was.outlives_run and not differs:
            return None  # each run fills it with the same content as before
        state = EACH_RUN
    elif was is not None and was.outlives_run and was.dir == now.dir:
        state = REBUILT if differs else VALID
        because = tuple(key for key in differs if key != now.key("at")) or differs
    else:
        state = FIRST
    provided: list[str] = []
    homes = {getattr(of.spec.dataset, "data_dir", None) for of in (old, new) if of is not None}
    if state == VALID and len(homes) > 1:
        provided.append("if dataset.data_dir holds the same files")
    others = [device for device in devices if device not in (None, _AUTO)]
    if state == VALID and len(others) == 1:
        provided.append(f"if {_DEVICE}={_AUTO} selects {'a GPU' if others[0] == 'gpu' else 'the CPU'}")
    size_bytes, size = size_of(new, name)
    return CacheChange(
        pipeline=name,
        target=f"{now.path} at {now.at}",
        state=state,
        because=because,
        provided=tuple(provided),
        size_bytes=size_bytes,
        size="" if state == VALID else size,
    )


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
