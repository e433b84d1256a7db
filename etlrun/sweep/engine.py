"""Execution of a sweep's remaining jobs, each in its own process, with retries, a time limit and a progress line."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from etlrun.config.grid import Grid
from etlrun.config.request import Request, files_digest
from etlrun.record import record as records
from etlrun.record.locks import nobodys
from etlrun.record.outcome import Outcome, outcome_of
from etlrun.record.record import Record
from etlrun.record.summary import FAILED, PRUNED
from etlrun.run import run as runs
from etlrun.stages.sweep import Sweep
from etlrun.sweep import hparams
from etlrun.sweep.gpus import seats
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.outcomes import Outcomes, unfinished
from etlrun.sweep.process import started
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


def run_all(ledger: Ledger, outcomes: Outcomes, progress: Progress) -> bool:
    """Run all jobs that are not completed; return False if the sweep was interrupted.

    Raises:
        WorldError: The sweep's folder can't be written to. Completed runs are kept.
    """
    engine = _Engine(ledger, outcomes, progress)
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
    """

    def __init__(self, ledger: Ledger, outcomes: Outcomes, progress: Progress) -> None:
        self.ledger, self.progress, self.interrupts = ledger, progress, 0
        self.waiting = deque(unfinished(ledger, outcomes))
        self.pruning = Pruning(ledger)
        waiting = set(self.waiting)
        for run, outcome in outcomes.items():
            if outcome is not None and run not in waiting:
                self._note(run, outcome)
        self.running: dict[int, _Running] = {}
        self.seats = seats(ledger.sweep.max_jobs_in_flight)
        self.attempts: dict[RunKey, int] = {}

    def work(self) -> None:
        """Run jobs until none is left, or the sweep is interrupted."""
        sharing = max(seat.jobs for seat in self.seats)
        if self.waiting and sharing > 1:
            self.progress.say(f"up to {sharing} jobs that use a GPU share it (sweep.max_jobs_in_flight)")
        while self.running or (self.waiting and not self.interrupts):
            while self.waiting and not self.interrupts and len(self.running) < self.ledger.sweep.max_jobs_in_flight:
                self._start(self.waiting.popleft())
            self.progress.show([job.run for job in self.running.values()])
            sentinels = connection.wait(list(self.running), timeout=_POLL_S) if self.running else []
            for sentinel in [number for number in self.running if number in sentinels]:
                self._ended(self.running.pop(sentinel))
            for job in self.running.values():
                job.enforce(self.ledger.sweep.timeout_s, at_once=self.interrupts > 1)

    def _start(self, run: RunKey) -> None:
        reason = self.pruning.reason(run) if self.ledger.sweep.prune else None
        folder = self.ledger.start(run)
        if reason is not None:
            Record(folder).update(status=PRUNED, error=reason)
            self._done(run)
            return
        number = min(set(range(len(self.seats))) - {job.seat for job in self.running.values()})
        seat = self.seats[number]
        Record(folder).update(jobs_on_gpu=seat.jobs)
        process = started(folder, **seat.environment)
        self.running[process.sentinel] = _Running(run, folder, process, number)

    def _ended(self, job: _Running) -> None:
        job.process.join()
        with nobodys(job.folder):  # the job may outlive the server's notice of its end by a moment
            status = job.process.exitcode
            runs.settle(job.folder, 0 if status is None else status)
        if job.has_timed_out:
            job.record_timeout(self.ledger.sweep.timeout_s)
        self._done(job.run)

    def _done(self, run: RunKey) -> None:
        outcome = outcome_of(self.ledger.folder_of(run))
        if outcome is None:
            raise WorldError(
                where=str(self.ledger.folder_of(run)),
                found="no summary of a job that has ended",
                expected="the summary that the job wrote",
                remedy=f"make sure that nothing else writes there, and resume with: {self.ledger.resume_command}",
            )
        has_failed = outcome.status == FAILED
        self.attempts[run] = self.attempts.get(run, 0) + 1
        if has_failed and self.attempts[run] <= self.ledger.sweep.retries and not self.interrupts:
            self.progress.say(f"{run.name} failed; retrying (attempt {self.attempts[run] + 1})")
            self.waiting.appendleft(run)
            return
        self._note(run, outcome)
        hparams.write(self.ledger.folder_of(run), run.config, self.progress.own[run.config], outcome)
        self.progress.ended(run, outcome)
        if has_failed and self.ledger.sweep.on_error == "stop":
            self.progress.say("stopping after a failed job (sweep.on_error=stop)")
            self.waiting.clear()

    def _note(self, run: RunKey, outcome: Outcome) -> None:
        self.progress.note(run, outcome)
        if self.ledger.sweep.prune:
            self.pruning.note(run, outcome)

    def end_running(self) -> None:
        """Terminate the jobs that are still running, since the sweep itself ends."""
        for job in self.running.values():
            job.process.terminate()
        for job in self.running.values():
            job.process.join(_GRACE_S)
            if job.process.exitcode is None:
                job.process.kill()
                job.process.join()
            runs.settle(job.folder, job.process.exitcode or 0)


class _Running:
    """Process of a job.

    Attributes:
        seat: Index of the job's seat among those in flight.
        has_timed_out: Whether the job was terminated because of `sweep.timeout_s`.
    """

    def __init__(self, run: RunKey, folder: Path, process: BaseProcess, seat: int) -> None:
        self.run, self.folder, self.process, self.seat = run, folder, process, seat
        self.has_timed_out = False
        self._started_s = time.monotonic()
        self._first_signal_s: float | None = None
        self._last_signal_s = -math.inf

    def enforce(self, limit_s: float | None, *, at_once: bool) -> None:
        """Terminate the job at its time limit, or at once; kill it if it doesn't end."""
        now_s = time.monotonic()
        is_late = limit_s is not None and now_s - self._started_s > limit_s
        if self._first_signal_s is None and (is_late or at_once):
            self._first_signal_s, self.has_timed_out = now_s, is_late and not at_once
        if self._first_signal_s is None:
            return
        if now_s - self._first_signal_s > _GRACE_S:
            self.process.kill()
        elif now_s - self._last_signal_s > _REPEAT_S:
            self._last_signal_s = now_s
            self.process.terminate()

    def record_timeout(self, limit_s: float | None) -> None:
        """Write the time limit into the job's summary as the reason for its end."""
        fault = Fault(
            where=Sweep.key("timeout_s"),
            found=f"a job that takes more than {limit_s:g} s",
            expected="a job that ends within the limit",
            remedy="raise the limit, or give the job less to do",
        )
        Record(self.folder).update(status=FAILED, error=str(fault))


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
