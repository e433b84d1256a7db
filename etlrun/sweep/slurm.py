"""Jobs of a sweep on a cluster, submitted to Slurm by submitit with the settings of `hydra/launcher=submitit_slurm`.

Slurm alone knows whether a job lives: the sweep asks for all of its jobs at once, and writes into the folder of a run
before the job has been submitted and after it has ended, the job in between.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etlrun.record import summary as statuses
from etlrun.record.locks import CLAIM, nobodys
from etlrun.record.summary import read_summary
from etlrun.run import run as runs
from etlrun.sweep.node import Claim, release, work
from etlrun.system.errors import Fault, WorldError, one_line

_ASK_S, _ASK_SOON_S = 5.0, 1.0
"""Interval of the requests to Slurm's controller, and the one after a job has left its claim."""
_SHARED = {
    "timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name", "stderr_to_stdout",
}  # fmt: skip
"""Settings of the launcher that submitit has for each kind of cluster; it names the others `slurm_...`."""
_ANOTHER_NODE = "set sweep.retries, or resume the sweep"
_REASONS = {
    "TIMEOUT": ("a job within its time", "raise hydra.launcher.timeout_min, or give the job less to do"),
    "DEADLINE": ("a job that ends before its deadline", "give the job less to do, or a later deadline"),
    "OUT_OF_MEMORY": ("a job within its memory", "raise hydra.launcher.mem_gb, or give the job less to do"),
    "NODE_FAIL": ("a node that works until the job has ended", _ANOTHER_NODE),
    "BOOT_FAIL": ("a node that starts", _ANOTHER_NODE),
    "PREEMPTED": ("a node that no other job takes", _ANOTHER_NODE),
}
"""What was expected of a job that Slurm has ended in a state, and a remedy."""
_CANCELLED = "CANCELLED"
_ENDED = {"COMPLETED", "FAILED", _CANCELLED, *_REASONS}
_SIGNALLED = 128
"""Exit statuses above are those of shells for signals."""


@dataclass(frozen=True, kw_only=True)
class _State:
    """State of a job in Slurm.

    Attributes:
        name: Name of the state, such as `PENDING`.
        status: Exit status, negative for a signal.
    """

    name: str
    status: int


class SlurmJobs:
    """Jobs on a cluster; see `Jobs`."""

    note = ""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Prepare submissions with the settings of Hydra's launcher; `WorldError` where there is no Slurm."""
        self.at_a_time: int = settings["array_parallelism"]
        self._logs = Path(settings["submitit_folder"]).absolute()
        self._executor = _executor(self._logs, settings)
        self._running: list[SlurmJob] = []
        self._asked_s = 0.0
        self._has_submitted = False

    def start(self, folder: Path) -> SlurmJob:
        """Submit the job frozen in `folder`.

        Raises:
            WorldError: Slurm refuses the first job. A later one that it refuses has failed.
        """
        Claim().write(folder)
        try:
            number = self._executor.submit(work, str(folder.absolute())).job_id
        except Exception as error:
            fault = _refused(error)
            if not self._has_submitted:
                release(folder)
                runs.close(folder, statuses.FAILED, fault)
                raise WorldError(
                    where=fault.where, found=fault.found, expected=fault.expected, remedy=fault.remedy
                ) from error
            return self._followed(SlurmJob(folder, "", self._logs, fault))
        self._has_submitted = True
        Claim(job=number).write(folder)
        return self._followed(SlurmJob(folder, number, self._logs))

    def going(self, folder: Path) -> SlurmJob | None:
        """Return the job that has the claim on `folder` and lives, or has completed since; settle one that is lost."""
        claim = Claim.of(folder)
        if claim is None or claim.job is None:
            return None
        states = _states()
        while states is None:
            time.sleep(_ASK_S)
            states = _states()
        job = SlurmJob(folder, claim.job, self._logs)
        job.note(states)
        summary = read_summary(folder)
        if job.has_ended and (summary is None or summary.status != statuses.COMPLETED):
            job.settle()
            return None
        return self._followed(job)

    def ended(self, wait_s: float) -> list[SlurmJob]:
        """Return the jobs that Slurm says have ended."""
        time.sleep(wait_s)
        has_left = any(not (job.folder / CLAIM).exists() for job in self._running)
        if time.monotonic() - self._asked_s > (_ASK_SOON_S if has_left else _ASK_S):
            self._asked_s = time.monotonic()
            states = _states()
            for job in self._running if states is not None else ():
                job.note(states or {})
        ended = [job for job in self._running if job.has_ended]
        self._running = [job for job in self._running if not job.has_ended]
        return ended

    def _followed(self, job: SlurmJob) -> SlurmJob:
        self._running.append(job)
        return job


