import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import etlrun
from etlrun.config.request import Request
from etlrun.sources.base import open_source
from etlrun.system.errors import ConfigError, WorldError
from tests.configs import spec_of
from tests.forked import forked
from tests.pictures import damaged, int_feature, with_feature
from tests.runs import are_equal, emulated, events_of, finish, run_here, small, summary_of, variables_of

NO_SIGNAL = 0
LONG = ("trainer.epochs=5", "model.batch_norm_momentum=0.9")


def kill_after_epoch(process: Any, folder: Path, epoch: int, with_signal: int) -> None:
    """Send a signal as soon as the checkpoint of `epoch` is there."""
    events = folder / "events.jsonl"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if events.exists() and f'"epoch": {epoch}, "path"' in events.read_text():
            os.killpg(process.pid, with_signal)
            return
        time.sleep(0.005)
    pytest.fail(f"there is no checkpoint of epoch {epoch}: {process.communicate()}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    status, _ = run_here(folder, small(tiny, *LONG))
    assert status == 0
    return folder


def measures(folder: Path) -> list[list[float]]:
    return [[epoch[key] for key in ("loss", "val_loss", "examples")] for epoch in summary_of(folder)["epochs"]]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [None, 3])
def test_a_killed_run_goes_on_and_ends_as_if_undisturbed(
    steps: int | None, undisturbed: Path, tiny: Path, tmp_path: Path
) -> None:
    words = small(tiny, *LONG)
    if steps is not None:
        words.append(f"trainer.steps_per_epoch={steps}")
        undisturbed = tmp_path / "undisturbed"
        run_here(undisturbed, words)
    killed, resumed = tmp_path / "killed", tmp_path / "resumed"
    process = forked([*words, f"hydra.run.dir={killed}"], tmp_path)
    kill_after_epoch(process, killed, 2, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    assert summary_of(killed)["status"] == "running"
    newest = max((killed / "checkpoints").glob("epoch_*.keras"))
    done = int(newest.stem.removeprefix("epoch_"))
    assert 2 <= done < 5

    process = forked([f"trainer.resume={killed}", f"hydra.run.dir={resumed}"], tmp_path)
    status, _, err = finish(process)
    assert status == 0, err
    begun = [event["epoch"] for event in events_of(resumed) if event["event"] == "epoch_began"]
    assert begun == list(range(done + 1, 6))
    assert measures(resumed) == measures(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))
    assert summary_of(resumed)["resumed_from"] == str(killed)


