"""Outcomes of the runs of a sweep, and which of them are still to run."""

from __future__ import annotations

from collections.abc import Mapping

from etlrun.record.outcome import UNCACHED, Outcome
from etlrun.record.summary import COMPLETED, PRUNED
from etlrun.sweep.ledger import Ledger, RunKey

Outcomes = Mapping[RunKey, Outcome | None]
"""Outcomes of all runs of a sweep in execution order; None for a run that has not started."""


def unfinished(ledger: Ledger, outcomes: Outcomes) -> list[RunKey]:
    """Return the runs that are not completed, and those that ran without the cache of their config.

    Pruned runs count as completed while `sweep.prune` is set.
    """
    final = {COMPLETED, *([PRUNED] if ledger.sweep.prune else [])}
    return [
        run
        for run, outcome in outcomes.items()
        if outcome is None or outcome.status not in final or outcome.state == UNCACHED
    ]
