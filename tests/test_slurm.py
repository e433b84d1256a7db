"""Sweeps on a cluster with a real Slurm, which the module starts where it may, by Hydra's launcher for it."""

import ctypes
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etlrun.system.errors import ConfigError, WorldError
from tests.configs import raised
from tests.golden import Says
from tests.runs import emulated, events_of, finish, finish_well, start, summary_of, wait_for
from tests.slurm import cluster, said
from tests.sweeps import QUICK, Sweep, ended

pytestmark = [pytest.mark.slow, pytest.mark.needs("hydra-submitit-launcher")]

ON_SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1")
TROUBLE = """\
begun() {{ grep -ls started {runs}/*/events.jsonl | wc -l; }}
number=1; while ! mkdir {folder}/$number 2>/dev/null; do number=$((number + 1)); done
case $number in
1) exit 3 ;;
2) scancel $SLURM_JOB_ID; sleep 60 ;;
3) (while [ $(begun) -lt 1 ]; do sleep 0.1; done; touch {folder}/requeued; scontrol requeue $SLURM_JOB_ID) & ;;
4) while [ ! -e {folder}/requeued ]; do sleep 0.1; done
   (while [ $(begun) -lt 2 ]; do sleep 0.1; done; scancel --signal=USR2 $SLURM_JOB_ID) & ;;
esac
"""
"""What happens to the jobs: two are lost before they begin, one is requeued after that, and one is told that its time
is over."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[None]:
    with cluster(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # otherwise it closes absl's handler, whose stream is pytest's
        yield


@pytest.mark.usefixtures("nodes")
def test_a_job_that_is_lost_is_a_row_with_its_reason_and_runs_again(sweep: Sweep, tmp_path: Path) -> None:
    folder, numbers, trouble = tmp_path / "sweep", tmp_path / "numbers", tmp_path / "trouble"
    numbers.mkdir()
    trouble.write_text(TROUBLE.format(folder=numbers, runs=folder))
    words = (f"hydra.launcher.setup=['source {trouble}']", "hydra.launcher.timeout_min=5", "load.prefetch=0,1,2,3")
    assert sweep(*ON_SLURM, *words, "model.step_ms=1000") == 1
    end = "expected a job that runs to its end"
    expected = f"{end}\n    -> resume the sweep, which runs it again"
    late = f"Job not requeued because: timed-out too many times; {end}\n    -> raise hydra.launcher.timeout_min"
    second = "a second start of the job, as after pre-emption or a failure of its node"
    assert sorted((run["status"], re.sub(r"Job \d+ .* has", "Job has", run["error"])) for run in runs_in(folder)) == [
        ("failed", f"hydra/launcher: found Job has not produced any output (state: CANCELLED); {expected}"),
        ("failed", f"hydra/launcher: found Job has not produced any output (state: FAILED); {expected}"),
        ("failed", f"hydra/launcher: found {late}, and resume the sweep"),
        ("interrupted", f"hydra/launcher: found {second}; {expected}"),
    ]
    assert ended([f"sweep.resume={folder}", "sweep.on_error=continue"]) == 0
    assert [run["status"] for run in runs_in(folder)] == ["completed"] * 4
    assert len(list((folder / "attempts").iterdir())) == 4


def runs_in(folder: Path) -> list[dict[str, Any]]:
    return [summary_of(folder / name) for name in "0123"]


@pytest.mark.usefixtures("nodes")
def test_a_job_of_an_earlier_session_runs_nothing(tiny: Path, tmp_path: Path) -> None:
    """It waits in Slurm while its sweep is interrupted and resumed."""
    folder = tmp_path / "sweep"
    held = "+hydra.launcher.additional_parameters.hold=true"
    words = emulated(tiny, *ON_SLURM, *QUICK, held, "load.prefetch=0", f"hydra.sweep.dir={folder}")
    first = start(["-m", *words], tmp_path)
    wait_for(lambda: len(jobs_of(folder)) == 1)
    other = max(int(path.name) for path in Path(f"/proc/{first.pid}/task").iterdir())
    assert ctypes.CDLL(None).tgkill(first.pid, other, signal.SIGINT) == 0  # a system may choose any thread for Ctrl-C
    status, _, err = finish(first)
    assert (status, err) == (130, f"etlrun: interrupted; resume with: etlrun -m sweep.resume={folder}\n")
    (earlier,) = jobs_of(folder)
    second = start(["-m", f"sweep.resume={folder}"], tmp_path)
    wait_for(lambda: len(jobs_of(folder)) == 2)
    said("scontrol", "release", *jobs_of(folder))
    finish_well(second)
    wait_for(lambda: not said("squeue", "--noheader").strip())
    log = (folder / ".submitit" / earlier / f"{earlier}_0_log.err").read_text()
    assert f"etlrun: {folder / '0'} is no longer the folder of this job; nothing is run\n" in log
    assert [event["event"] for event in events_of(folder / "0")].count("started") == 1


def jobs_of(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".submitit/*") if path.name.isdigit()]


def test_a_cluster_that_does_not_say_how_jobs_end_is_refused(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    command = tmp_path / "sacct"
    command.write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    says(raised(WorldError, sweep, *ON_SLURM, "load.prefetch=0,1"))
    assert not (tmp_path / "sweep" / "0").exists()


def test_settings_that_would_be_ignored_are_refused(sweep: Sweep, says: Says) -> None:
    ignored = ("hydra.launcher.nodes=2", "sweep.max_jobs_in_flight=2", "load.prefetch=0,1")
    with pytest.raises(ConfigError) as caught:
        sweep(*ON_SLURM, *ignored)
    says([str(fault) for fault in caught.value.faults])
