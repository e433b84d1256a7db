"""Runs what is left of a sweep: a process a job, so many at a time, with retries, a time limit and one live line."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from etlrun.errors import Fault, WorldError
from etlrun.record import record as records
from etlrun.record.locks import nobodys
from etlrun.record.outcome import UNCACHED, Outcome, outcome_of
from etlrun.record.record import Record
from etlrun.record.summary import COMPLETED, FAILED, PRUNED
from etlrun.run import run as runs
from etlrun.stages.sweep import Sweep
from etlrun.sweep import hparams
from etlrun.sweep.gpus import seats
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.process import started
from etlrun.sweep.progress import Progress
from etlrun.sweep.pruning import Pruning

_LOOK_S = 0.25
"""Between two looks at the clock."""
_GRACE_S, _AGAIN_S = 30.0, 1.0
"""A job that is told to end is told again, since libraries swallow interrupts, and killed in the end."""


Outcomes = Mapping[RunKey, Outcome | None]
"""Of all runs of a sweep, in the order in which they are made; None of one that has not started."""


def unfinished(ledger: Ledger, outcomes: Outcomes) -> list[RunKey]:
    """The runs that are not completed yet, and those that went without the cache of their config.

    What was pruned counts as completed for as long as `sweep.prune` is set.
    """
    final = {COMPLETED, *([PRUNED] if ledger.sweep.prune else [])}
    return [
        run
        for run, outcome in outcomes.items()
        if outcome is None or outcome.status not in final or outcome.state == UNCACHED
    ]


def run_all(ledger: Ledger, outcomes: Outcomes, progress: Progress) -> bool:
    """Run what is not completed yet; whether it came to its end, and was not interrupted.

    Raises:
        WorldError: The sweep's folder can't be written to. What is done stays done.
    """
    engine = _Engine(ledger, outcomes, progress)
    with _interrupts(engine):
        try:
            engine.work()
        except EOFError as error:
            raise WorldError(
                where=str(ledger.folder),
                found="the end of the process that starts the jobs",
                expected="that process for as long as the sweep",
                remedy=f"go on: {ledger.resume_command}",
            ) from error
        except (OSError, records.UnwritableError) as error:
            raise WorldError(
                where=str(ledger.folder),
                found=str(error.__cause__ or error),
                expected="a folder that can be written to",
                remedy=f"make space, and go on: {ledger.resume_command}",
            ) from error
        finally:
            engine.end_running()
    return not engine.interrupts


class _Engine:
    """Attributes tell how far it is.

    Attributes:
        interrupts: Ctrl-C so far: with the first no job is started any more, with the second the running ones end.
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
        """Until nothing is left, or it is told to stop."""
        sharing = max(seat.jobs for seat in self.seats)
        if self.waiting and sharing > 1:
            self.progress.say(f"up to {sharing} jobs that use a GPU share one at a time (sweep.max_jobs_in_flight)")
        while self.running or (self.waiting and not self.interrupts):
            while self.waiting and not self.interrupts and len(self.running) < self.ledger.sweep.max_jobs_in_flight:
                self._start(self.waiting.popleft())
            self.progress.show([job.run for job in self.running.values()])
            sentinels = connection.wait(list(self.running), timeout=_LOOK_S) if self.running else []
            for sentinel in [number for number in self.running if number in sentinels]:
                self._ended(self.running.pop(sentinel))
            for job in self.running.values():
                job.hold_to(self.ledger.sweep.timeout_s, at_once=self.interrupts > 1)

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
        with nobodys(job.folder):  # the job's process outlives the server that tells of its end, by a moment
            status = job.process.exitcode
            runs.settle(job.folder, 0 if status is None else status)
        if job.is_late:
            job.tell_late(self.ledger.sweep.timeout_s)
        self._done(job.run)

    def _done(self, run: RunKey) -> None:
        outcome = outcome_of(self.ledger.folder_of(run))
        if outcome is None:
            raise WorldError(
                where=str(self.ledger.folder_of(run)),
                found="no summary of a job that has ended",
                expected="what the job wrote",
                remedy=f"see that nothing else writes there, and go on: {self.ledger.resume_command}",
            )
        has_failed = outcome.status == FAILED
        self.attempts[run] = self.attempts.get(run, 0) + 1
        if has_failed and self.attempts[run] <= self.ledger.sweep.retries and not self.interrupts:
            self.progress.say(f"{run.name} failed, attempt {self.attempts[run] + 1} follows")
            self.waiting.appendleft(run)
            return
        self._note(run, outcome)
        hparams.write(self.ledger.folder_of(run), run.config, self.progress.own[run.config], outcome)
        self.progress.ended(run, outcome)
        if has_failed and self.ledger.sweep.on_error == "stop":
            self.progress.say("stops after a failed job, as sweep.on_error=stop asks")
            self.waiting.clear()

    def _note(self, run: RunKey, outcome: Outcome) -> None:
        self.progress.note(run, outcome)
        if self.ledger.sweep.prune:
            self.pruning.note(run, outcome)

    def end_running(self) -> None:
        """End the jobs that still run, politely, since the sweep itself can't go on."""
        for job in self.running.values():
            job.process.terminate()
        for job in self.running.values():
            job.process.join(_GRACE_S)
            if job.process.exitcode is None:
                job.process.kill()
                job.process.join()
            runs.settle(job.folder, job.process.exitcode or 0)


class _Running:
    """A job's process.

    Attributes:
        seat: Its place among those in flight.
        is_late: Whether it was told to end since its time was up.
    """

    def __init__(self, run: RunKey, folder: Path, process: BaseProcess, seat: int) -> None:
        self.run, self.folder, self.process, self.seat = run, folder, process, seat
        self.is_late = False
        self._started_s = time.monotonic()
        self._first_told_s: float | None = None
        self._told_s = -math.inf

    def hold_to(self, limit_s: float | None, *, at_once: bool) -> None:
        """Tell it to end when its time is up, or at once; kill it where it doesn't."""
        now_s = time.monotonic()
        is_late = limit_s is not None and now_s - self._started_s > limit_s
        if self._first_told_s is None and (is_late or at_once):
            self._first_told_s, self.is_late = now_s, is_late and not at_once
        if self._first_told_s is None:
            return
        if now_s - self._first_told_s > _GRACE_S:
            self.process.kill()
        elif now_s - self._told_s > _AGAIN_S:
            self._told_s = now_s
            self.process.terminate()

    def tell_late(self, limit_s: float | None) -> None:
        """Have its summary say why it has ended."""
        fault = Fault(
            where=Sweep.key("timeout_s"),
            found=f"a job of more than {limit_s:g} s",
            expected="its end before that",
            remedy="give it more time, or less to do",
        )
        Record(self.folder).update(status=FAILED, error=str(fault))


@contextmanager
def _interrupts(engine: _Engine) -> Iterator[None]:
    """Ctrl-C counts; a polite kill (SIGTERM) counts as two."""

    def interrupted(number: int, _frame: FrameType | None) -> None:
        engine.interrupts += 2 if number == signal.SIGTERM else 1
        if engine.interrupts == 1:
            engine.progress.say("ends after the running job; Ctrl-C again ends it at once")

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
