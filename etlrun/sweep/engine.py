"""Execution of the jobs of a sweep that are left, on this machine: processes, each with its GPU and its time limit."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from math import inf
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from etlrun.config.grid import Grid
from etlrun.config.request import Request, files_digest
from etlrun.record.record import Record, UnwritableError, nobodys
from etlrun.record.summary import FAILED
from etlrun.run import run as runs
from etlrun.stages.sweep import Sweep
from etlrun.sweep.ledger import Ledger, RunKey
from etlrun.sweep.runs import Runs, say_of_sweep
from etlrun.system.errors import Fault, WorldError
from etlrun.system.loading import end_with_parent
from etlrun.system.machine import VISIBLE, gpu_ids

OUTPUT = "output.txt"
"""Output of a job."""

_PRELOADED = ["etlrun.sweep.preload"]
"""Modules that the server imports, in this order."""
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}
"""Signals to a process group, which reach the fork server as well."""
_GRACE_S, _REPEAT_S = 30.0, 1.0
"""A job gets SIGTERM repeatedly, since libraries swallow interrupts, and is killed after the grace period."""
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
"""Environment variable without which a JAX job takes three quarters of the memory of its GPU."""
_POLL_S = 0.25


def started(folder: Path, **environment: str) -> BaseProcess:
    """Start the job frozen in `folder`, in a process with its own heap and session that ends with this process.

    Forking saves the import of TensorFlow, and all jobs run the code that was there at the start. Variables of the
    environment are set before a backend looks for its GPUs.
    """
    process = _context().Process(target=_work, args=(folder, environment), name=str(folder))
    process.start()
    return process


def _context() -> ForkServerContext:
    if multiprocessing.get_start_method(allow_none=True) not in (None, *multiprocessing.get_all_start_methods()):
        # A worker of joblib: it has set a start method of its own, which a job would not know.
        multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    resource_tracker.ensure_running()  # it unblocks these signals at its start
    # Only the sweep handles them: the server, which inherits this mask, ends with the sweep, and jobs are terminated.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _work(folder: Path, environment: dict[str, str]) -> None:
    os.environ |= environment
    os.setsid()  # Ctrl-C reaches the sweep alone
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with (folder / OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        logging.basicConfig(level=logging.WARNING)
        sys.exit(runs.run(folder))


@dataclass(eq=False)
class JobProcess:
    """Process of a job: its run, the folder of that, and the process."""

    run: RunKey
    folder: Path
    process: BaseProcess
    _late_s: float | None = None
    _first_signal_s: float = inf
    _last_signal_s: float = -inf
    _started_s: float = field(default_factory=time.monotonic)

    def enforce(self, limit_s: float | None, *, at_once: bool) -> None:
        """Terminate the job at its time limit, or at once; kill it if it doesn't end."""
        now_s = time.monotonic()
        is_late = limit_s is not None and now_s - self._started_s > limit_s
        if self._first_signal_s == inf and (is_late or at_once):
            self._first_signal_s, self._late_s = now_s, None if at_once else limit_s
        if now_s - self._first_signal_s > _GRACE_S:
            self.process.kill()
        elif now_s >= max(self._first_signal_s, self._last_signal_s + _REPEAT_S):
            self._last_signal_s = now_s
            self.process.terminate()

    def settle(self) -> None:
        """Complete the summary of a process that was killed, or that ended because of its time limit."""
        self.process.join()
        with nobodys(self.folder):  # the job may outlive the server's notice of its end by a moment
            runs.settle(self.folder, self.process.exitcode or 0)
        if self._late_s is not None:
            found, expected = f"a job that takes more than {self._late_s:g} s", "a job that ends within the limit"
            late = Fault(Sweep.key("timeout_s"), found, expected, "raise the limit, or give the job less to do")
            Record(self.folder).update(status=FAILED, error=str(late))


class Seat(NamedTuple):
    """GPU that so many jobs may use at a time, and the environment with which a job's process is on it."""

    environment: dict[str, str]
    jobs: int


def seats(in_flight: int) -> list[Seat]:
    """Return a seat for each of so many jobs: a GPU each, or GPUs shared evenly; all GPUs for one alone."""
    ids = gpu_ids()
    if in_flight == 1 or not ids:
        return [Seat({}, 1)] * in_flight
    found = []
    for seat in range(in_flight):
        own = seat % len(ids)
        jobs = len(range(own, in_flight, len(ids)))
        shared = {} if jobs == 1 or _PREALLOCATE in os.environ else {_PREALLOCATE: "false"}
        found.append(Seat({VISIBLE: ids[own], **shared}, jobs))
    return found


