"""Measured costs of plans, by all that they depend on."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etlrun.graph.identity import planned
from etlrun.planning.plan import Plan, at_cache, data_values
from etlrun.review.difference import values_that_count
from etlrun.sources.open import on_disk
from etlrun.stages.base import Stage
from etlrun.stages.cache import Cache
from etlrun.stages.columns import Columns
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault

MOST_RUNS = 10
"""Runs of a plan on a machine that are kept, the newest ones."""
_GROUPS = ("extract", "cache", "load", "model", "trainer", "profile", "logger")
_OF_A_RUN = {
    *(f"trainer.{of}" for of in ("seed", "epochs", "seconds", "learning_rate", "resume")),
    *(f"trainer.{of}" for of in ("label_smoothing", "focal_gamma", "on_nan")),
    *(f"dataset.{of}" for of in ("data_dir", "storage", "keep", "copies", "download")),
    *("cache.dir", "cache.when_busy", "measure.au_min", "measure.silence"),
}
"""Values that may differ between runs whose costs are alike."""
_BLOCKS_OF_A_RUN = ("trainer.early_stopping.", "trainer.schedule.")


@dataclass(frozen=True, kw_only=True)
class Read:
    """What the runs of a plan have read in one pipeline.

    Attributes:
        split: Key of the examples.
        examples: Number of examples.
        cache: Key of the stages before the cache; empty without one.
        held_bytes: Size of the cache; None if it is unknown.
        fill_s: Seconds that filling the cache took, of each run that has filled it.
    """

    split: str
    examples: int
    cache: str = ""
    held_bytes: int | None = None
    fill_s: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Measured costs of a plan on one machine.

    Attributes:
        experiment: Name of an experiment with the plan, for readers.
        plan: Key of the plan.
        machine: GPUs, CPU and number of cores.
        examples_per_s: Training throughput of each run.
        au: Accelerator utilization (AU) of each run, from 0 to 1.
        memory_bytes: Peak resident memory of each run.
        reads: What was read, by pipeline.
    """

    experiment: str
    plan: str
    machine: str
    examples_per_s: tuple[float, ...] = ()
    au: tuple[float, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    reads: Mapping[str, Read] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """Number of runs that count."""
        return max(map(len, (self.examples_per_s, self.au, self.memory_bytes)))


def _key(values: object) -> str:
    """Return the first 16 hex digits of a SHA-256 over values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


def plan_key(plan: Plan, given: Collection[str] = ()) -> str:
    """Return the key of all that the speed of a plan depends on: not its seed, epochs, learning rate and folders.

    The values of the keys that are `given` on the command line don't count.
    """
    spec = plan.spec
    values = {
        path: value
        for path, (value, _) in values_that_count(spec).items()
        if path not in _OF_A_RUN and path not in given and not path.startswith(_BLOCKS_OF_A_RUN)
    }
    names = [[stage.path, stage.name if stage.names else ""] for stage in (getattr(spec, of) for of in _GROUPS)]
    steps = [[_step(step) for step in of.steps] for of in (spec.transform, spec.eval_transform)]
    return _key([values, names, steps, spec.dataset.eval_split is None or steps[1], dict(plan.code)])


def _step(step: Stage) -> Any:
    """Return a step as its key has it; of columns without what they have learned."""
    if not isinstance(step, Columns):
        return step.path
    return [[of.name, of.of, [type(inner).__name__ for inner in of.steps]] for of in step.outputs]


def split_key(plan: Plan, name: str, given: Collection[str] = ()) -> str:
    """Return the key of the examples that a pipeline reads; see `plan_key`."""
    dataset = plan.spec.dataset
    others = {*given, *(dataset.key_of(of) for of in plan.pipelines)}
    values = {key: value for key, value in data_values(dataset, "").items() if key not in others}
    return _key([type(dataset).__name__, values, dataset.split_of(name)])


def cache_key(plan: Plan, name: str, given: Collection[str] = ()) -> str:
    """Return the key of what filling the cache of a pipeline takes for an example, of any split; empty without one."""
    cache = at_cache(plan.pipelines[name])[1]
    if cache is None:
        return ""
    others = {Trainer.key("seed"), *given, *(plan.spec.dataset.key_of(of) for of in plan.pipelines)}
    return _key([_of_cache(cache), {key: value for key, value in planned(plan, name).items() if key not in others}])


def held_key(plan: Plan, name: str) -> str:
    """Return the key of what the cache of a pipeline holds, and where: that of all experiments that share it."""
    cache = at_cache(plan.pipelines[name])[1]
    return "" if cache is None else _key([_of_cache(cache), cache.dir, planned(plan, name)])


def _of_cache(cache: Cache) -> list[str]:
    return [cache.path, cache.codec]


class Costs:
    """Measured costs of plans.

    Attributes:
        entries: All costs, by plan and machine.
        notes: Notes on where they are from, a sentence each.
        faults: Faults of the file of the new side, whose costs are left out.
        given: Keys that the plans leave to the command line, whose values don't count.
    """

    def __init__(self, *sources: Iterable[Entry], notes: Sequence[str] = (), faults: Sequence[Fault] = ()) -> None:
        """Take the costs of all `sources`; of a plan on a machine those of the last one that has them."""
        self.notes, self.faults, self.given = tuple(notes), tuple(faults), frozenset[str]()
        self.entries = {(entry.plan, entry.machine): entry for entries in sources for entry in entries}

    def giving(self, given: Collection[str]) -> Costs:
        """Return the same costs for plans that leave these keys to the command line."""
        costs = Costs(self.entries.values(), notes=self.notes, faults=self.faults)
        costs.given = frozenset(given)
        return costs

    def of(self, plan: Plan | None) -> dict[str, Entry]:
        """Return the costs of a plan, by machine."""
        key = "" if plan is None else plan_key(plan, self.given)
        return {entry.machine: entry for entry in self.entries.values() if entry.plan == key}

    def _reads(self) -> Iterator[tuple[str, Read]]:
        for entry in self.entries.values():
            for read in entry.reads.values():
                yield entry.machine, read

    def fill_s(self, plan: Plan, name: str) -> dict[str, list[float]]:
        """Return the seconds for an example that filling the cache of a pipeline took, of each run, by machine."""
        key, found = cache_key(plan, name, self.given), dict[str, list[float]]()
        for machine, read in self._reads():
            if key and read.cache == key and read.examples and read.fill_s:
                found.setdefault(machine, []).extend(seconds / read.examples for seconds in read.fill_s)
        return found

    def held_bytes(self, plan: Plan, name: str) -> float | None:
        """Return the measured bytes for an example of the cache of a pipeline; None if they were not measured."""
        key = cache_key(plan, name, self.given)
        reads = [read for _, read in self._reads() if read.cache == key and read.examples]
        found = [read.held_bytes / read.examples for read in reads if read.held_bytes is not None]
        return statistics.median(found) if found else None

    def examples(self, plan: Plan, name: str) -> int | None:
        """Return the number of examples that a pipeline reads: as they are here, or as a run has read them."""
        known = None if self.given else on_disk(plan.spec.dataset).examples(plan.spec.dataset.split_of(name) or "")
        if known is not None:
            return known.count
        key = split_key(plan, name, self.given)
        return next((read.examples for _, read in self._reads() if read.split == key), None)
