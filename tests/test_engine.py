"""What becomes of the jobs of a sweep, and of their runs."""

import json
import shutil
from pathlib import Path

import pytest

from etlrun.cache.store import Store
from etlrun.cli.multirun import multirun
from etlrun.record.record import held
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.runs import MARGIN
from etlrun.system.errors import ConfigError, WorldError
from tests.configs import plan_of
from tests.forked import Forked
from tests.pictures import damaged, int_feature, with_feature
from tests.runs import emulated, finish, summary_of
from tests.sweeps import QUICK, Sweep, ended, results_of


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


def test_a_failed_job_is_tried_again_and_what_it_left_is_kept(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("dataset.version=9.9.9,null", "sweep.retries=1") == 1
    assert [summary_of(tmp_path / "sweep" / name)["status"] for name in ("0", "1", "attempts/0-1")] == [
        "failed",
        "completed",
        "failed",
    ]
    assert "0 failed; retrying (attempt 2)\n" in capsys.readouterr().out
    assert [run["name"] for run in results_of(tmp_path)["runs"]] == ["0", "1"]


def test_a_job_has_its_time(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("model.step_ms=5000,1", "sweep.timeout_s=8") == 1
    assert summary_of(tmp_path / "sweep" / "0")["error"] == (
        "sweep.timeout_s: found a job that takes more than 8 s; expected a job that ends within the limit\n"
        "    -> raise the limit, or give the job less to do"
    )
    assert [summary_of(tmp_path / "sweep" / name)["status"] for name in ("0", "1")] == ["failed", "completed"]


def test_jobs_at_a_time_are_said_to_share_the_machine(sweep: Sweep, tmp_path: Path) -> None:
    finish(Forked(bool, tmp_path))  # the first job would run while the server imports TensorFlow for the second
    assert sweep("load.prefetch=0,1", "sweep.max_jobs_in_flight=2", "model.step_ms=20") == 0
    runs = [run["outcome"] for run in results_of(tmp_path)["runs"]]
    assert max(run["created_s"] for run in runs) < min(run["created_s"] + run["wall_s"] for run in runs)
    assert results_of(tmp_path)["remarks"] == [
        "up to 2 jobs ran at a time and competed for the machine (sweep.max_jobs_in_flight)"
    ]


def test_what_can_not_win_is_left_out_with_the_reason(sweep: Sweep, tmp_path: Path) -> None:
    """Another prefetch buffer does not make the slow model of config 1 faster than config 0."""
    zipped = ("model.step_ms=1,100,100", "load.prefetch=2,2,3", "sweep.zip=[[model.step_ms,load.prefetch]]")
    assert sweep(*zipped, "sweep.prune=true") == 0
    folder = tmp_path / "sweep"
    assert [summary_of(folder / name)["status"] for name in "012"] == ["completed", "completed", "pruned"]
    reason = summary_of(folder / "2")["error"]
    assert reason.startswith("can't win: with an ideal input pipeline run 1 reaches at most ")
    assert " examples/s; run 0 has " in reason
    assert not (folder / "2" / "events.jsonl").exists()
    assert [config["error"] for config in results_of(tmp_path)["configs"] if config["number"] == 2] == [reason]


def test_a_long_validation_hides_no_config_that_can_win(sweep: Sweep, tmp_path: Path) -> None:
    """The validation takes nearly all of a run's time, and the training of config 1 has no images to decode."""
    words = ("cache=none,memory", "model.step_ms=1", "model.eval_step_ms=100", "transform.num_parallel_calls=1")
    assert sweep(*words, "transform.resize.size=[400,400]", "sweep.prune=true", base=["trainer.epochs=3"]) == 0
    assert {run["outcome"]["status"] for run in results_of(tmp_path)["runs"]} == {"completed"}
    ceiling, best = results_of(tmp_path)["ceiling_examples_per_s"], results_of(tmp_path)["configs"][0]
    assert ceiling is None or MARGIN * ceiling >= best["examples_per_s"]


def test_a_run_that_went_without_its_cache_is_made_again(
    sweep: Sweep, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This process fills the cache, as far as the sweep can see."""
    from etlrun.run.keepers import keepers_for

    disk, folder = ("cache=none,disk", f"cache.dir={tmp_path / 'caches'}", "trainer.epochs=2"), tmp_path / "sweep"
    words = [word for word in emulated(tiny, *QUICK, *disk[1:]) if word != "trainer.epochs=1"]
    claim = Store(tmp_path / "caches").claim(keepers_for(plan_of(*words, "cache=disk"))["train"].key)
    assert claim is not None
    assert sweep(*disk) == 0
    claim.release()
    out = capsys.readouterr().out
    assert " examples/s without its cache, " in out
    assert "decision  Fastest: cache=none. " in out
    (said,) = results_of(tmp_path)["remarks"]
    assert said == (
        "runs 1 ran without their cache on disk, since another process was filling it, it had gone or could not be "
        "written (see the report.md of each), and are excluded from comparison; repeat them with: etlrun -m "
        f"sweep.resume={folder}"
    )
    assert said in out
    assert "this pass runs without it" in (folder / "1" / "report.md").read_text()
    assert not (folder / "1" / "hparams").exists()
    assert ended([f"sweep.resume={folder}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"sweep     3 jobs of 2 configs, 2 to run, in {folder}"
    assert [remark for remark in results_of(tmp_path)["remarks"] if not remark.startswith("over ")] == []
    assert {run["outcome"]["state"] for run in results_of(tmp_path)["runs"]} == {"warm"}


def test_other_records_are_not_the_data_of_the_baseline(sweep: Sweep, tiny: Path, tmp_path: Path) -> None:
    other, last = tmp_path / "other", tmp_path / "last"
    damaged(tiny, other, with_feature("label", int_feature(0)))
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


def test_a_sweep_is_one_process_and_its_folder_one_sweep(sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    assert sweep("load.prefetch=0,1") == 0
    with pytest.raises(WorldError) as caught:
        sweep("load.prefetch=0,1")
    assert str(caught.value) == (
        f"{folder}: found a sweep; expected a new folder for each sweep, so that nothing is overwritten\n"
        f"    -> resume it with: etlrun -m sweep.resume={folder}, or choose another hydra.sweep.dir"
    )
    with held(folder), pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={folder}"])
    assert str(caught.value) == (
        f"{folder}: found a sweep that another process is running; expected one process per sweep\n"
        "    -> wait for it to end, or stop it"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep.resume="], "sweep.resume: found nothing; expected the folder of a sweep, or null"),
        (
            ["load.prefetch=0,1", "sweep.prune=true", "sweep.max_jobs_in_flight=2"],
            (
                "sweep.prune: found true; expected false with sweep.max_jobs_in_flight=2, since a bound "
                "measured beside other jobs holds for no other job\n    -> run one job at a time, or don't prune"
            ),
        ),
        (
            ["load.prefetch=0,1", "--dry-run"],
            "--dry-run: found an unknown option; expected overrides KEY=VALUE, or options of etlrun --help",
        ),
    ],
)
def test_what_nobody_would_heed_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        multirun(["-m", *words])
    assert str(caught.value) == message


def test_the_names_of_runs_are_the_ledgers(tiny: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        multirun(["-m", *emulated(tiny, "hydra.sweep.subdir=mine")])
    assert str(caught.value) == (
        "hydra.sweep.subdir: found mine; expected ${hydra.job.num}: a sweep names the folders of its runs\n"
        "    -> leave it as it is, and choose hydra.sweep.dir"
    )
