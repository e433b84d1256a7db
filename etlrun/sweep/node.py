"""Job of a sweep on a node of a cluster, and its claim on the folder of its run.

The claim is a file in that folder, on storage that the login node and the nodes share. Whoever starts a job, or takes a
run from one, writes or removes the claim; a job whose claim is gone ends by itself, also on a node that Slurm can't
reach.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from etlrun.record import record as records
from etlrun.record.locks import CLAIM
from etlrun.record.record import Record
from etlrun.record.summary import INTERRUPTED
from etlrun.run import run as runs
from etlrun.sweep.attempts import put_aside
from etlrun.sweep.process import run_into
from etlrun.system import errors
from etlrun.system.errors import Fault
from etlrun.system.files import write_atomically

_CHECK_S = 2.0
"""Interval of the checks that the claim is still there."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Claim of a job on the folder of its run.

    Attributes:
        job: Number of the job in Slurm; None until it has been submitted.
        restarts: Number of times that Slurm has requeued the job.
    """

    job: str | None = None
    restarts: int = 0

    @classmethod
    def of(cls, folder: Path) -> Claim | None:
        """Read the claim on `folder`; None without one."""
        try:
            return cls(**json.loads((folder / CLAIM).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def write(self, folder: Path) -> None:
        """Claim `folder`."""
        write_atomically(folder / CLAIM, json.dumps(asdict(self)) + "\n")


def release(folder: Path) -> None:
    """Remove the claim on `folder`: the job that has it ends."""
    (folder / CLAIM).unlink(missing_ok=True)


def work(name: str) -> None:
    """Run the job frozen in the folder `name`, and end the process with its exit status.

    A job that Slurm has requeued starts anew; what it had reached is kept among the attempts.
    """
    folder = Path(name)
    number = os.environ["SLURM_JOB_ID"]
    mine, found = Claim(job=number, restarts=int(os.environ.get("SLURM_RESTART_COUNT", "0"))), Claim.of(folder)
    if found is None or found.job not in {None, number}:
        print(f"etlrun: {folder} is no longer the folder of job {number}; nothing is run", file=sys.stderr)
        return
    mine.write(folder)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # by which submitit would requeue the job before its time limit
    if mine.restarts and (folder / records.EVENTS).exists():
        _start_anew(folder, mine)
    has_ended = threading.Event()
    threading.Thread(target=_end_with_claim, args=(folder, mine, has_ended.wait), daemon=True).start()
    status = run_into(folder)
    has_ended.set()
    if status != errors.INTERRUPTED:  # which may be followed by a requeue
        release(folder)
    sys.exit(status)


def _start_anew(folder: Path, claim: Claim) -> None:
    """Keep what an earlier start of this job has left as an attempt, and create the run again."""
    before, config = Record(folder).summary, records.read_config(folder)
    fault = Fault(
        where=f"job {claim.job} in Slurm",
        found="a requeue, as after pre-emption or a failure of its node",
        expected="a job that runs to its end",
    )
    runs.close(folder, INTERRUPTED, fault)
    details = {"in_flight": before.in_flight, "sitting_s": before.sitting_s, "config_dir": before.config_dir}
    new = folder.with_name(f".{os.getpid()}.{folder.name}")
    record = Record.create(new, config, before.overrides, **details)
    times = "once" if claim.restarts == 1 else f"{claim.restarts} times"
    record.remark(f"Slurm requeued this job {times}; what it had reached before is kept in attempts/.")
    claim.write(new)
    put_aside(folder, folder.parent)
    new.rename(folder)


def _end_with_claim(folder: Path, claim: Claim, has_ended: Callable[[float], bool]) -> None:
    """End this process once the folder is claimed by another job, or by none."""
    while not has_ended(_CHECK_S):
        try:
            if Claim.of(folder) != claim:
                os.kill(os.getpid(), signal.SIGKILL)
        except (OSError, ValueError):  # storage that doesn't answer says nothing
            continue
