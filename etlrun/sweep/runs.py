"""Runs of a sweep: which are still to run, how each starts and ends, and what is shown of them."""

import statistics
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from etlrun.cache.store import CacheStore
from etlrun.record.outcome import UNCACHED, Outcome, outcome_of
from etlrun.record.record import Record
from etlrun.record.summary import COMPLETED, FAILED
from etlrun.sweep.ledger import Ledger, RunKey, own_overrides
from etlrun.system.errors import WorldError, printable
from etlrun.system.terminal import Task, discard, is_quiet, is_repainted, left

Outcomes = Mapping[RunKey, Outcome | None]
"""Outcomes of all runs of a sweep in execution order; None for a run that has not started."""


def say_of_sweep(text: str) -> None:
    """Print a line about a sweep at once, unless notes and errors alone are printed; a closed pipe does not end it."""
    if not is_quiet():
        try:
            print(printable(text), flush=True)
        except BrokenPipeError:  # as of `| head`
            discard(sys.stdout.fileno())


def unfinished(ledger: Ledger, outcomes: Outcomes) -> list[RunKey]:
    """Return the runs that are not completed, and those that did not read the caches that their config has on disk.

    A job that has filled caches does so again if they are gone and a run is left that reads them.
    """
    waiting = {
        run
        for run, of in outcomes.items()
        if of is None or of.status != COMPLETED or as_compared(ledger, run, of).state == UNCACHED
    }
    wanted = {ledger.caches_of(run) for run in waiting} - {""}
    waiting |= {
        run
        for run, of in outcomes.items()
        if of and run.fills in wanted
        if not CacheStore(ledger.configs[run.config].values["cache"]["dir"]).has(of.cache)
    }
    return [run for run in outcomes if run in waiting]


def as_compared(ledger: Ledger, run: RunKey, of: Outcome) -> Outcome:
    """Return an outcome for comparisons: a run that has filled a cache which it was to read ran without it."""
    is_reader = of.has_filled and not run.fills and ledger.caches_of(run)
    return replace(of, state=UNCACHED) if is_reader else of


class Runs:
    """Runs of a sweep as they start and end, and what is shown of them.

    Attributes:
        left: Those that are still to run, in execution order.
        own: Overrides of each config that not all configs share.
        task: The live line.
    """

    def __init__(self, ledger: Ledger, outcomes: Outcomes, at_a_time: int) -> None:
        self.ledger, self._at_a_time = ledger, at_a_time
        self.total, self.left = len(ledger.runs), unfinished(ledger, outcomes)
        self.own = own_overrides([config.overrides for config in ledger.configs])
        self.task, self._lock, self._unfilled = Task(""), threading.Lock(), dict[str, str]()
        self._walls_s, self._counts, waiting = list[float](), Counter[str](), set(self.left)
        for run, outcome in outcomes.items():
            if outcome and run not in waiting:
                self.note(run, outcome)

    def start(self, run: RunKey) -> Path | None:
        """Return the new folder of a run; None if it has ended there, without its cache."""
        unfilled = None if run.fills else self._unfilled.get(self.ledger.caches_of(run))
        folder = self.ledger.start(run)
        if not unfilled:
            return folder
        Record(folder).update(status=FAILED, error=unfilled)
        self.end(run)
        return None

    def end(self, run: RunKey) -> None:
        """Report a run that has ended; `WorldError` if its job has left no outcome."""
        folder = self.ledger.folder_of(run)
        if not (outcome := outcome_of(folder)):
            found, expected = "no summary of a job that has ended", "the summary that the job wrote"
            remedy = f"make sure that nothing else writes there, and resume with: {self.ledger.resume_command}"
            raise WorldError(folder, found, expected, remedy)
        with self._lock:  # a launcher's jobs end in threads
            self.note(run, outcome)
            if run.fills and outcome.status != COMPLETED:
                reason = f"{run.name}, the job that fills its cache, has not completed: {outcome.error}"
                self._unfilled[run.fills] = reason
            self.ended(run, outcome)

    def note(self, run: RunKey, outcome: Outcome) -> None:
        """Count a run that has ended, in this session or before."""
        self._counts[outcome.status] += 1
        if outcome.status == COMPLETED and not run.fills:
            self._walls_s.append(outcome.wall_s)

    def show(self, running: Sequence[RunKey]) -> None:
        """Update the live line."""
        if is_repainted(sys.stderr):
            self.task.what = self.line(running)

    def line(self, running: Sequence[RunKey]) -> str:
        """Return the live line: jobs done, failed and running, and the time left."""
        done, failed = self._counts.total(), self._counts[FAILED]
        waiting, now = self.total - done, ", ".join(f"{of.name}: {self._name(of)}" for of in running)
        parts = [f"sweep {done}/{self.total}"] + [f"{failed} failed"] * bool(failed)
        if self._walls_s:  # the time left is unknown before the first has ended
            parts.append(left(statistics.median(self._walls_s) / min(self._at_a_time, max(waiting, 1)) * waiting))
        parts += [f"running {now}"] * bool(now)
        return " | ".join(parts)

    def ended(self, run: RunKey, outcome: Outcome) -> None:
        """Print a line for a job that has ended."""
        is_uncached, told = outcome.state == UNCACHED, [outcome.status]
        if rate := outcome.examples_per_s:
            told.append(f"{rate:.1f} examples/s{' without its cache' * is_uncached}")
        if run.fills and outcome.status == COMPLETED:
            there = "without its cache" if is_uncached else "its cache was there"
            told.append(f"cache filled in {outcome.fill_s:.1f} s" if outcome.fill_s else there)
        told += [f"{outcome.wall_s:.1f} s"] * bool(outcome.wall_s)  # unknown of a run that was killed
        reason = f": {' '.join(outcome.error.split())}" if outcome.error else ""
        text = f"{self._counts.total()}/{self.total} {run.name} {self._name(run)}: {', '.join(told)}{reason}"
        if is_quiet() and reason:
            print(text, file=sys.stderr)
        say_of_sweep(text)

    def _name(self, run: RunKey) -> str:
        return " ".join(self.own[run.config]) or "the only config"