class SlurmJob:
    """Job in Slurm.

    Attributes:
        folder: Folder of its run.
        has_ended: Whether it has ended, or was refused.
    """

    def __init__(self, folder: Path, number: str, logs: Path, refusal: Fault | None = None) -> None:
        self.folder, self._number, self._refusal = folder, number, refusal
        self._log = Path(str(logs).replace("%j", number)) / f"{number}_0_log.err"
        self.has_ended = refusal is not None
        self._state: _State | None = None
        self._started_s: float | None = None

    @property
    def ran_s(self) -> float:
        """Seconds since Slurm first said that the job runs."""
        return 0.0 if self._started_s is None else time.monotonic() - self._started_s

    def note(self, states: Mapping[str, _State]) -> None:
        """Take the state of the job from those of all jobs; Slurm soon forgets one that has ended."""
        self._state = states.get(self._number)
        self.has_ended = self.has_ended or self._state is None or self._state.name in _ENDED
        if self._state is not None and self._state.name == "PENDING":
            self._started_s = None
        elif self._started_s is None:
            self._started_s = time.monotonic()

    def terminate(self) -> None:
        """Cancel the job: Slurm terminates it, and kills it after its own grace period (`KillWait`)."""
        if self._number:
            subprocess.run(["scancel", self._number], capture_output=True, check=False)  # noqa: S607

    kill = terminate

    def settle(self) -> None:
        """Complete the summary with the reason that Slurm has for the end of the job."""
        release(self.folder)
        with nobodys(self.folder):
            summary = read_summary(self.folder)
            if summary is not None and summary.status in {statuses.RUNNING, statuses.INTERRUPTED}:
                self._close()

    def _close(self) -> None:
        state = self._state.name if self._state is not None else ""
        where = f"job {self._number} in Slurm"
        if self._refusal is not None:
            runs.close(self.folder, statuses.FAILED, self._refusal)
        elif state in _REASONS:
            expected, remedy = _REASONS[state]
            fault = Fault(where=where, found=state, expected=expected, remedy=remedy)
            runs.close(self.folder, statuses.FAILED, fault)
        elif state == _CANCELLED:
            fault = Fault(where=where, found=state, expected="a job that runs to its end")
            runs.close(self.folder, statuses.INTERRUPTED, fault)
        elif self._state is not None:
            runs.settle(self.folder, self._state.status, f"see {self._log}")
        else:
            fault = Fault(where=where, found="an end that Slurm no longer knows", expected="a job that runs to its end")
            runs.close(self.folder, statuses.FAILED, fault)


def _executor(logs: Path, settings: Mapping[str, Any]) -> Any:
    """Return submitit's executor with the settings of Hydra's launcher."""
    import submitit

    try:
        executor = submitit.AutoExecutor(folder=logs, cluster="slurm")
    except RuntimeError as error:
        raise WorldError(
            where="hydra/launcher",
            found="no command srun on this machine",
            expected="a login node of a cluster with Slurm",
            remedy="start the sweep there, or leave hydra/launcher out",
        ) from error
    left_out = {"_target_", "submitit_folder", "max_num_timeout"}
    known = {name: value for name, value in settings.items() if name not in left_out and value is not None}
    executor.update_parameters(**{name if name in _SHARED else f"slurm_{name}": value for name, value in known.items()})
    return executor


def _refused(error: Exception) -> Fault:
    return Fault(
        where="hydra.launcher",
        found=f"settings or a state in which sbatch fails: {one_line(error)}",
        expected="jobs that Slurm accepts",
        remedy="correct the settings of hydra.launcher, and resume the sweep",
    )


def _states() -> dict[str, _State] | None:
    """Return the states of all jobs of this user that Slurm knows by their numbers; None if it doesn't answer."""
    fields = "--Format=JobID:24,State:24,exit_code:24"
    command = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", fields]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return None
    rows = (line.split() for line in answer.stdout.splitlines())
    return {number: _State(name=name, status=_status(int(code))) for number, name, code in rows}


def _status(code: int) -> int:
    """Return the exit status of a process, negative for a signal, also where a shell has turned it into a status."""
    status = os.waitstatus_to_exitcode(code)
    return _SIGNALLED - status if status > _SIGNALLED else status
