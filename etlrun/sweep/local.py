"""Jobs of a sweep as processes on this machine, each with its GPU."""

from __future__ import annotations

import time
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from etlrun.record.locks import nobodys
from etlrun.record.record import Record
from etlrun.run import run as runs
from etlrun.sweep.gpus import seats
from etlrun.sweep.process import started


class LocalJobs:
    """Jobs on this machine; see `Jobs`."""

    def __init__(self, at_a_time: int) -> None:
        self.at_a_time = at_a_time
        self._seats = seats(at_a_time)
        self._taken: dict[int, LocalJob] = {}
        sharing = max(seat.jobs for seat in self._seats)
        self.note = f"up to {sharing} jobs that use a GPU share it (sweep.max_jobs_in_flight)" if sharing > 1 else ""

    def start(self, folder: Path) -> LocalJob:
        """Start the job frozen in `folder`."""
        number = min(set(range(len(self._seats))) - self._taken.keys())
        seat = self._seats[number]
        Record(folder).update(jobs_on_gpu=seat.jobs)
        self._taken[number] = LocalJob(folder, started(folder, **seat.environment))
        return self._taken[number]

    def going(self, folder: Path) -> None:
        """Return nothing: these jobs end with their sweep."""

    def ended(self, wait_s: float) -> list[LocalJob]:
        """Return the jobs that have ended."""
        sentinels = connection.wait([job.sentinel for job in self._taken.values()], timeout=wait_s)
        ended = [number for number, job in self._taken.items() if job.sentinel in sentinels]
        return [self._taken.pop(number) for number in ended]


class LocalJob:
    """Process of a job."""

    def __init__(self, folder: Path, process: BaseProcess) -> None:
        self.folder, self.sentinel = folder, process.sentinel
        self.terminate, self.kill, self._process = process.terminate, process.kill, process
        self._started_s = time.monotonic()

    @property
    def ran_s(self) -> float:
        """Seconds since the start of the process."""
        return time.monotonic() - self._started_s

    def settle(self) -> None:
        """Complete the summary of a process that was killed."""
        self._process.join()
        with nobodys(self.folder):  # the job may outlive the server's notice of its end by a moment
            status = self._process.exitcode
            runs.settle(self.folder, 0 if status is None else status)
