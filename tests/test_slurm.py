"""Sweeps on a cluster with a real Slurm, which the module starts where it may."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from etlrun.sweep import slurm
from etlrun.system.errors import ConfigError, WorldError
from tests.runs import emulated, events_of, finish, start, summary_of
from tests.slurm import Cluster, cluster, said, wait_for
from tests.sweeps import QUICK, Sweep, results_of

pytestmark = pytest.mark.slow

ON_SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1")
TROUBLE = (
    "exit 3",
    "kill -9 $$",
    "scancel $SLURM_JOB_ID; sleep 60",
    "sleep 60",
    "$NO_REQUEUE; sbatch -p high -N 2 --exclusive -o /dev/null --wrap true; sleep 60",
    "$NO_REQUEUE; scontrol update nodename=$SLURMD_NODENAME state=down reason=lost; sleep 60",
)
"""What happens to the jobs of a sweep, one after the other, before they have done anything."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="hydra_submitit_launcher is not installed")
    with cluster(tmp_path_factory.mktemp("slurm")) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # otherwise it closes absl's handler, whose stream is pytest's
        yield found


def ends_of(folder: Path, *names: str) -> list[tuple[str, str]]:
    """Status and error of runs."""
    summaries = [summary_of(folder / name) for name in names]
    return [(summary["status"], summary["error"]) for summary in summaries]


@pytest.mark.usefixtures("nodes")
def test_each_end_of_a_job_is_a_row_with_its_reason(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm, "_ASK_S", 0.3)
    script, folder = tmp_path / "trouble", tmp_path / "sweep"
    cases = "\n".join(f"{number}) {case} ;;" for number, case in enumerate(TROUBLE, 1))
    script.write_text(
        'NO_REQUEUE="scontrol update jobid=$SLURM_JOB_ID requeue=0"\n'
        f"echo >> {script}.count\ncase $(wc -l < {script}.count) in\n{cases}\nesac\n"
    )
    settings = (f"hydra.launcher.setup=['source {script}']", "hydra.launcher.array_parallelism=1", "sweep.timeout_s=6")
    assert sweep(*ON_SLURM, *settings, "load.prefetch=0,1,2,3,4,5") == 1
    jobs = sorted(int(path.name) for path in (folder / ".submitit").iterdir() if path.is_dir())
    log = folder / ".submitit" / f"{jobs[0]}" / f"{jobs[0]}_0_log.err"
    killed = "the kernel kills processes that exhaust the memory; check its log"
    late = "found a job that takes more than 6 s; expected a job that ends within the limit"
    again = "    -> set sweep.retries, or resume the sweep"
    preempted, lost = "a node that no other job takes", "a node that works until the job has ended"
    assert ends_of(folder, *"012345") == [
        ("failed", f"the job's process: found exit status 3; expected a normal exit\n    -> see {log}"),
        ("failed", f"the job's process: found SIGKILL; expected a normal exit\n    -> {killed}"),
        ("interrupted", f"job {jobs[2]} in Slurm: found CANCELLED; expected a job that runs to its end"),
        ("failed", f"sweep.timeout_s: {late}\n    -> raise the limit, or give the job less to do"),
        ("failed", f"job {jobs[4]} in Slurm: found PREEMPTED; expected {preempted}\n{again}"),
        ("failed", f"job {jobs[5]} in Slurm: found NODE_FAIL; expected {lost}\n{again}"),
    ]
    assert [run["outcome"]["status"] for run in results_of(tmp_path)["runs"]].count("failed") == 5
    assert f"6/6 5 load.prefetch=5: failed: job {jobs[5]} in Slurm: found NODE_FAIL; " in capsys.readouterr().out


