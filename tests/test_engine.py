"""Sweeps in this process, so that all their jobs are forked from one server that has imported TensorFlow."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from etlrun.cache.store import Store
from etlrun.errors import ConfigError, WorldError
from etlrun.locks import held
from etlrun.multirun import multirun
from etlrun.sweep.ledger import Ledger
from tests.configs import plan_of
from tests.pictures import damaged, int_feature, with_feature
from tests.runs import emulated, summary_of

QUICK = ("model.step_ms=1", "model.eval_step_ms=1", "trainer.epochs=1", "dataset.eval_split=null")
Sweep = Callable[..., int]


@pytest.fixture
def sweep(tiny: Path, tmp_path: Path) -> Sweep:
    """Runs a sweep of small runs in `tmp_path / "sweep"`; gives its exit status."""

    def run(*overrides: str, base: Sequence[str] = QUICK) -> int:
        given = {word.split("=")[0] for word in overrides}
        words = [word for word in base if word.split("=")[0] not in given]
        return ended([*emulated(tiny, *words, *overrides), f"hydra.sweep.dir={tmp_path / 'sweep'}"])

    return run


def ended(words: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        multirun(["-m", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def results_of(tmp_path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((tmp_path / "sweep" / "results.json").read_text())
    return results


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
    assert "0 failed, attempt 2 follows\n" in capsys.readouterr().out
    assert [run["name"] for run in results_of(tmp_path)["runs"]] == ["0", "1"]


def test_a_job_has_its_time(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("model.step_ms=5000,1", "sweep.timeout_s=8") == 1
    assert summary_of(tmp_path / "sweep" / "0")["error"] == (
        "sweep.timeout_s: found a job of more than 8 s; expected its end before that\n"
        "    -> give it more time, or less to do"
    )
    assert [summary_of(tmp_path / "sweep" / name)["status"] for name in ("0", "1")] == ["failed", "completed"]


def test_jobs_at_a_time_are_said_to_share_the_machine(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("load.prefetch=0,1", "sweep.max_jobs_in_flight=2", "model.step_ms=20") == 0
    runs = [run["outcome"] for run in results_of(tmp_path)["runs"]]
    assert max(run["created_s"] for run in runs) < min(run["created_s"] + run["wall_s"] for run in runs)
    assert results_of(tmp_path)["remarks"] == [
        "up to 2 jobs ran at a time: their times hold each other's (sweep.max_jobs_in_flight)"
    ]


def test_what_can_not_win_is_left_out_with_the_reason(sweep: Sweep, tmp_path: Path) -> None:
    """Another prefetch buffer does not make the slow model of config 1 faster than config 0."""
    zipped = ("model.step_ms=1,100,100", "load.prefetch=2,2,3", "sweep.zip=[[model.step_ms,load.prefetch]]")
    assert sweep(*zipped, "sweep.prune=true") == 0
    folder = tmp_path / "sweep"
    assert [summary_of(folder / name)["status"] for name in "012"] == ["completed", "completed", "pruned"]
    reason = summary_of(folder / "2")["error"]
    assert reason.startswith("can't win: no pipeline makes run 1 faster than ")
    assert " examples/s; run 0 has " in reason
    assert not (folder / "2" / "events.jsonl").exists()
    assert [config["error"] for config in results_of(tmp_path)["configs"] if config["number"] == 2] == [reason]


def test_a_long_validation_hides_no_config_that_can_win(sweep: Sweep, tmp_path: Path) -> None:
    """The validation takes nearly all of a run's time, and the training of config 1 has no pictures to decode."""
    words = ("cache=none,memory", "model.step_ms=1", "model.eval_step_ms=100", "transform.num_parallel_calls=1")
    assert sweep(*words, "transform.resize.size=[400,400]", "sweep.prune=true", base=["trainer.epochs=3"]) == 0
    assert {run["outcome"]["status"] for run in results_of(tmp_path)["runs"]} == {"completed"}
    ceiling, best = results_of(tmp_path)["ceiling_examples_per_s"], results_of(tmp_path)["configs"][0]
    assert ceiling is None or ceiling > best["examples_per_s"]


def test_a_cold_cache_is_told_from_a_warm_one(sweep: Sweep, tmp_path: Path) -> None:
    """Two configs share a cache on disk: the first fills it in its first epoch, the second only reads it."""
    disk = ("cache=disk", f"cache.dir={tmp_path / 'caches'}", "load.prefetch=0,1")
    assert sweep(*disk, "trainer.epochs=3") == 0
    filled, read = (run["outcome"] for run in results_of(tmp_path)["runs"])
    assert (filled["state"], read["state"]) == ("warm", "warm")
    assert filled["first_examples_per_s"] == filled["epochs"][0]["examples_per_s"]
    assert read["first_examples_per_s"] is None
    later = sorted(epoch["examples_per_s"] for epoch in filled["epochs"][1:])
    assert filled["examples_per_s"] == pytest.approx(sum(later) / 2)
    assert results_of(tmp_path)["remarks"] == []


