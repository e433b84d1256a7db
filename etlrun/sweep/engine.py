"""Execution of a sweep's remaining jobs, with retries, a time limit and a progress line, wherever the jobs run."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from etlrun.config.grid import Grid
from etlrun.config.request import Request, files_digest
from etlrun.record import record as records
from etlrun.record.outcome import Outcome, outcome_of
from etlrun.record.record import Record
from etlrun.record.summary import COMPLETED, FAILED, PRUNED
from etlrun.stages.sweep import Sweep
from etlrun.sweep import hparams
from etlrun.sweep.jobs import Job, Jobs
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.order import RunKey
from etlrun.sweep.outcomes import Outcomes, unfinished
from etlrun.sweep.progress import Progress
from etlrun.sweep.pruning import Pruning
from etlrun.system.errors import Fault, WorldError

_POLL_S = 0.25
_GRACE_S, _REPEAT_S = 30.0, 1.0
"""A job gets SIGTERM repeatedly, since libraries swallow interrupts, and is killed after the grace period."""


def new_ledger(request: Request, found: Grid) -> Ledger:
    """Create the ledger of a new sweep in its folder; `WorldError` if the folder can't be used."""
    known = {
        "overrides": request.overrides,
        "config_dir": request.config_dir and str(Path(request.config_dir).resolve()),
        "config_name": request.config_name,
        "files": files_digest(request),
        "multirun": dataclasses.asdict(found.multirun),
    }
    return Ledger.create(Path(found.multirun.dir), found.sweep, found.jobs, known, found.unfit)


def run_all(ledger: Ledger, outcomes: Outcomes, progress: Progress, jobs: Jobs) -> bool:
    """Run all `jobs` that are not completed; return False if the sweep was interrupted.

    Raises:
        WorldError: The sweep's folder can't be written to. Completed runs are kept.
    """
    engine = _Engine(ledger, outcomes, progress, jobs)
    with _interrupts(engine):
        try:
            engine.work()
        except EOFError as error:
            raise WorldError(
                where=str(ledger.folder),
                found="that the process that forks the jobs has ended",
                expected="a process that lives as long as the sweep",
                remedy=f"resume with: {ledger.resume_command}",
            ) from error
        except (OSError, records.UnwritableError) as error:
            raise WorldError(
                where=str(ledger.folder),
                found=str(error.__cause__ or error),
                expected="a folder that can be written to",
                remedy=f"free disk space, and resume with: {ledger.resume_command}",
            ) from error
        finally:
            engine.end_running()
    return not engine.interrupts


