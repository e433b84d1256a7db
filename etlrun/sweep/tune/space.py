"""Space of a search: the values that may change, and the configs that come of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from typing import Any

from etlrun.config.grid import Job
from etlrun.config.request import put
from etlrun.planning.plan import Plan, name_of_point, resizes, validates
from etlrun.planning.planner import plan
from etlrun.planning.spec import ABSENT, bare, parse, value_at
from etlrun.stages import STAGES
from etlrun.stages.cache import CACHES, DiskCache, MemoryCache
from etlrun.stages.extract import Interleave
from etlrun.stages.load import Load
from etlrun.stages.sweep import Tune
from etlrun.system.errors import ConfigError

Changes = Mapping[str, Any]
"""Values that differ from those of the baseline, by dotted key."""

CACHE, POINT, CODEC = "cache.name", MemoryCache.key("at"), DiskCache.key("codec")
EXTRACT_CALLS, CYCLE = Interleave.key("num_parallel_calls"), Interleave.key("cycle_length")
TRANSFORM_CALLS, DECODER = "transform.num_parallel_calls", "transform.decode.library"
FAST = "transform.decode.fast"
SHUFFLE_AT, BATCH_CALLS, PREFETCH = (Load.key(name) for name in ("shuffle_at", "num_parallel_calls", "prefetch"))
_CYCLES = (1, 4, 16, "all")


@dataclass(kw_only=True)
class Candidate:
    """A config of the search.

    Attributes:
        number: Number of the config; 0 is the baseline.
        changes: What it changes.
        config: All of its values.
        plan: Its plan.
        predicted_s: Seconds of all epochs as predicted from the costs, and the bounds of that; None for the baseline.
        error: Why it failed in the race; empty if it did not.
        times_s: Seconds of all epochs by each of its windows.
    """

    number: int
    changes: Changes
    config: dict[str, Any]
    plan: Plan
    predicted_s: tuple[float, float, float] | None = None
    error: str = ""
    times_s: list[float] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The changes as overrides."""
        return words(self.changes)


def words(changes: Changes) -> str:
    """Return changes as overrides; `as it is` for none."""
    return " ".join(f"{key}={bare(value)}" for key, value in changes.items()) or "as it is"


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None if the config does not have it."""
    found = value_at(config, key.split("."))
    return None if found is ABSENT else found


def changed(config: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the config with these changes."""
    made = copy.deepcopy(dict(config))
    for key, value in changes.items():
        put(made, key, value)
    return made


class SearchSpace:
    """All configs that a search may try.

    Attributes:
        baseline: The config that the search starts from.
        options: Values of each key that is varied by itself.
        caches: Values of the keys of a cache that are varied together; the first is the baseline's.
    """

    def __init__(self, job: Job, tune: Tune, cores: int) -> None:
        self.baseline = Candidate(number=0, changes={}, config=job.config, plan=job.plan)
        self._others = dict[str, Candidate]()
        self.options = {
            key: [value for value in dict.fromkeys(values) if value != value_of(job.config, key)]
            for key, values in _values(job, tune, cores)
        }
        self.caches = [{}, *_caches(job, tune)]

    def __iter__(self) -> Iterator[Changes]:
        """Yield what each config changes; some do not fit together."""
        options = ([{}, *({key: value} for value in values)] for key, values in self.options.items())
        for parts in product(self.caches, *options):
            yield {key: value for part in parts for key, value in part.items()}

    def __len__(self) -> int:
        return len(self.caches) * math.prod(1 + len(values) for values in self.options.values())

    def candidate(self, changes: Changes) -> Candidate | str:
        """Return the candidate with these changes, always the same; or why its values do not fit together."""
        base = self.baseline
        changes = {key: value for key, value in changes.items() if value_of(base.config, key) != value}
        if not changes:
            return base
        known = words(dict(sorted(changes.items())))
        if known not in self._others:
            config, number = changed(base.config, changes), 1 + len(self._others)
            try:
                made = plan(parse(config, STAGES))
            except ConfigError as error:
                return str(replace(error.faults[0], remedy=""))
            self._others[known] = Candidate(number=number, changes=changes, config=config, plan=made)
        return self._others[known]


def autotuned(space: SearchSpace) -> Changes:
    """Return the changes that leave to AUTOTUNE whatever it sets."""
    keys = {planned.stage.tuned.key for planned in space.baseline.plan.train if planned.stage.tuned}
    return dict.fromkeys(sorted({*keys, PREFETCH, TRANSFORM_CALLS}), "autotune")


def _values(job: Job, tune: Tune, cores: int) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield keys and the values worth trying."""
    config, spec = job.config, job.plan.spec
    if spec.transform.steps:
        yield TRANSFORM_CALLS, [1, cores, 2 * cores, 4 * cores, "autotune"]
    if "num_parallel_calls" in config["extract"]:
        yield EXTRACT_CALLS, [1, cores, 4 * cores, "autotune"]
    yield PREFETCH, [2, "autotune"]
    yield BATCH_CALLS, [None, "autotune"]
    if spec.load.shuffles and not spec.load.is_by_number:
        yield SHUFFLE_AT, ["auto"]
    if "order" in tune.allow and "cycle_length" in config["extract"]:
        yield CYCLE, _CYCLES
    if "data" in tune.allow and resizes(spec, "turbo"):
        yield DECODER, ["turbo"]
        yield FAST, [True]


def _caches(job: Job, tune: Tune) -> Iterator[Changes]:
    """Yield the caches that differ from the baseline's."""
    spec = job.plan.spec
    cache, steps = job.config["cache"], spec.transform.steps
    steady = [*takewhile(lambda step: not step.random, steps)]
    shared = {step.path for step in (spec.eval_transform.steps if validates(spec) else steps)}
    while len(steady) < len(steps) and steady and steady[-1].path not in shared:
        steady.pop()  # the validation has no such point
    last = "transformed" if len(steady) == len(steps) else name_of_point(steady)
    for target in CACHES:
        for point in dict.fromkeys((last, "source")) if target != "none" else (cache["at"],):
            made = {CACHE: target, POINT: point}
            if any(cache[key.partition(".")[2]] != value for key, value in made.items()):
                yield made
    if "data" in tune.allow:
        yield {CACHE: "disk", POINT: last, CODEC: "jpeg95"}
