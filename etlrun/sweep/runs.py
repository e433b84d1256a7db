"""Runs of a sweep: their outcomes, which of them are still to run, and how each starts and ends."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from etlrun.cache.store import Store
from etlrun.record.outcome import UNCACHED, Outcome, outcome_of
from etlrun.record.record import Record
from etlrun.record.summary import COMPLETED, FAILED, PRUNED
from etlrun.sweep import hparams
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.order import RunKey
from etlrun.sweep.progress import Progress
from etlrun.sweep.pruning import Pruning
from etlrun.system.errors import WorldError

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


class Runs:
    """Runs of a sweep as they start and end.

    Attributes:
        left: Runs that are still to run, in execution order.
    """

    def __init__(self, ledger: Ledger, outcomes: Outcomes, progress: Progress) -> None:
        self.ledger, self._progress, self._lock = ledger, progress, threading.Lock()
        self.left = unfinished(ledger, outcomes)
        self._pruning = Pruning(ledger) if ledger.sweep.prune else None
        self._unfilled: dict[str, str] = {}
        waiting = set(self.left)
        for run, outcome in outcomes.items():
            if outcome is not None and run not in waiting:
                self._note(run, outcome)

    def start(self, run: RunKey) -> Path | None:
        """Return the new folder of a run; None if it has ended there, without its cache or since it can't win."""
        unfilled = self._unfilled.get(self.ledger.caches_of(run)) if not run.fills else None
        reason = self._pruning.reason(run) if self._pruning and not run.fills else None
        folder = self.ledger.start(run)
        if not unfilled and not reason:
            return folder
        Record(folder).update(status=FAILED if unfilled else PRUNED, error=unfilled or reason)
        self.end(run)
        return None

    def end(self, run: RunKey) -> Outcome:
        """Report a run that has ended, and return its outcome; `WorldError` if its job has left none."""
        outcome = outcome_of(self.ledger.folder_of(run))
        if outcome is None:
            raise WorldError(
                where=str(self.ledger.folder_of(run)),
                found="no summary of a job that has ended",
                expected="the summary that the job wrote",
                remedy=f"make sure that nothing else writes there, and resume with: {self.ledger.resume_command}",
            )
        with self._lock:  # a launcher's jobs end in threads
            self._ended(run, outcome)
        return outcome

    def _ended(self, run: RunKey, outcome: Outcome) -> None:
        self._note(run, outcome)
        if run.fills and outcome.status != COMPLETED:
            self._unfilled[run.fills] = f"{run.name}, the job that fills its cache, has not completed: {outcome.error}"
        hparams.write(self.ledger.folder_of(run), run.config, self._progress.own[run.config], outcome)
        self._progress.ended(run, outcome)

    def _note(self, run: RunKey, outcome: Outcome) -> None:
        self._progress.note(run, outcome)
        if self._pruning:
            self._pruning.note(run, outcome)
