"""Jobs of a sweep on this machine: processes, each with its GPU and its time limit."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from etlrun.record.locks import nobodys
from etlrun.record.record import Record
from etlrun.record.summary import FAILED
from etlrun.run import run as runs
from etlrun.stages.sweep import Sweep
from etlrun.sweep.order import RunKey
from etlrun.sweep.process import started
from etlrun.system.errors import Fault
from etlrun.system.machine import VISIBLE, gpu_ids

_GRACE_S, _REPEAT_S = 30.0, 1.0
"""A job gets SIGTERM repeatedly, since libraries swallow interrupts, and is killed after the grace period."""


class Jobs:
    """Jobs that run at a time.

    Attributes:
        running: Running jobs by the number of their seat.
        note: Sentence on how the jobs share GPUs; empty for nothing to say.
    """

    def __init__(self, at_a_time: int) -> None:
        self._seats = seats(at_a_time)
        self.running: dict[int, Job] = {}
        sharing = max(seat.jobs for seat in self._seats)
        self.note = f"up to {sharing} jobs that use a GPU share it (sweep.max_jobs_in_flight)" if sharing > 1 else ""

    def start(self, run: RunKey, folder: Path) -> None:
        """Start the job of a run that is frozen in `folder`."""
        number = min(set(range(len(self._seats))) - self.running.keys())
        seat = self._seats[number]
        Record(folder).update(jobs_on_gpu=seat.jobs)
        self.running[number] = Job(run, folder, started(folder, **seat.environment))

    def ended(self, wait_s: float) -> list[Job]:
        """Return the jobs that have ended since the last call, after a wait of at most `wait_s` for the first one."""
        sentinels = connection.wait([job.sentinel for job in self.running.values()], timeout=wait_s)
        ended = [number for number, job in self.running.items() if job.sentinel in sentinels]
        return [self.running.pop(number) for number in ended]

    def end(self, wait_s: float) -> None:
        """Terminate the jobs that are still running, and kill those that don't end."""
        left, longest_s = [*self.running.values()], time.monotonic() + _GRACE_S
        for job in left:
            job.terminate()
        while self.running and time.monotonic() < longest_s:
            self.ended(wait_s)
        for job in self.running.values():
            job.kill()
        for job in left:
            job.settle()


class Job:
    """Process of a job.

    Attributes:
        run: Run of the job.
        folder: Folder of the run.
        sentinel: Handle that becomes ready when the process ends.
    """

    def __init__(self, run: RunKey, folder: Path, process: BaseProcess) -> None:
        self.run, self.folder, self.sentinel = run, folder, process.sentinel
        self.terminate, self.kill, self._process = process.terminate, process.kill, process
        self._started_s = time.monotonic()
        self._late_s: float | None = None
        self._first_signal_s: float | None = None
        self._last_signal_s = -math.inf

    def enforce(self, limit_s: float | None, *, at_once: bool) -> None:
        """Terminate the job at its time limit, or at once; kill it if it doesn't end."""
        now_s = time.monotonic()
        is_late = limit_s is not None and now_s - self._started_s > limit_s
        if self._first_signal_s is None and (is_late or at_once):
            self._first_signal_s, self._late_s = now_s, None if at_once else limit_s
        if self._first_signal_s is None:
            return
        if now_s - self._first_signal_s > _GRACE_S:
            self.kill()
        elif now_s - self._last_signal_s > _REPEAT_S:
            self._last_signal_s = now_s
            self.terminate()

    def settle(self) -> None:
        """Complete the summary of a process that was killed, or that ended because of its time limit."""
        self._process.join()
        with nobodys(self.folder):  # the job may outlive the server's notice of its end by a moment
            status = self._process.exitcode
            runs.settle(self.folder, 0 if status is None else status)
        if self._late_s is not None:
            fault = Fault(
                where=Sweep.key("timeout_s"),
                found=f"a job that takes more than {self._late_s:g} s",
                expected="a job that ends within the limit",
                remedy="raise the limit, or give the job less to do",
            )
            Record(self.folder).update(status=FAILED, error=str(fault))


@dataclass(frozen=True, kw_only=True)
class Seat:
    """GPU of one of the jobs in flight.

    Attributes:
        environment: Environment variables of the job's process, set before a backend is imported.
        jobs: Number of jobs that may use the GPU at a time.
    """

    environment: dict[str, str]
    jobs: int


def seats(in_flight: int) -> list[Seat]:
    """Return a seat for each of `in_flight` concurrent jobs: a GPU each, or GPUs shared as evenly as possible.

    A job that runs alone sees all GPUs.
    """
    ids = gpu_ids()
    if in_flight == 1 or not ids:
        return [Seat(environment={}, jobs=1)] * in_flight
    found = []
    for seat in range(in_flight):
        own = seat % len(ids)
        jobs = len(range(own, in_flight, len(ids)))
        environment = {VISIBLE: ids[own]}
        if jobs > 1 and "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ:
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # a JAX job would take three quarters of the memory
        found.append(Seat(environment=environment, jobs=jobs))
    return found
