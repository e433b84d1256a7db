"""Combinations of overrides become jobs: each is checked and planned, and some don't fit."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from etlrun.config.overrides import Axis, Chosen, Value
from etlrun.errors import ConfigError, Fault
from etlrun.plan.plan import Plan
from etlrun.plan.planner import plan
from etlrun.plan.spec import parse
from etlrun.plan.unused import Unused, leaves, unused, without
from etlrun.stages import Stages


@dataclass(frozen=True, kw_only=True)
class Job:
    """One config of a multirun.

    Attributes:
        overrides: With one value each; those of the sweep itself left out, and those that go unused in it.
        config: Composed; plain values.
        plan: What it would do.
    """

    overrides: list[str]
    config: dict[str, Any]
    plan: Plan

    @property
    def used(self) -> dict[str, Any]:
        """The config without what goes unused."""
        idle = self.plan.spec.unused
        return without(copy.deepcopy(self.config), idle) if idle else self.config


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """A combination that is left out, since values of it don't fit together.

    Attributes:
        overrides: As those of a job.
        rules: The rules that it breaks, each with what was found.
    """

    overrides: tuple[str, ...]
    rules: tuple[str, ...]

    @classmethod
    def of(cls, overrides: Sequence[str], rules: Sequence[str]) -> Self:
        """From lists, as JSON has them."""
        return cls(overrides=tuple(overrides), rules=tuple(rules))


def identity_of(config: Mapping[str, Any]) -> str:
    """16 hex digits of a SHA-256 over all values of a config."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """What has another value in the config `now`, by dotted keys."""
    for key in [*before, *(key for key in now if key not in before)]:
        was, is_now = before.get(key), now.get(key)
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            yield from differences(was, is_now, f"{path}{key}.")
        elif was != is_now:
            yield f"{path}{key} {json.dumps(was)} -> {json.dumps(is_now)}"


class Judge:
    """Makes jobs of combinations, and keeps what is wrong with them.

    Attributes:
        jobs: Of the combinations that are right.
        unfit: The combinations that break rules between values, and are wrong in nothing else.
        idle: What overrides set that goes unused in some combinations, by its key; an entry for each of these.
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
        """Judge a combination by what was composed of it."""
        self._combinations += 1
        try:
            job_plan = plan(parse(config, self._stages))
        except ConfigError as error:
            self._refuse(self._words(chosen, unused(config, self._stages)), error.faults)
        else:
            words = self._words(chosen, job_plan.spec.unused)
            self.jobs.append(Job(overrides=words, config=config, plan=job_plan))

    def _words(self, chosen: Chosen, idle: Iterable[Unused]) -> list[str]:
        """The overrides of a combination that make a difference to its job."""
        by_key = {value.key: value for value in idle}
        return [axis.word(value) for axis, value in chosen.items() if self._is_told(axis, value, by_key)]

    def _is_told(self, axis: Axis, value: Value, idle: Mapping[str, Unused]) -> bool:
        """Whether an override makes a difference to a job: not where all that it sets goes unused there."""
        if axis.key.startswith("hydra"):
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
        """What refuses the whole: values that are wrong by themselves or used nowhere, and rules that all break."""
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