def new_ledger(request: Request, found: Grid) -> Ledger:
    """Create the ledger of a new sweep in its folder; `WorldError` if the folder can't be used."""
    known = {
        "overrides": request.overrides,
        "config_dir": (own := request.own_dir) and str(Path(own).resolve()),
        "config_name": request.config_name,
        "files": files_digest(request),
        "multirun": asdict(found.multirun),
    }
    return Ledger.create(Path(found.multirun.dir), found.sweep, found.jobs, known, found.unfit)


class Engine:
    """State of a sweep in progress: jobs by the number of their seat, and how often it was interrupted.

    After the first Ctrl-C no job is started, the second ends the running ones.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs, self.sweep = runs, runs.ledger.sweep
        self.seats, self.running = seats(self.sweep.max_jobs_in_flight), dict[int, JobProcess]()
        self.waiting, self.interrupts = deque(runs.left), 0

    def run(self) -> bool:
        """Run all jobs; return False if interrupted. `WorldError` if the sweep's folder can't be written to."""
        ledger = self.runs.ledger
        before = {number: signal.signal(number, self.interrupt) for number in _INTERRUPTS}
        try:
            self.work()
        except EOFError as error:
            raise WorldError(
                ledger.folder,
                "that the process that forks the jobs has ended",
                "a process that lives as long as the sweep",
                f"resume with: {ledger.resume_command}",
            ) from error
        except (OSError, UnwritableError) as error:
            found, expected = str(error.__cause__ or error), "a folder that can be written to"
            remedy = f"free disk space, and resume with: {ledger.resume_command}"
            raise WorldError(ledger.folder, found, expected, remedy) from error
        finally:
            try:
                self.end()
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
        return not self.interrupts

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Count interrupts: Ctrl-C as one, SIGTERM as two."""
        self.interrupts += 2 if number == signal.SIGTERM else 1
        if self.interrupts == 1:
            say_of_sweep("interrupted: stopping after the running jobs; press Ctrl-C again to stop at once")

    def work(self) -> None:
        """Run jobs until none is left, or the sweep is interrupted."""
        sharing = max(seat.jobs for seat in self.seats)
        if self.waiting and sharing > 1:
            say_of_sweep(f"up to {sharing} jobs that use a GPU share it (sweep.max_jobs_in_flight)")
        while self.running or (self.waiting and not self.interrupts):
            while self.waiting and not self.interrupts and len(self.running) < len(self.seats):
                if not self.waiting[0].fills and any(job.run.fills for job in self.running.values()):
                    break  # what is compared starts when no cache is being filled
                run = self.waiting.popleft()
                if (folder := self.runs.start(run)) is not None:
                    number = min(set(range(len(self.seats))) - self.running.keys())
                    seat = self.seats[number]
                    Record(folder).update(jobs_on_gpu=seat.jobs)
                    self.running[number] = JobProcess(run, folder, started(folder, **seat.environment))
            self.runs.show([job.run for job in self.running.values()])
            for ended in self._wait() if self.running else []:
                ended.settle()
                self.runs.end(ended.run)
                if Record(ended.folder).summary.status == FAILED and self.sweep.on_error == "stop":
                    say_of_sweep("stopping after a failed job (sweep.on_error=stop)")
                    self.waiting.clear()
            for job in self.running.values():
                job.enforce(self.sweep.timeout_s, at_once=self.interrupts > 1)

    def end(self) -> None:
        """Terminate the jobs that are still running, and kill those that don't end."""
        left = [*self.running.values()]
        while self.running:
            for job in self.running.values():
                job.enforce(None, at_once=True)
            self._wait()
        for job in left:
            job.settle()

    def _wait(self) -> list[JobProcess]:
        """Return the jobs that have ended since the last call, after a wait for the first one."""
        sentinels = connection.wait([job.process.sentinel for job in self.running.values()], timeout=_POLL_S)
        ended = [number for number, job in self.running.items() if job.process.sentinel in sentinels]
        return [self.running.pop(number) for number in ended]
