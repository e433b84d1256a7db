"""Execution of a sweep's remaining jobs, with retries, a time limit and a progress line."""

from __future__ import annotations

import dataclasses
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from etlrun.config.grid import Grid
from etlrun.config.request import Request, files_digest
from etlrun.record import record as records
from etlrun.record.summary import FAILED, read_summary
from etlrun.sweep.jobs import Job, Jobs
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.order import RunKey
from etlrun.sweep.progress import Progress
from etlrun.sweep.runs import Runs
from etlrun.system.errors import WorldError

_POLL_S = 0.25


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


def run_all(runs: Runs, progress: Progress) -> bool:
    """Run all jobs that are left; return False if the sweep was interrupted.

    Raises:
        WorldError: The sweep's folder can't be written to. Completed runs are kept.
    """
    engine = _Engine(runs, progress)
    ledger = runs.ledger
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
            engine.jobs.end(_POLL_S)
    return not engine.interrupts


class _Engine:
    """State of a sweep in progress.

    Attributes:
        interrupts: Number of Ctrl-C so far: after the first no job is started, the second ends the running ones.
    """

    def __init__(self, runs: Runs, progress: Progress) -> None:
        self.runs, self.progress, self.sweep = runs, progress, runs.ledger.sweep
        self.jobs, self.waiting = Jobs(self.sweep.max_jobs_in_flight), deque(runs.left)
        self.attempts: dict[RunKey, int] = {}
        self.interrupts = 0

    def work(self) -> None:
        """Run jobs until none is left, or the sweep is interrupted."""
        if self.waiting and self.jobs.note:
            self.progress.say(self.jobs.note)
        while self.jobs.running or (self.waiting and not self.interrupts):
            while self.waiting and not self.interrupts and self._has_room_for(self.waiting[0]):
                self._start(self.waiting.popleft())
            self.progress.show([job.run for job in self.jobs.running.values()])
            for ended in self.jobs.ended(_POLL_S) if self.jobs.running else []:
                self._ended(ended)
            for job in self.jobs.running.values():
                job.enforce(self.sweep.timeout_s, at_once=self.interrupts > 1)

    def _has_room_for(self, run: RunKey) -> bool:
        """Return whether a job may start: one that is compared, when no cache is being filled."""
        is_filling = any(job.run.fills for job in self.jobs.running.values())
        return len(self.jobs.running) < self.sweep.max_jobs_in_flight and (bool(run.fills) or not is_filling)

    def _start(self, run: RunKey) -> None:
        folder = self.runs.start(run)
        if folder is not None:
            self.jobs.start(run, folder)

    def _ended(self, job: Job) -> None:
        job.settle()
        run, has_failed = job.run, _has_failed(job.folder)
        self.attempts[run] = self.attempts.get(run, 0) + 1
        if has_failed and self.attempts[run] <= self.sweep.retries and not self.interrupts:
            self.progress.say(f"{run.name} failed; retrying (attempt {self.attempts[run] + 1})")
            self.waiting.appendleft(run)
            return
        self.runs.end(run)
        if has_failed and self.sweep.on_error == "stop":
            self.progress.say("stopping after a failed job (sweep.on_error=stop)")
            self.waiting.clear()


def _has_failed(folder: Path) -> bool:
    summary = read_summary(folder)
    return summary is not None and summary.status == FAILED


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