@pytest.mark.slow
def test_ctrl_c_leaves_a_summary_and_says_how_to_go_on_but_not_before(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = small(tiny, "trainer.epochs=1000")
    process = forked([*words, f"hydra.run.dir={folder}"], tmp_path)
    kill_after_epoch(process, folder, 1, NO_SIGNAL)
    _, summary = run_here(tmp_path / "other", [*words, f"trainer.resume={folder}"])
    os.killpg(process.pid, signal.SIGINT)
    assert summary["error"] == (
        f"trainer.resume={folder}: found a run that is still running; expected a run that has ended\n"
        "    -> wait for it to end, or stop it"
    )
    status, _, err = finish(process)
    assert status == 130
    summary = summary_of(folder)
    assert summary["status"] == "interrupted"
    assert len(summary["epochs"]) >= 1
    assert err.endswith(f"etlrun: interrupted; resume with: etlrun trainer.resume={folder}\n")
    assert (folder / "report.md").exists()


def test_a_finished_run_can_be_trained_for_longer(undisturbed: Path, tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, *LONG, f"trainer.resume={undisturbed}", "trainer.epochs=6")
    status, summary = run_here(tmp_path, words)
    assert status == 0
    assert [epoch["epoch"] for epoch in summary["epochs"]] == list(range(1, 7))
    assert summary["examples"] == 6 * 38


def test_the_model_is_a_copy_of_the_last_checkpoint(run: Path) -> None:
    assert (run / "model.keras").read_bytes() == max((run / "checkpoints").glob("epoch_*.keras")).read_bytes()


def test_another_config_is_refused_with_every_difference(undisturbed: Path, tiny: Path, tmp_path: Path) -> None:
    changed = ("load.batch_size=4", "trainer.learning_rate=0.5", "cache=none", f"trainer.resume={undisturbed}")
    status, summary = run_here(tmp_path, small(tiny, *LONG, *changed))
    assert status == 2
    remedy = "    -> resume with the same values, or start a new run without trainer.resume"
    assert summary["error"].splitlines() == [
        f"eval/load.batch.batch_size: found 4; expected 8, as in {undisturbed}",
        remedy,
        f"train/load.batch.batch_size: found 4; expected 8, as in {undisturbed}",
        remedy,
        f"trainer.learning_rate: found 0.5; expected 0.001, as in {undisturbed}",
        remedy,
    ]


def test_a_resume_that_is_refused_leaves_the_folder_to_the_mended_command(
    undisturbed: Path, tiny: Path, tmp_path: Path
) -> None:
    words = small(tiny, *LONG, "trainer.learning_rate=0.5", f"trainer.resume={undisturbed}")
    message = (
        f"trainer.learning_rate: found 0.5; expected 0.001, as in {undisturbed}\n"
        "    -> resume with the same values, or start a new run without trainer.resume"
    )
    answer = finish(forked([*words, "hydra.run.dir=run"], tmp_path))
    assert answer == (2, "", f"etlrun: 1 fault\n  {message}\n")
    with pytest.raises(ConfigError) as caught:
        etlrun.plan(*words).fit(tmp_path / "run")
    assert str(caught.value) == message
    assert not [*tmp_path.iterdir()]


def test_another_library_that_decodes_is_named_before_the_stages_that_differ_by_it(
    undisturbed: Path, tiny: Path, tmp_path: Path
) -> None:
    now, then = "tensorflow", "turbo"
    words = (f"transform.decode.library={now}", f"trainer.resume={undisturbed}")
    status, summary = run_here(tmp_path, small(tiny, *LONG, *words))
    assert status == 2
    assert summary["error"].splitlines()[:2] == [
        f"transform.decode.library: found {now}; expected {then}, as in {undisturbed}",
        f"    -> set transform.decode.library={then}, or start a new run without trainer.resume",
    ]


def test_a_folder_without_a_checkpoint_is_refused(tiny: Path, tmp_path: Path) -> None:
    status, summary = run_here(tmp_path / "run", small(tiny, f"trainer.resume={tmp_path / 'none'}"))
    assert status == 1
    assert summary["error"] == (
        f"trainer.resume={tmp_path / 'none'}: found no run; "
        "expected the folder of a run with a checkpoint, as after each epoch\n"
        "    -> start a new run without trainer.resume"
    )


def test_the_overrides_of_the_resumed_run_come_first(undisturbed: Path) -> None:
    words = ["cache=none", f"trainer.resume={undisturbed}", "trainer.epochs=12"]
    merged = Request(overrides=words).resuming().overrides
    assert merged[-3:] == words
    assert "model.trainable=false" in merged
    assert "trainer.epochs=5" not in merged


def test_a_plus_before_the_option_is_no_reason_to_take_nothing_over(undisturbed: Path) -> None:
    merged = Request(overrides=[f"++trainer.resume={undisturbed}"]).resuming().overrides
    assert merged[-1] == f"++trainer.resume={undisturbed}"
    assert "model.trainable=false" in merged


def test_a_run_of_ones_own_configs_is_resumed_wherever_options_stand(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "load").mkdir(parents=True)
    text = "shuffle_buffer: 0\nbatch_size: 16\ndrop_remainder: false\nprefetch: 0\n"
    (tmp_path / "mine" / "load" / "mine.yaml").write_text(text)
    first = ["load=mine", "--config-dir", "mine", *emulated(tiny, "trainer.epochs=1"), "hydra.run.dir=first"]
    first = [word for word in first if not word.startswith("load.")]
    again = ["trainer.resume=first", "trainer.epochs=2", "hydra.run.dir=again"]
    for words in (first, again):
        status, _, err = finish(forked(words, tmp_path))
        assert status == 0, err
    summary = summary_of(tmp_path / "again")
    assert (summary["status"], len(summary["epochs"])) == ("completed", 2)
    assert "batch_size: 16" in (tmp_path / "again" / "config.yaml").read_text()


def test_without_resume_nothing_is_added() -> None:
    assert Request(overrides=["cache=none"]).resuming().overrides == ["cache=none"]


def test_a_run_never_overwrites_a_run(undisturbed: Path, tiny: Path) -> None:
    before = summary_of(undisturbed)
    with pytest.raises(WorldError) as caught:
        run_here(undisturbed, small(tiny, *LONG))
    assert str(caught.value) == (
        f"{undisturbed}: found a run; expected a new folder for each run, so that nothing is overwritten\n"
        "    -> choose another hydra.run.dir or hydra.sweep.dir, or remove the folder"
    )
    assert summary_of(undisturbed) == before


def test_fewer_epochs_than_are_done_are_refused_and_as_many_noted(
    undisturbed: Path, tiny: Path, tmp_path: Path
) -> None:
    status, summary = run_here(tmp_path, small(tiny, *LONG, f"trainer.resume={undisturbed}", "trainer.epochs=2"))
    assert status == 1
    assert summary["error"] == (
        f"trainer.epochs: found 2; expected at least 5, the epochs that {undisturbed} has completed\n"
        "    -> set trainer.epochs=5 or more"
    )
    status, summary = run_here(tmp_path / "same", small(tiny, *LONG, f"trainer.resume={undisturbed}"))
    assert status == 0
    note = f"{undisturbed} has completed all of its epochs (5), and no further one is trained: for more, set"
    assert summary["remarks"] == [f"{note} trainer.epochs=6 or more."]


def test_other_records_are_refused_and_unknown_ones_noted(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "trainer.epochs=1", "model.step_ms=0", "model.eval_step_ms=0")
    first, other = tmp_path / "first", tmp_path / "other"
    assert run_here(first, words)[0] == 0
    then = summary_of(first)["dataset"]["digest"]
    assert {len(digest) for digest in then.values()} == {16}
    damaged(tiny, other, with_feature("label", int_feature(0)))  # in the second shard: of the training split alone
    on = [word for word in words if not word.startswith(("dataset.data_dir", "trainer.epochs"))]
    on += ["trainer.epochs=2", f"trainer.resume={first}"]
    status, summary = run_here(tmp_path / "refused", [*on, f"dataset.data_dir={other}"])
    assert status == 1
    now = open_source(spec_of(*on, f"dataset.data_dir={other}").dataset).split("train[:80%]", "").content.digest
    assert now != then["train"]
    assert summary["error"] == (
        f"dataset.split: found records of digest {now}; expected records of digest {then['train']}, which {first} "
        "has read\n    -> set dataset.data_dir to those records, or start a new run without trainer.resume (TFDS "
        "writes different records each time it prepares a dataset; if the examples are known to be the same, remove "
        f"`digest` from {first / 'summary.json'})"
    )
    remark = f"It is unknown whether {first} has read the same records."
    status, summary = run_here(tmp_path / "same", [*on, f"dataset.data_dir={shutil.copytree(tiny, tmp_path / 'copy')}"])
    assert (status, summary["dataset"]["digest"], remark in summary["remarks"]) == (0, then, False)

    old = summary_of(first)
    del old["dataset"]["digest"]  # as runs wrote it that kept none
    (first / "summary.json").write_text(json.dumps(old))
    status, summary = run_here(tmp_path / "unknown", [*on, f"dataset.data_dir={other}"])
    assert (status, len(summary["epochs"]), remark in summary["remarks"]) == (0, 2, True)