class _Engine:
    """State of a sweep in progress.

    Attributes:
        interrupts: Number of Ctrl-C so far: after the first no job is started, the second ends the running ones.
        unfilled: Why caches were not filled, by `RunKey.fills` of the job that was to do so.
    """

    def __init__(self, ledger: Ledger, outcomes: Outcomes, progress: Progress, jobs: Jobs) -> None:
        self.ledger, self.progress, self.jobs, self.interrupts = ledger, progress, jobs, 0
        self.waiting = deque(unfinished(ledger, outcomes))
        self.pruning = Pruning(ledger)
        waiting = set(self.waiting)
        for run, outcome in outcomes.items():
            if outcome is not None and run not in waiting:
                self._note(run, outcome)
        self.running: dict[Job, _Running] = {}
        self.attempts: dict[RunKey, int] = {}
        self.unfilled: dict[str, str] = {}

    def work(self) -> None:
        """Run jobs until none is left, or the sweep is interrupted."""
        self._take_over()
        if self.waiting and self.jobs.note:
            self.progress.say(self.jobs.note)
        while self.running or (self.waiting and not self.interrupts):
            while self.waiting and not self.interrupts and self._has_room_for(self.waiting[0]):
                self._start(self.waiting.popleft())
            self.progress.show([job.run for job in self.running.values()])
            for ended in self.jobs.ended(_POLL_S) if self.running else []:
                self._ended(ended, self.running.pop(ended))
            for job, of in self.running.items():
                of.enforce(job, self.ledger.sweep.timeout_s, at_once=self.interrupts > 1)

    def _take_over(self) -> None:
        """Go on with the jobs that have outlived an earlier session of the sweep."""
        for run in list(self.waiting):
            job = self.jobs.going(self.ledger.folder_of(run))
            if job is not None:
                self.waiting.remove(run)
                self.running[job] = _Running(run)
        if self.running:
            names = ", ".join(of.run.name for of in self.running.values())
            self.progress.say(f"jobs of an earlier session go on: {names}")

    def _has_room_for(self, run: RunKey) -> bool:
        """Return whether a job may start: one that is compared, when no cache is being filled."""
        is_filling = any(of.run.fills for of in self.running.values())
        return len(self.running) < self.jobs.at_a_time and (bool(run.fills) or not is_filling)

    def _start(self, run: RunKey) -> None:
        unfilled = self.unfilled.get(self.ledger.caches_of(run)) if not run.fills else None
        reason = self.pruning.reason(run) if self.ledger.sweep.prune and not run.fills else None
        folder = self.ledger.start(run)
        if unfilled or reason:
            Record(folder).update(status=FAILED if unfilled else PRUNED, error=unfilled or reason)
            self._end(run, outcome_of(folder))
            return
        self.running[self.jobs.start(folder)] = _Running(run)

    def _ended(self, job: Job, of: _Running) -> None:
        job.settle()
        if of.has_timed_out:
            _record_timeout(job.folder, self.ledger.sweep.timeout_s)
        run, outcome = of.run, outcome_of(job.folder)
        self.attempts[run] = self.attempts.get(run, 0) + 1
        has_failed = outcome is not None and outcome.status == FAILED
        if has_failed and self.attempts[run] <= self.ledger.sweep.retries and not self.interrupts:
            self.progress.say(f"{run.name} failed; retrying (attempt {self.attempts[run] + 1})")
            self.waiting.appendleft(run)
            return
        self._end(run, outcome)

    def _end(self, run: RunKey, outcome: Outcome | None) -> None:
        if outcome is None:
            raise WorldError(
                where=str(self.ledger.folder_of(run)),
                found="no summary of a job that has ended",
                expected="the summary that the job wrote",
                remedy=f"make sure that nothing else writes there, and resume with: {self.ledger.resume_command}",
            )
        self._note(run, outcome)
        if run.fills and outcome.status != COMPLETED:
            self.unfilled[run.fills] = f"{run.name}, the job that fills its cache, has not completed: {outcome.error}"
        hparams.write(self.ledger.folder_of(run), run.config, self.progress.own[run.config], outcome)
        self.progress.ended(run, outcome)
        if outcome.status == FAILED and self.ledger.sweep.on_error == "stop":
            self.progress.say("stopping after a failed job (sweep.on_error=stop)")
            self.waiting.clear()

    def _note(self, run: RunKey, outcome: Outcome) -> None:
        self.progress.note(run, outcome)
        if self.ledger.sweep.prune:
            self.pruning.note(run, outcome)

    def end_running(self) -> None:
        """Terminate the jobs that are still running, since the sweep itself ends."""
        for job in self.running:
            job.terminate()
        left, longest_s = set(self.running), time.monotonic() + _GRACE_S
        while left and time.monotonic() < longest_s:
            left.difference_update(self.jobs.ended(_POLL_S))
        for job in left:
            job.kill()
        for job in self.running:
            job.settle()


class _Running:
    """A job that is running.

    Attributes:
        run: Run of the job.
        has_timed_out: Whether the job was terminated because of `sweep.timeout_s`.
    """

    def __init__(self, run: RunKey) -> None:
        self.run, self.has_timed_out = run, False
        self._first_signal_s: float | None = None
        self._last_signal_s = -math.inf

    def enforce(self, job: Job, limit_s: float | None, *, at_once: bool) -> None:
        """Terminate the job at its time limit, or at once; kill it if it doesn't end."""
        now_s = time.monotonic()
        is_late = limit_s is not None and job.ran_s > limit_s
        if self._first_signal_s is None and (is_late or at_once):
            self._first_signal_s, self.has_timed_out = now_s, is_late and not at_once
        if self._first_signal_s is None:
            return
        if now_s - self._first_signal_s > _GRACE_S:
            job.kill()
        elif now_s - self._last_signal_s > _REPEAT_S:
            self._last_signal_s = now_s
            job.terminate()


def _record_timeout(folder: Path, limit_s: float | None) -> None:
    """Write the time limit into the job's summary as the reason for its end."""
    fault = Fault(
        where=Sweep.key("timeout_s"),
        found=f"a job that takes more than {limit_s:g} s",
        expected="a job that ends within the limit",
        remedy="raise the limit, or give the job less to do",
    )
    Record(folder).update(status=FAILED, error=str(fault))


@contextmanager
def _interrupts(engine: _Engine) -> Iterator[None]:
    """Count interrupts: Ctrl-C as one, SIGTERM as two."""

    def interrupted(number: int, _frame: FrameType | None) -> None:
        engine.interrupts += 2 if number == signal.SIGTERM else 1
        if engine.interrupts == 1:
            engine.progress.say("interrupted: stopping after the running jobs; press Ctrl-C again to stop at once")

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
