"""What filling a cache took: of runs below `outputs` that have filled one of the same kind."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import yaml

from etlrun.graph.identity import planned
from etlrun.planning.code import as_recorded
from etlrun.planning.learned import recalled
from etlrun.planning.plan import Plan, at_cache
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.config import PLAN, read_config
from etlrun.record.summary import COMPLETED, SUMMARY, Summary, read_summary
from etlrun.stages import STAGES
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import EtlrunError

_MOST_RUNS = 10
"""Runs that are looked at, the newest ones that have filled a cache."""


class Fills:
    """The caches that completed runs below a folder have filled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, plan: Plan, name: str) -> str:
        """Return a sentence on the newest run that has filled a cache as that of a pipeline; empty if none has.

        It is of the same kind if it has the same stages and the same dataset before it, of any split and seed.
        """
        kind = _kind(plan, name)
        return next((text for known, text in self._known if known == kind), "")

    @cached_property
    def _known(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        summaries = ((path.parent, read_summary(path.parent)) for path in self._folder.rglob(SUMMARY))
        runs = [(run, of) for run, of in summaries if of is not None and of.status == COMPLETED and _filled_s(of)]
        for run, summary in sorted(runs, key=lambda of: -(of[1].created_s or 0.0))[:_MOST_RUNS]:
            try:
                there = as_recorded(plan(recalled(parse(read_config(run) or {}, STAGES), run)), run / PLAN)
            except (EtlrunError, OSError, ValueError, yaml.YAMLError):  # of another version, or without its file
                continue
            for name, seconds in _filled_s(summary).items():
                of = f"one of {summary.dataset.examples.get(name, 0):,} examples"
                found.append((_kind(there, name), f"the pass that filled {of} took {seconds:.1f} s in {run}"))
        return found


def _filled_s(summary: Summary) -> dict[str, float]:
    """Return the seconds of the passes that filled the caches of a run, by pipeline."""
    held = {} if summary.cache is None else summary.cache.pipelines
    return {name: of.filled_s for name, of in held.items() if of.filled_s}


def _kind(plan: Plan, name: str) -> str:
    cache = at_cache(plan.pipelines[name])[1]
    others = {Trainer.key("seed"), *(plan.spec.dataset.key_of(of) for of in plan.pipelines)}
    values = {key: value for key, value in planned(plan, name).items() if key not in others}
    return "" if cache is None else repr((cache.path, cache.codec, values))
