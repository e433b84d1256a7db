"""Sweeps in processes of their own; what becomes of their jobs, and of their runs."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from etlrun.cache.store import CacheStore
from etlrun.cli.launch import multirun
from etlrun.config.request import Request
from etlrun.record.record import held
from etlrun.sweep.ledger import Ledger
from etlrun.system.errors import WorldError
from tests.configs import plan_of, raised
from tests.disks import fill, mounted
from tests.forked import Forked, forked
from tests.golden import Case, Golden, Says, cases
from tests.pictures import damaged, feature_of, with_feature
from tests.present import present
from tests.readers import ran
from tests.runs import emulated, events_of, finish, finish_well, small, start, summary_of, wait_for
from tests.sweeps import QUICK, Sweep, ended, results_of


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, int, str]:
    folder = tmp_path_factory.mktemp("sweep") / "sweep"
    words = [*emulated(tiny, "cache=none,memory", "dataset.version=null,9.9.9", *QUICK)]
    words.append(f"hydra.sweep.dir={folder}")
    return folder, *ran(["-m", *words], folder.parent)


def has_begun(folder: Path) -> Callable[[], bool]:
    """Whether a run's process is at work."""
    events = folder / "events.jsonl"
    return lambda: events.exists() and '"started"' in events.read_text()


def pid_of(folder: Path) -> int:
    pid: int = next(event["pid"] for event in events_of(folder) if event["event"] == "started")
    return pid