def test_a_run_that_went_without_its_cache_is_made_again(
    sweep: Sweep, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This process fills the cache, as far as the sweep can see."""
    from etlrun.training import keepers

    disk, folder = ("cache=none,disk", f"cache.dir={tmp_path / 'caches'}", "trainer.epochs=2"), tmp_path / "sweep"
    words = [word for word in emulated(tiny, *QUICK, *disk[1:]) if word != "trainer.epochs=1"]
    claim = Store(tmp_path / "caches").claim(keepers(plan_of(*words, "cache=disk"))["train"].key)
    assert claim is not None
    assert sweep(*disk) == 0
    claim.release()
    out = capsys.readouterr().out
    assert " examples/s without its cache, " in out
    assert "decision  Fastest: cache=none. " in out
    (said,) = results_of(tmp_path)["remarks"]
    assert said == (
        "runs 1 went without their cache on disk, since another process was filling it or it could not be written, as "
        f"the report.md of each says: they are compared with nothing, and made anew by etlrun -m sweep.resume={folder}"
    )
    assert said in out
    assert "this pass goes without it" in (folder / "1" / "report.md").read_text()
    assert not (folder / "1" / "hparams").exists()
    assert ended([f"sweep.resume={folder}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"sweep     2 jobs of 2 configs, 1 to run, in {folder}"
    assert results_of(tmp_path)["remarks"] == []
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
        "NOT the data of the baseline: its splits hold other records",
    }


def test_configs_that_mean_the_same_are_one(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("load.prefetch=0,0") == 0
    assert [run["name"] for run in results_of(tmp_path)["runs"]] == ["0"]


def test_a_sweep_grows_and_what_is_done_stays(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("load.prefetch=0,1") == 0
    before = (tmp_path / "sweep" / "0" / "events.jsonl").read_text()
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}", "load.prefetch=1,2", "sweep.on_error=stop"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0].startswith("config 2 is new: dataset=tfds ")
    assert captured.out.splitlines()[0] == f"sweep     3 jobs of 3 configs, 1 to run, in {tmp_path / 'sweep'}"
    assert (tmp_path / "sweep" / "0" / "events.jsonl").read_text() == before
    assert Ledger.open(tmp_path / "sweep").sweep.on_error == "stop"

    with pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={tmp_path / 'sweep'}", "load.batch_size=7"])
    assert str(caught.value).startswith(f"sweep.resume={tmp_path / 'sweep'}: found another sweep: dataset=tfds ")
    assert str(caught.value).endswith(
        "; expected one of which some job is on this command line\n"
        "    -> leave out all overrides but those of `sweep`, or start a new sweep without sweep.resume"
    )


def test_a_config_is_known_by_what_its_overrides_mean(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Overrides given anew go to the end of the command line, and all configs are others since the file was edited."""
    option = tmp_path / "mine" / "load" / "mine.yaml"
    option.parent.mkdir(parents=True)
    text = "# Mine.\ndefaults: [plain, _self_]\nprefetch: {}\n"
    option.write_text(text.format(3), encoding="utf-8")
    words = ["cache=none", "load=mine", "dataset.version=9.9.9", "--config-dir", str(tmp_path / "mine")]
    assert sweep(*words) == 1
    (before,) = results_of(tmp_path)["configs"]
    option.write_text(text.format(7), encoding="utf-8")
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}", "cache=none,memory"]) == 1
    words = [word for word in before["overrides"] if word != "cache=none"]
    assert capsys.readouterr().err.splitlines() == [
        "config 0 has changed since: load.prefetch 3 -> 7; the sweep goes on with its own",
        f"config 1 is new: {' '.join([*words, 'cache=memory'])}",
    ]
    after = {config["number"]: config["overrides"] for config in results_of(tmp_path)["configs"]}
    assert after == {0: before["overrides"], 1: [*words, "cache=memory"]}


