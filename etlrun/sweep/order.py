"""Runs of a sweep in their order: first jobs that fill the caches on disk, then the runs that read them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from etlrun.planning.plan import Plan, at_cache, reads_features, values_of
from etlrun.stages.sweep import FEWEST_REPEATS, Sweep


@dataclass(frozen=True, order=True)
class RunKey:
    """One run of a config, or a job that fills the caches on disk of one.

    Attributes:
        config: Number of the config.
        repeat: Number of the repeat, from 0. The baseline of a repeated sweep runs twice per round.
        fills: Key of the caches that a job only fills, 8 hex digits; empty for a run.
    """

    config: int
    repeat: int
    fills: str = ""

    @property
    def name(self) -> str:
        """Name of the run's folder. That of a fill is the same whichever config fills the caches."""
        if self.fills:
            return f"fill-{self.fills}"
        return f"{self.config}.{self.repeat}" if self.repeat else str(self.config)


@dataclass(frozen=True)
class Shared:
    """Caches on disk of a config, as far as they are known before a run.

    Attributes:
        values: Digest of the values that determine their content, 16 hex digits.
        seed: Seed of the config if it determines their content, too; else None.
    """

    values: str
    seed: int | None

    def key(self, seed: Callable[[int], int]) -> str:
        """Return `RunKey.fills` of the job that fills them for a run, whose seed is `seed` of that of its config."""
        words = [self.values] if self.seed is None else [self.values, str(seed(self.seed))]
        return _digest(words)[:8]

    @classmethod
    def of(cls, plan: Plan) -> Self | None:
        """Return the caches of a plan; None if they don't outlive a run."""
        spec = plan.spec
        if not spec.cache.outlives_run:
            return None
        kept = {name: at_cache(stages)[0] for name, stages in plan.pipelines.items()}
        of_features = reads_features(plan)
        known = {
            "dataset": asdict(spec.dataset),
            "stages": {name: values_of(before) for name, before in kept.items()},
            "cache": [spec.cache.dir, spec.cache.at, spec.cache.codec],
            "model": [vars(spec.model), spec.fit and spec.fit.mixed_precision] if of_features else None,
        }
        is_random = any(planned.is_random for before in kept.values() for planned in before)
        has_seed = is_random or (of_features and spec.model.weights is None)
        return cls(_digest(known), spec.trainer.seed if has_seed else None)


def _digest(known: Any) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:16]


def rounds(sweep: Sweep, configs: int) -> list[RunKey]:
    """Return the runs of so many configs: in the order of the grid, or with repeats in rounds, each shuffled."""
    if sweep.repeats == 1:
        return [RunKey(number, 0) for number in range(configs)]
    shuffle, runs, pairs = random.Random(sweep.seed), list[RunKey](), is_paired(sweep)  # noqa: S311 - no secret
    for turn in range(sweep.repeats):
        turns = [RunKey(number, turn) for number in range(int(pairs), configs)]
        turns += [RunKey(0, 2 * turn + twin) for twin in (0, 1)] if pairs else []
        shuffle.shuffle(turns)
        runs += turns
    return runs


def is_paired(sweep: Sweep) -> bool:
    """Return whether the baseline runs twice in each round."""
    return sweep.repeats >= FEWEST_REPEATS


def fills(keys: Mapping[RunKey, str], identities: Sequence[str]) -> list[RunKey]:
    """Return a job for each of the keys of caches that runs read, of configs with these identities.

    Which config fills a cache depends on the values of the configs that share it, and not on their order.
    """
    first: dict[str, RunKey] = {}
    for run in sorted(keys, key=lambda run: (identities[run.config], run.repeat)):
        first.setdefault(keys[run], RunKey(run.config, run.repeat, keys[run]))
    return [*first.values()]