def is_at_work(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_job_that_fails_stops_no_other_and_each_has_a_process_a_line_and_its_output(
    swept: tuple[Path, int, str],
) -> None:
    folder, status, out = swept
    assert status == 1
    states = [summary_of(folder / str(job))["status"] for job in range(4)]
    assert states == ["completed", "failed", "completed", "failed"]
    assert len({pid_of(folder / str(job)) for job in (0, 2)}) == 2
    assert "epoch 1/1" in (folder / "0" / "output.txt").read_text()
    assert "dataset.version: found 9.9.9, which is not in " in (folder / "1" / "output.txt").read_text()
    lines = out.splitlines()
    assert lines[0] == f"sweep     4 jobs of 4 configs, 4 to run, in {folder}"
    assert lines[1].startswith("1/4 0 cache=none dataset.version=null: completed, ")

    assert lines[2].startswith("2/4 1 cache=none dataset.version=9.9.9: failed, ")


@pytest.mark.smoke
def test_the_table_has_a_row_a_config_best_first_and_stands_in_the_folder(swept: tuple[Path, int, str]) -> None:
    folder, _, out = swept
    lines = (folder / "report.md").read_text().splitlines()
    assert lines[0] == "# Sweep of 4 configs, 4 runs"
    assert lines[2].startswith("Fastest: cache=")
    head = next(number for number, line in enumerate(lines) if line.startswith("| config |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[head : head + 6]]
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    assert [row["status"] for row in table] == ["completed", "completed", "failed", "failed"]
    rates = [float(row["examples/s"].replace(",", "")) for row in table[:2]]
    assert rates == sorted(rates, reverse=True)
    assert table[2]["reason"].startswith("dataset.version: found 9.9.9, which is not in ")
    assert {(row["cache"], row["version"]) for row in table[:2]} == {("none", "null"), ("memory", "null")}
    printed = [line.split() for line in out.splitlines()]
    head = next(place for place, words in enumerate(printed) if words[:4] == ["config", "cache", "version", "status"])
    assert [words[0] for words in printed[head + 1 : head + 3]] == [row["config"] for row in table[:2]]
    assert out.endswith(f"report    {folder}/report.html\n")


def test_report_prints_the_table_again(swept: tuple[Path, int, str]) -> None:
    folder, _, out = swept
    status, again = ran(["report", str(folder)], folder.parent)
    assert status == 0
    assert again in out


def test_a_wrong_value_anywhere_in_the_grid_refuses_the_whole_sweep(tiny: Path, tmp_path: Path) -> None:
    words = [*small(tiny, "cache=none,memory", "load.prefetch=0,-1"), f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    status, err = ran(["-m", *words], tmp_path)
    assert status == 2
    assert err == "etlrun: 1 fault\n  load.prefetch: found -1; expected an integer from 0 to 1,000,000, or autotune\n"
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_a_killed_sweep_goes_on_with_the_configs_that_it_began_with(tiny: Path, tmp_path: Path) -> None:
    """Kill -9 while its second job runs, and edit the file of that job's config."""
    (tmp_path / "mine" / "load").mkdir(parents=True)
    option = tmp_path / "mine" / "load" / "mine.yaml"
    option.write_text("# Mine.\ndefaults: [shuffled, _self_]\nprefetch: 1\n", encoding="utf-8")
    folder = tmp_path / "sweep"
    words = [*emulated(tiny, "trainer.seed=0,1,2", "load=mine", *QUICK), "--config-dir", str(tmp_path / "mine")]
    process = forked(["-m", *words, f"hydra.sweep.dir={folder}"], tmp_path)
    wait_for(has_begun(folder / "1"), process)
    option.write_text("# Mine.\ndefaults: [shuffled, _self_]\nprefetch: 2\n", encoding="utf-8")
    os.kill(process.pid, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    kept = (folder / "0" / "events.jsonl").read_text()
    half = pid_of(folder / "1")
    out, err = finish_well(forked(["-m", f"sweep.resume={folder}"], tmp_path))
    assert out.splitlines()[0] == f"sweep     3 jobs of 3 configs, 2 to run, in {folder}"
    assert err.splitlines()[0] == (
        "etlrun: config files have changed since; the sweep keeps the configs that it began with"
    )
    assert (folder / "0" / "events.jsonl").read_text() == kept
    assert pid_of(folder / "attempts" / "1-1") == half
    assert not is_at_work(half)
    frozen = [(folder / str(job) / "config.yaml").read_text() for job in range(3)]
    assert all("\n  prefetch: 1\n" in text for text in frozen)
    assert [run["name"] for run in results_of(tmp_path)["runs"]] == ["0", "1", "2"]
    assert {run["outcome"]["status"] for run in results_of(tmp_path)["runs"]} == {"completed"}


@pytest.mark.slow
def test_ctrl_c_once_ends_after_the_running_job_and_twice_at_once(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = [
        *emulated(tiny, "load.prefetch=0,1,2", "model.step_ms=20", "trainer.epochs=2"),
        f"hydra.sweep.dir={folder}",
    ]
    process = forked(["-m", *words], tmp_path)
    wait_for(has_begun(folder / "0"), process)
    os.killpg(process.pid, signal.SIGINT)
    status, out, err = finish(process)
    assert status == 130
    assert "interrupted: stopping after the running jobs; press Ctrl-C again to stop at once" in out
    assert err == f"etlrun: interrupted; resume with: etlrun -m sweep.resume={folder}\n"
    assert summary_of(folder / "0")["status"] == "completed"
    assert not (folder / "1").exists()

    resumed = start(["-m", f"sweep.resume={folder}"], tmp_path)
    output = folder / "1" / "output.txt"
    wait_for(lambda: output.exists() and "epoch 1" in output.read_text(), resumed)
    os.killpg(resumed.pid, signal.SIGINT)
    assert resumed.stdout is not None
    while "stopping after the running jobs" not in resumed.stdout.readline():
        pass
    os.killpg(resumed.pid, signal.SIGINT)
    status, _, _ = finish(resumed)
    assert status == 130
    assert summary_of(folder / "1")["status"] == "interrupted"

    out, _ = finish_well(forked(["-m", f"sweep.resume={folder}"], tmp_path))
    assert out.splitlines()[0] == f"sweep     3 jobs of 3 configs, 2 to run, in {folder}"
    assert [summary_of(folder / str(job))["status"] for job in range(3)] == ["completed"] * 3


@pytest.mark.slow
def test_ctrl_c_is_heard_while_the_server_of_jobs_begins(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    process = forked(["-m", *emulated(tiny, "load.prefetch=0,1", *QUICK), f"hydra.sweep.dir={folder}"], tmp_path)
    wait_for((folder / "0" / "summary.json").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    status, _, err = finish(process)
    assert (status, err) == (130, f"etlrun: interrupted; resume with: etlrun -m sweep.resume={folder}\n")
    assert summary_of(folder / "0")["status"] == "completed"


OUT_OF_MEMORY = "the kernel kills processes that exhaust the memory; check its log"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "status", "state", "reason"),
    [
        ("group", 130, "interrupted", "The run was interrupted"),
        ("server", 1, "failed", "the job's process: found "),
        ("job", 1, "failed", f"the job's process: found SIGKILL; expected a normal exit\n    -> {OUT_OF_MEMORY}"),
    ],
)
def test_whatever_is_ended_leaves_no_process_and_a_row_that_says_so(
    victim: str, status: int, state: str, reason: str, tiny: Path, tmp_path: Path
) -> None:
    """The whole group of processes by SIGTERM, or the server that has forked the job or the job itself by SIGKILL."""
    folder = tmp_path / "sweep"
    words = [*emulated(tiny, "model.step_ms=50", "trainer.epochs=200", "trainer.seed=0,1"), f"hydra.sweep.dir={folder}"]
    process = forked(["-m", *words, "sweep.on_error=stop"], tmp_path)
    wait_for(has_begun(folder / "0"), process)
    job = pid_of(folder / "0")
    if victim == "group":
        os.killpg(process.pid, signal.SIGTERM)
    else:
        os.kill(job if victim == "job" else psutil.Process(job).ppid(), signal.SIGKILL)
    found, out, err = finish(process)
    assert (found, summary_of(folder / "0")["status"]) == (status, state)
    assert summary_of(folder / "0")["error"].startswith(reason)
    assert not is_at_work(job)
    assert not (folder / "1").exists()
    if victim == "group":
        assert err == f"etlrun: interrupted; resume with: etlrun -m sweep.resume={folder}\n"
    else:
        assert "stopping after a failed job (sweep.on_error=stop)" in out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    with mounted(tmp_path / "disk", "3M") as folder:
        yield folder


@pytest.mark.slow
def test_a_full_disk_in_the_middle_loses_nothing(small_disk: Path, tiny: Path, tmp_path: Path, says: Says) -> None:
    folder = small_disk / "sweep"
    words = [*emulated(tiny, "load.prefetch=0,1,2", "model.step_ms=30"), f"hydra.sweep.dir={folder}"]
    process = forked(["-m", *words], tmp_path)
    wait_for(has_begun(folder / "1"), process)
    filler = fill(small_disk)
    status, _, err = finish(process)
    assert status == 1
    says(err)
    kept = (folder / "0" / "summary.json").read_text()
    filler.unlink()
    out, _ = finish_well(forked(["-m", f"sweep.resume={folder}"], tmp_path))
    assert out.splitlines()[0] == f"sweep     3 jobs of 3 configs, 2 to run, in {folder}"
    assert (folder / "0" / "summary.json").read_text() == kept
    assert [run["outcome"]["status"] for run in results_of(small_disk)["runs"]] == ["completed"] * 3


FASTER = ("load.batch_size=2,8", "model.step_ms=100")
"""Two configs of which the second, with fewer steps, is the faster one."""


@pytest.mark.parametrize("case", cases("orders"))
def test_another_order_of_the_same_examples_is_said_where_none_is_left_out(
    case: Case, golden: Golden, sweep: Sweep, tmp_path: Path
) -> None:
    words = case["overrides"]
    zipped = ["sweep.zip=[[load.batch_size,trainer.learning_rate]]"] if len(words) > 2 else []
    assert sweep(*FASTER, *words, *zipped) == 0
    decision = results_of(tmp_path)["decision"]
    assert decision["config"] == 1
    golden(case, decision["same_data"])
    said = f"\n- data      {decision['same_data']}\n"
    assert said in (tmp_path / "sweep" / "report.md").read_text().replace("\\", "")


def test_settings_given_with_a_resume_stay(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    assert ended([f"++sweep.resume={tmp_path / 'sweep'}", "sweep.repeats=2", "sweep.on_error=stop"]) == 1
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}"]) == 1
    assert capsys.readouterr().out.splitlines()[0].startswith("sweep     4 jobs of 2 configs, 4 to run, in ")
    settings = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["sweep"]
    assert (settings["repeats"], settings["on_error"], settings["resume"]) == (2, "stop", None)


def test_repeats_come_in_shuffled_rounds_with_pairs_of_the_baseline(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("load.prefetch=0,1", "sweep.repeats=3", "sweep.seed=7") == 0
    results = results_of(tmp_path)
    created = {run["name"]: run["outcome"]["created_s"] for run in results["runs"]}
    order = sorted(created, key=lambda name: created[name])
    rounds = [set(order[start : start + 3]) for start in (0, 3, 6)]
    assert rounds == [{"0", "0.1", "1"}, {"0.2", "0.3", "1.1"}, {"0.4", "0.5", "1.2"}]
    assert order == [run.name for run in Ledger.open(tmp_path / "sweep").runs]
    assert results["noise"]["pairs"] == 3
    known = {config["number"]: config for config in results["configs"]}
    assert (known[1]["gain"]["rounds"], known[0]["gain"]["rounds"]) == (3, 3)
    assert known[1]["gain"]["call"] in {"better", "tied", "worse"}
    assert known[1]["gain"]["low"] <= known[1]["gain"]["ratio"] <= known[1]["gain"]["high"]
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["sweep"]["seed"] == 7


def test_a_job_has_its_time(sweep: Sweep, tmp_path: Path, says: Says) -> None:
    assert sweep("model.step_ms=5000,1", "sweep.timeout_s=8") == 1
    says(summary_of(tmp_path / "sweep" / "0")["error"])
    assert [summary_of(tmp_path / "sweep" / name)["status"] for name in ("0", "1")] == ["failed", "completed"]


def test_jobs_at_a_time_are_said_to_share_the_machine(sweep: Sweep, tmp_path: Path, says: Says) -> None:
    finish(Forked(bool, tmp_path))  # the first job would run while the server imports TensorFlow for the second
    assert sweep("load.prefetch=0,1", "sweep.max_jobs_in_flight=2", "model.step_ms=20") == 0
    runs = [run["outcome"] for run in results_of(tmp_path)["runs"]]
    assert max(run["created_s"] for run in runs) < min(run["created_s"] + run["wall_s"] for run in runs)
    says(results_of(tmp_path)["remarks"])


def test_a_run_that_went_without_its_cache_is_made_again(
    sweep: Sweep, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    """This process fills the cache, as far as the sweep can see."""
    from etlrun.run.readings import keepers_for

    disk, folder = ("cache=none,disk", f"cache.dir={tmp_path / 'caches'}", "trainer.epochs=2"), tmp_path / "sweep"
    words = [word for word in emulated(tiny, *QUICK, *disk[1:]) if word != "trainer.epochs=1"]
    claim = present(CacheStore(tmp_path / "caches").claim(keepers_for(plan_of(*words, "cache=disk"))["train"].key))
    assert sweep(*disk) == 0
    claim.release()
    out = capsys.readouterr().out
    assert " examples/s without its cache, " in out
    assert "decision  Fastest: cache=none. " in out
    (said,) = results_of(tmp_path)["remarks"]
    says(said)
    assert said in out
    assert "this pass runs without it" in (folder / "1" / "report.md").read_text()
    assert ended([f"sweep.resume={folder}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"sweep     3 jobs of 2 configs, 2 to run, in {folder}"
    assert results_of(tmp_path)["remarks"] == []
    assert {run["outcome"]["state"] for run in results_of(tmp_path)["runs"]} == {"warm"}


def test_other_records_are_not_the_data_of_the_baseline(sweep: Sweep, tiny: Path, tmp_path: Path) -> None:
    other, last = tmp_path / "other", tmp_path / "last"
    damaged(tiny, other, with_feature("label", feature_of(0)))
    shutil.copytree(other, last)
    assert sweep(f"dataset.data_dir={tiny},{other},{last}", "cache=none") == 0
    found = {config["number"]: config for config in results_of(tmp_path)["configs"]}
    assert [found[number]["data"] for number in range(3)] == ["", "other records", "other records"]
    assert found[1]["records"] == found[2]["records"] != found[0]["records"]
    assert len({config["fingerprint"] for config in found.values()}) == 1
    assert results_of(tmp_path)["decision"]["same_data"] in {
        "it is the baseline",
        "NOT the same data as the baseline: its splits hold other records",
    }


def test_configs_that_mean_the_same_are_one(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("load.prefetch=0,0") == 0
    assert [run["name"] for run in results_of(tmp_path)["runs"]] == ["0"]


def test_a_sweep_is_one_process_and_its_folder_one_sweep(sweep: Sweep, tmp_path: Path, says: Says) -> None:
    folder = tmp_path / "sweep"
    assert sweep("load.prefetch=0,1") == 0
    says(raised(WorldError, sweep, "load.prefetch=0,1"))
    with held(folder), pytest.raises(WorldError) as caught:
        multirun(Request.of(["-m", f"sweep.resume={folder}"]))
    says(str(caught.value))