def test_a_sweep_grows_by_the_rules_with_which_it_began(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ("sweep.zip=[[load.prefetch,load.shuffle_buffer]]", "sweep.exclude=['load.prefetch=0 cache=none']")
    zipped = ("load.prefetch=0,1", "load.shuffle_buffer=4,5")
    assert sweep(*zipped, "cache=none,memory", "dataset.version=9.9.9", *rules) == 1
    capsys.readouterr()
    more = ["load.prefetch=0,1,2", "load.shuffle_buffer=4,5,6"]
    assert ended([f"sweep.resume={tmp_path / 'sweep'}", *more]) == 1
    captured = capsys.readouterr()
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["config 3 is new", "config 4 is new"]
    assert captured.out.splitlines()[0] == f"sweep     5 jobs of 5 configs, 5 to run, in {tmp_path / 'sweep'}"


def test_a_sweep_is_one_process_and_its_folder_one_sweep(sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    assert sweep("load.prefetch=0,1") == 0
    with pytest.raises(WorldError) as caught:
        sweep("load.prefetch=0,1")
    assert str(caught.value) == (
        f"{folder}: found a sweep; expected a folder of its own for each sweep, so that nothing is lost\n"
        f"    -> go on with it: etlrun -m sweep.resume={folder}, or choose another hydra.sweep.dir"
    )
    with held(folder), pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={folder}"])
    assert str(caught.value) == (
        f"{folder}: found a sweep that another process runs now; expected one process for a sweep\n"
        "    -> wait for its end, or stop it"
    )


def test_settings_given_with_a_resume_stay(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    assert ended([f"++sweep.resume={tmp_path / 'sweep'}", "sweep.repeats=2", "sweep.on_error=stop"]) == 1
    capsys.readouterr()
    assert ended([f"sweep.resume={tmp_path / 'sweep'}"]) == 1
    assert capsys.readouterr().out.splitlines()[0].startswith("sweep     4 jobs of 2 configs, 4 to run, in ")
    settings = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["sweep"]
    assert (settings["repeats"], settings["on_error"], settings["resume"]) == (2, "stop", None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep.resume="], "sweep.resume: found nothing; expected the folder of a sweep, or null"),
        (
            ["load.prefetch=0,1", "sweep.prune=true", "sweep.max_jobs_in_flight=2"],
            (
                "sweep.prune: found true; expected false with sweep.max_jobs_in_flight=2, since what bounds a job "
                "beside others bounds no other\n    -> run one job at a time, or all of them"
            ),
        ),
        (
            ["load.prefetch=0,1", "--dry-run"],
            "--dry-run: found an option that no grid has; expected overrides KEY=VALUE, or Hydra's options",
        ),
    ],
)
def test_what_nobody_would_heed_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        multirun(["-m", *words])
    assert str(caught.value) == message


def test_the_rules_of_a_sweep_stay_as_they_were(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    with pytest.raises(ConfigError) as caught:
        multirun(["-m", f"sweep.resume={tmp_path / 'sweep'}", "sweep.exclude=['load.prefetch=1']"])
    assert str(caught.value) == (
        "sweep.exclude: found other rules; expected the rules with which the sweep began\n    -> leave it out"
    )


def refused_resume(folder: Path) -> str:
    """What is said of going on with the sweep in `folder`."""
    with pytest.raises(WorldError) as caught:
        multirun(["-m", f"sweep.resume={folder}"])
    return str(caught.value)


@pytest.mark.parametrize("damage", ["[]", "{}", "not JSON"])
def test_a_damaged_ledger_is_told(damage: str, sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    (folder / "sweep.json").write_text(damage)
    assert refused_resume(folder).startswith(f"{folder}: found no sweep (")


def test_a_ledger_that_lacks_what_was_asked_for_is_told(sweep: Sweep, tmp_path: Path) -> None:
    ledger = tmp_path / "sweep" / "sweep.json"
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    known = json.loads(ledger.read_text())
    del known["request"]["multirun"]
    ledger.write_text(json.dumps(known))
    refused = refused_resume(tmp_path / "sweep")
    assert refused.startswith(f"{tmp_path / 'sweep'}: found no sweep (KeyError: 'multirun'); expected")


def test_a_ledger_that_has_lost_configs_is_told(sweep: Sweep, tmp_path: Path) -> None:
    configs = tmp_path / "sweep" / "configs.jsonl"
    assert sweep("load.prefetch=0,1", "dataset.version=9.9.9") == 1
    configs.write_text(configs.read_text().splitlines()[0] + "\n")
    assert "configs.jsonl has 1 configs, sweep.json says 2" in refused_resume(tmp_path / "sweep")


def test_a_path_without_a_sweep_is_refused(tmp_path: Path) -> None:
    refused = refused_resume(tmp_path)
    missing = f"[Errno 2] No such file or directory: '{tmp_path / 'sweep.json'}'"
    assert refused == (
        f"{tmp_path}: found no sweep (FileNotFoundError: {missing}); expected the folder of a sweep, with its "
        "sweep.json and configs.jsonl\n"
        "    -> give the folder that the sweep printed, or start a new one without sweep.resume"
    )


def test_the_names_of_runs_are_the_ledgers(tiny: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        multirun(["-m", *emulated(tiny, "hydra.sweep.subdir=mine")])
    assert str(caught.value) == (
        "hydra.sweep.subdir: found mine; expected ${hydra.job.num}: a sweep names the folders of its runs\n"
        "    -> leave it as it is, and choose hydra.sweep.dir"
    )