def test_jobs_outlive_the_process_of_their_sweep_and_are_taken_over(nodes: Cluster, tiny: Path, tmp_path: Path) -> None:
    """One is requeued meanwhile, and one is at work on a node that is lost."""
    folder = tmp_path / "sweep"
    words = emulated(tiny, *ON_SLURM, *QUICK[1:], "model.step_ms=300", "load.prefetch=0,1")
    process = start(["-m", *words, f"hydra.sweep.dir={folder}"], tmp_path)
    wait_for(lambda: process.poll() is not None or all(has_started(folder / name) for name in "01"))
    assert process.poll() is None, finish(process)
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    requeued, lost = (json.loads((folder / name / "slurm.json").read_text())["job"] for name in "01")
    said("scontrol", "requeue", requeued)
    said("scontrol", "update", f"jobid={lost}", "requeue=0")
    with nodes.without(said("squeue", "--noheader", f"--jobs={lost}", "--format=%N").strip()):
        status, out, err = finish(start(["-m", f"sweep.resume={folder}"], tmp_path))
    assert status == 0, err
    first = f"sweep     2 jobs of 2 configs, 2 to run, in {folder}"
    assert out.splitlines()[:2] == [first, "jobs of an earlier session go on: 0"]
    again = "a requeue, as after pre-emption or a failure of its node; expected a job that runs to its end"
    works = "a node that works until the job has ended\n    -> set sweep.retries, or resume the sweep"
    assert ends_of(folder / "attempts", "0-1", "1-1") == [
        ("interrupted", f"job {requeued} in Slurm: found {again}"),
        ("failed", f"job {lost} in Slurm: found NODE_FAIL; expected {works}"),
    ]
    assert [run["outcome"]["status"] for run in results_of(tmp_path)["runs"]] == ["completed"] * 2
    remark = "Slurm requeued this job once; what it had reached before is kept in attempts/."
    assert summary_of(folder / "0")["remarks"][0] == remark
    assert not list(folder.rglob("slurm.json"))
    (pid,) = (event["pid"] for event in events_of(folder / "attempts" / "1-1") if event["event"] == "started")
    assert not psutil.pid_exists(pid)


@pytest.mark.usefixtures("nodes")
def test_a_job_that_has_failed_is_submitted_again(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_ASK_S", 0.3)
    script = tmp_path / "trouble"
    script.write_text(f"echo >> {script}.count\n[ $(wc -l < {script}.count) -gt 1 ] || exit 3\n")
    words = (f"hydra.launcher.setup=['source {script}']", "sweep.retries=1", "load.prefetch=0")
    assert sweep(*ON_SLURM, *words) == 0
    ((failed, _),) = ends_of(tmp_path / "sweep" / "attempts", "0-1")
    assert (failed, summary_of(tmp_path / "sweep" / "0")["status"]) == ("failed", "completed")


@pytest.mark.usefixtures("nodes")
def test_ctrl_c_waits_for_the_running_jobs_and_a_second_one_cancels_them(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = emulated(tiny, *ON_SLURM, *QUICK[1:], "model.step_ms=60000", "load.prefetch=0,1,2,3,4")
    process = start(["-m", *words, f"hydra.sweep.dir={folder}"], tmp_path)
    wait_for(lambda: process.poll() is not None or has_started(folder / "0"))
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any("press Ctrl-C again to stop at once" in line for line in lines)
    os.killpg(process.pid, signal.SIGINT)
    status, _, err = finish(process)
    assert (status, err) == (130, f"etlrun: interrupted; resume with: etlrun -m sweep.resume={folder}\n")
    assert summary_of(folder / "0")["status"] == "interrupted"
    assert not said("squeue", "--noheader", "--states=RUNNING,PENDING").strip()


def has_started(folder: Path) -> bool:
    return (folder / "events.jsonl").exists() and "started" in {event["event"] for event in events_of(folder)}


@pytest.mark.usefixtures("nodes")
def test_what_slurm_refuses_is_said_before_a_job_runs(sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(WorldError) as caught:
        sweep(*ON_SLURM, "hydra.launcher.partition=none", "load.prefetch=0,1")
    assert str(caught.value).startswith("hydra.launcher: found settings or a state in which sbatch fails: ")
    assert "invalid partition specified: none" in str(caught.value)
    assert ends_of(tmp_path / "sweep", "0") == [("failed", str(caught.value))]
    assert not (tmp_path / "sweep" / "1").exists()


@pytest.mark.usefixtures("nodes")
def test_settings_that_would_be_ignored_are_refused(sweep: Sweep) -> None:
    ignored = ("hydra.launcher.nodes=2", "sweep.prune=true", "sweep.max_jobs_in_flight=2", "load.prefetch=0,1")
    with pytest.raises(ConfigError) as caught:
        sweep(*ON_SLURM, *ignored)
    own = ", since SlurmLauncher runs the jobs\n    -> use its own setting, or leave it out"
    one = ", since a job of a sweep is one process, which sweep.retries repeats\n    -> leave it out"
    assert [str(fault) for fault in caught.value.faults] == [
        f"sweep.prune: found true; expected false{own}",
        f"sweep.max_jobs_in_flight: found 2; expected 1{own}",
        f"hydra.launcher.nodes: found 2; expected 1{one}",
    ]
