"""Jobs of a sweep: combinations of overrides, validated and planned, and the settings with which Hydra runs them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf

from etlrun.config.overrides import Axis, Chosen, Value
from etlrun.planning.plan import Plan
from etlrun.planning.planner import planned
from etlrun.planning.unused import Unused, leaves, unused, without
from etlrun.stages import Stages
from etlrun.stages.sweep import Sweep
from etlrun.system.errors import ConfigError, Fault


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job of a multirun.

    Attributes:
        overrides: Overrides with one value each, without those of the sweep itself and those unused in the job.
        config: Composed config as plain values.
        plan: Plan of the config.
    """

    overrides: list[str]
    config: dict[str, Any]
    plan: Plan

    @property
    def used(self) -> dict[str, Any]:
        """Config without unused values."""
        idle = self.plan.spec.unused
        return without(copy.deepcopy(self.config), idle) if idle else self.config


@dataclass(frozen=True, kw_only=True)
class Multirun:
    """Settings of a multirun in Hydra's own config.

    Attributes:
        dir: Folder of the sweep.
        subdir: Folder of a job in it, unresolved.
        sweeper: Class of the sweeper, which selects the jobs.
        launcher: Class of the launcher, which runs them.
        settings: Settings of the launcher, if that is one of submitit's.
    """

    dir: str
    subdir: str
    sweeper: str
    launcher: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, own: DictConfig) -> Self:
        """Create from Hydra's own config."""
        raw: Any = OmegaConf.to_container(own.sweep, resolve=False)
        sweeper, launcher = own.sweeper["_target_"], own.launcher["_target_"]
        found = cls(dir=str(own.sweep.dir), subdir=str(raw["subdir"]), sweeper=sweeper, launcher=launcher)
        settings: Any = OmegaConf.to_container(own.launcher, resolve=True) if found.is_submitit else {}
        return replace(found, settings=settings)

    @property
    def is_grid(self) -> bool:
        """Whether all jobs are known in advance."""
        return self.sweeper == "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"

    @property
    def is_basic(self) -> bool:
        """Whether the jobs run without a launcher plugin."""
        return self.launcher == "hydra._internal.core_plugins.basic_launcher.BasicLauncher"

    @property
    def is_submitit(self) -> bool:
        """Whether submitit runs the jobs, each as a job of its own."""
        return self.launcher.startswith("hydra_plugins.hydra_submitit_launcher.")

    @property
    def is_slurm(self) -> bool:
        """Whether the jobs run on a cluster with Slurm."""
        return self.is_submitit and self.launcher.endswith(".SlurmLauncher")

    def at_a_time(self, sweep: Sweep) -> int:
        """Return the number of jobs at a time, for which Slurm's launcher has a setting of its own."""
        return int(self.settings.get("array_parallelism", sweep.max_jobs_in_flight))


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Combination that is skipped, since its values are incompatible.

    Attributes:
        overrides: Overrides as of a job.
        rules: Rules that it breaks, each with what was found.
    """

    overrides: tuple[str, ...]
    rules: tuple[str, ...]

    @classmethod
    def of(cls, overrides: Sequence[str], rules: Sequence[str]) -> Self:
        """Create from lists, as in JSON."""
        return cls(overrides=tuple(overrides), rules=tuple(rules))


def identity_of(config: Mapping[str, Any]) -> str:
    """Return 16 hex digits of a SHA-256 over all values of a config."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the values that differ in the config `now`, by dotted key."""
    for key in [*before, *(key for key in now if key not in before)]:
        was, is_now = before.get(key), now.get(key)
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            yield from differences(was, is_now, f"{path}{key}.")
        elif was != is_now:
            yield f"{path}{key} {json.dumps(was)} -> {json.dumps(is_now)}"


class Judge:
    """Creates jobs from combinations, and collects their faults.

    Attributes:
        jobs: Jobs of the valid combinations.
        unfit: Combinations whose only faults are broken rules between values.
        idle: Values of overrides that are unused in some combinations, by key; an entry for each of these.
    """

    def __init__(self, stages: Stages, *, skips_unfit: bool = False, is_search: bool = False) -> None:
        self.jobs: list[Job] = []
        self.unfit: list[Unfit] = []
        self.idle: dict[str, list[Unused]] = {}
        self._stages, self._skips_unfit, self._is_search = stages, skips_unfit, is_search
        self._faults: dict[str, Fault] = {}
        self._broken: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        self._combinations = 0

    def add(self, chosen: Chosen, config: dict[str, Any]) -> None:
        """Validate a combination and its composed config."""
        self._combinations += 1
        try:
            job_plan = planned(config, self._stages)
        except ConfigError as error:
            self._refuse(self._words(chosen, unused(config, self._stages)), error.faults)
        else:
            words = self._words(chosen, job_plan.spec.unused)
            self.jobs.append(Job(overrides=words, config=config, plan=job_plan))

    def _words(self, chosen: Chosen, idle: Iterable[Unused]) -> list[str]:
        """Return the overrides of a combination that have an effect on its job."""
        by_key = {value.key: value for value in idle}
        return [axis.word(value) for axis, value in chosen.items() if self._has_effect(axis, value, by_key)]

    def _has_effect(self, axis: Axis, value: Value, idle: Mapping[str, Unused]) -> bool:
        """Return whether an override has an effect on a job: not if all values that it sets are unused."""
        if axis.override.is_hydra_override():
            return False
        if axis.is_group or axis.override.is_delete():
            return True
        keys = [key for key, _ in leaves(axis.override.key_or_group, value.plain)]
        self._given.update(keys)
        for key in keys:
            if key in idle:
                self.idle.setdefault(key, []).append(idle[key])
        return not all(key in idle for key in keys)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults that end the command: invalid or unused values, and rules that all jobs break."""
        for key, idle in self.idle.items():
            if len(idle) == self._given[key] or self._is_search:
                yield idle[0].fault()
        wrong = [fault for fault in self._faults.values() if not fault.is_rule]
        nothing_fits = not self.jobs and not wrong
        for text, fault in self._faults.items():
            breaks_all = self._broken[text] == self._combinations
            if not fault.is_rule or not self._skips_unfit or nothing_fits or breaks_all:
                yield fault

    def _refuse(self, words: Sequence[str], faults: Sequence[Fault]) -> None:
        self._faults |= {str(fault): fault for fault in faults}
        self._broken.update({str(fault) for fault in faults})
        if all(fault.is_rule for fault in faults):
            rules = tuple(str(replace(fault, remedy="")) for fault in faults)
            self.unfit.append(Unfit.of(words, rules))
