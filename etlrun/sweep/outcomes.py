"""Outcomes of the runs of a sweep, and which of them are still to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from etlrun.cache.store import Store
from etlrun.record.outcome import UNCACHED, Outcome
from etlrun.record.summary import COMPLETED, PRUNED
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.order import RunKey

Outcomes = Mapping[RunKey, Outcome | None]
"""Outcomes of all runs of a sweep in execution order; None for a run that has not started."""


def unfinished(ledger: Ledger, outcomes: Outcomes) -> list[RunKey]:
    """Return the runs that are not completed, and those that did not read the caches that their config has on disk.

    Pruned runs count as completed while `sweep.prune` is set. A job that has filled caches does so again if they are
    gone and a run is left that reads them.
    """
    final = {COMPLETED, *([PRUNED] if ledger.sweep.prune else [])}
    left = {
        run
        for run, of in outcomes.items()
        if of is None or of.status not in final or as_compared(ledger, run, of).state == UNCACHED
    }
    wanted = {ledger.caches_of(run) for run in left}
    left |= {
        run for run, of in outcomes.items() if of and run.fills in wanted and run.fills and _is_gone(ledger, run, of)
    }
    return [run for run in outcomes if run in left]


def as_compared(ledger: Ledger, run: RunKey, of: Outcome) -> Outcome:
    """Return an outcome for comparisons: a run that has filled a cache which it was to read ran without it."""
    is_reader = of.has_filled and not run.fills and ledger.caches_of(run)
    return replace(of, state=UNCACHED) if is_reader else of


def _is_gone(ledger: Ledger, run: RunKey, of: Outcome) -> bool:
    """Return whether the cache that a job has filled is no longer there."""
    return not Store(ledger.configs[run.config].values["cache"]["dir"]).has(of.cache)
