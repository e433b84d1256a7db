""""""

import json
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import keras
import numpy as np
import pytest

import etlrun
from etlrun.config.overrides import typed
from etlrun.config.request import RESUME, Request
from etlrun.record.record import is_nobodys
from etlrun.record.summary import Epoch
from etlrun.run.callbacks import EpochRecorder
from etlrun.run.checkpoint import best_epoch, states_in
from etlrun.sources.base import open_source
from etlrun.system.errors import ConfigError, WorldError
from tests.configs import composed, raised, spec_of
from tests.forked import forked
from tests.golden import Case, Golden, Says, cases
from tests.networks import trained_here
from tests.pictures import damaged, feature_of, with_feature
from tests.quick import shallow
from tests.runs import (
    are_equal,
    complete_here,
    emulated,
    events_of,
    finish,
    finish_well,
    kill_after_state,
    resumed_after,
    run_here,
    small,
    summary_of,
    variables_of,
    wait_for_epoch,
)

LONG = ("trainer.epochs=5", "model.batch_norm_momentum=0.9")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    complete_here(folder, small(tiny, *LONG))
    return folder


@pytest.mark.slow
def test_ctrl_c_leaves_a_summary_and_says_how_to_go_on_but_not_before(tiny: Path, tmp_path: Path, says: Says) -> None:
    folder = tmp_path / "run"
    words = small(tiny, "trainer.epochs=1000")
    process = forked([*words, f"hydra.run.dir={folder}"], tmp_path)
    wait_for_epoch(process, folder)
    _, summary = run_here(tmp_path / "other", [*words, f"trainer.resume={folder}"])
    os.killpg(process.pid, signal.SIGINT)
    says(summary["error"])
    status, _, err = finish(process)
    assert status == 130
    summary = summary_of(folder)
    assert summary["status"] == "interrupted"
    assert len(summary["epochs"]) >= 1
    assert err.endswith(f"etlrun: interrupted; resume with: etlrun trainer.resume={folder}\n")
    assert (folder / "report.md").exists()


@pytest.mark.smoke
def test_a_finished_run_can_be_trained_for_longer(undisturbed: Path, tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, *LONG, f"trainer.resume={undisturbed}", "trainer.epochs=6")
    summary = complete_here(tmp_path, words)
    assert [epoch["epoch"] for epoch in summary["epochs"]] == list(range(1, 7))
    assert summary["examples"] == 6 * 38


def test_the_model_is_a_copy_of_the_last_checkpoint(run: Path) -> None:
    assert (run / "model.keras").read_bytes() == max((run / "checkpoints").glob("epoch_*.keras")).read_bytes()


AS_BEFORE = "    -> resume with the same values, or start a new run without trainer.resume"


@pytest.mark.parametrize("case", cases("resumed_configs"))
def test_another_config_is_refused(case: Case, golden: Golden, undisturbed: Path, tiny: Path, tmp_path: Path) -> None:
    status, summary = run_here(tmp_path, small(tiny, *LONG, f"trainer.resume={undisturbed}", *case["overrides"]))
    assert status == case["status"]
    golden(case, summary["error"].replace(str(undisturbed), "{}"))


def test_a_resume_that_is_refused_leaves_the_folder_to_the_mended_command(
    undisturbed: Path, tiny: Path, tmp_path: Path
) -> None:
    words = small(tiny, *LONG, "trainer.learning_rate=0.5", f"trainer.resume={undisturbed}")
    message = f"trainer.learning_rate: found 0.5; expected 0.001, as in {undisturbed}\n{AS_BEFORE}"
    answer = finish(forked([*words, "hydra.run.dir=run"], tmp_path))
    assert answer == (2, "", f"etlrun: 1 fault\n  {message}\n")
    assert raised(ConfigError, etlrun.plan(*words).fit, tmp_path / "run") == message
    assert not [*tmp_path.iterdir()]


def test_a_run_with_a_key_that_is_unknown_now_is_refused_with_its_file(
    undisturbed: Path, tiny: Path, tmp_path: Path, says: Says
) -> None:
    config = shutil.copytree(undisturbed, tmp_path / "old") / "config.yaml"
    config.write_text(config.read_text().replace("\ncache:\n", "\ncache:\n  when_busy: wait\n"))
    plan = etlrun.plan(*small(tiny, *LONG, f"trainer.resume={config.parent}"))
    says(raised(ConfigError, plan.fit, tmp_path / "run"))


def test_the_overrides_of_the_resumed_run_come_first(undisturbed: Path) -> None:
    words = ["cache=none", f"trainer.resume={undisturbed}", "trainer.epochs=12"]
    merged = Request(overrides=words).resuming().overrides
    assert merged[-3:] == words
    assert "model.trainable=false" in merged
    assert "trainer.epochs=5" not in merged
    merged = Request(overrides=[f"++trainer.resume={undisturbed}"]).resuming().overrides
    assert (merged[-1], "model.trainable=false" in merged) == (f"++trainer.resume={undisturbed}", True)
    assert Request(overrides=["cache=none"]).resuming().overrides == ["cache=none"]


@pytest.mark.parametrize(
    "name",
    ["2026", "1e5", "true", "null", "a b", " a", "a,b", "a=b", "~/a", "it's", 'a"b', "a\\", "[1]", "ä", "range(3)"],
)
def test_the_words_to_resume_a_run_name_its_folder_whatever_it_is_called(name: str) -> None:
    (word,) = shlex.split(typed(RESUME, name))
    assert Request(overrides=[word]).folder_of(RESUME) == name
    assert composed(*Request(overrides=[word]).overrides)["trainer"]["resume"] == name


def test_a_run_of_ones_own_configs_is_resumed_wherever_options_stand(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "load").mkdir(parents=True)
    text = "shuffle_buffer: 0\nbatch_size: 16\ndrop_remainder: false\nprefetch: 0\n"
    (tmp_path / "mine" / "load" / "mine.yaml").write_text(text)
    first = ["load=mine", "--config-dir", "mine", *emulated(tiny, "trainer.epochs=1"), "hydra.run.dir=first"]
    first = [word for word in first if not word.startswith("load.")]
    again = ["trainer.resume=first", "trainer.epochs=2", "hydra.run.dir=again"]
    for words in (first, again):
        finish_well(forked(words, tmp_path))
    summary = summary_of(tmp_path / "again")
    assert (summary["status"], len(summary["epochs"])) == ("completed", 2)
    assert "batch_size: 16" in (tmp_path / "again" / "config.yaml").read_text()


def test_a_run_never_overwrites_a_run(undisturbed: Path, tiny: Path, says: Says) -> None:
    before = summary_of(undisturbed)
    says(raised(WorldError, run_here, undisturbed, small(tiny, *LONG)), RUN=undisturbed)
    assert summary_of(undisturbed) == before


def test_as_many_epochs_as_are_done_are_noted(undisturbed: Path, tiny: Path, tmp_path: Path) -> None:
    summary = complete_here(tmp_path / "same", small(tiny, *LONG, f"trainer.resume={undisturbed}"))
    note = f"{undisturbed} has completed all of its epochs (5), so nothing is trained: for more, set"
    assert summary["remarks"] == [f"{note} trainer.epochs=6 or more."]


def test_other_records_are_refused_and_unknown_ones_noted(tiny: Path, tmp_path: Path, says: Says) -> None:
    words = emulated(tiny, "trainer.epochs=1", "model.step_ms=0", "model.eval_step_ms=0")
    first, other = tmp_path / "first", tmp_path / "other"
    assert run_here(first, words)[0] == 0
    then = summary_of(first)["dataset"]["digest"]
    assert {len(digest) for digest in then.values()} == {16}
    damaged(tiny, other, with_feature("label", feature_of(0)))  # in the second shard: of the training split alone
    on = [word for word in words if not word.startswith(("dataset.data_dir", "trainer.epochs"))]
    on += ["trainer.epochs=2", f"trainer.resume={first}"]
    status, summary = run_here(tmp_path / "refused", [*on, f"dataset.data_dir={other}"])
    assert status == 1
    now = open_source(spec_of(*on, f"dataset.data_dir={other}").dataset).split("train[:80%]", "").content.digest
    assert now != then["train"]
    says(summary["error"], NOW=now, THEN=then["train"])
    remark = f"It is unknown whether {first} has read the same records."
    status, summary = run_here(tmp_path / "same", [*on, f"dataset.data_dir={shutil.copytree(tiny, tmp_path / 'copy')}"])
    assert (status, summary["dataset"]["digest"], remark in summary["remarks"]) == (0, then, False)

    old = summary_of(first)
    del old["dataset"]["digest"]  # as runs wrote it that kept none
    (first / "summary.json").write_text(json.dumps(old))
    status, summary = run_here(tmp_path / "unknown", [*on, f"dataset.data_dir={other}"])
    assert (status, len(summary["epochs"]), remark in summary["remarks"]) == (0, 2, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("trainer.mixed_precision=mixed_float16",), id="float16"),
        pytest.param(("trainer.gradient_accumulation_steps=2",), id="accumulated"),
    ],
)
def test_dropout_goes_on_as_if_undisturbed(words: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    undisturbed, left, resumed = (tmp_path / name for name in ("undisturbed", "left", "resumed"))
    assert trained_here(undisturbed, tiny, "cache=none", *words, "trainer.epochs=2")[0] == 0
    assert trained_here(left, tiny, "cache=none", *words, "trainer.epochs=1")[0] == 0
    assert trained_here(resumed, tiny, "cache=none", *words, "trainer.epochs=2", f"trainer.resume={left}")[0] == 0
    assert summary_of(resumed)["epochs"][1]["loss"] == summary_of(undisturbed)["epochs"][1]["loss"]
    assert are_equal(variables_of(resumed), variables_of(undisturbed))


def test_a_checkpoint_without_the_states_of_its_seeds_is_refused(tiny: Path, tmp_path: Path, says: Says) -> None:
    left = tmp_path / "left"
    assert trained_here(left, tiny, "cache=none", "trainer.epochs=1")[0] == 0
    path = left / "checkpoints/epoch_0001.keras"
    with ZipFile(path) as file, ZipFile(tmp_path / "other", "w") as other:
        for name in file.namelist():
            if name != "seeds.json":
                other.writestr(name, file.read(name))
    shutil.move(tmp_path / "other", path)
    status, summary = trained_here(
        tmp_path / "resumed", tiny, "cache=none", "trainer.epochs=2", f"trainer.resume={left}"
    )
    assert status == 1
    says(summary["error"])


EPOCHS = ("trainer.epochs=2", "load.batch_size=2", "model.batch_norm_momentum=0.9", "measure.digest=true")
EVERY = "trainer.checkpoint_every_steps=3"
NO_DIGEST = "measure.digest=false"


def results(folder: Path) -> list[list[Any]]:
    keys = ("loss", "accuracy", "val_loss", "val_accuracy", "digest", "validation_digest")
    return [[epoch.get(key) for key in keys] for epoch in summary_of(folder)["epochs"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epochs", "overrides"),
    [
        pytest.param(1, ("cache=memory", "trainer.steps_per_epoch=16"), id="epochs of steps"),
        pytest.param(0, ("cache=disk", "load.shuffle=full", "extract=sequential"), id="by number"),
        pytest.param(1, ("cache=disk", "cache.at=features", NO_DIGEST), id="features"),
        pytest.param(1, ("cache=none", "load=plain", "dataset.on_corrupt=skip", "trainer.optimizer=sgd"), id="skip"),
    ],
)
def test_a_run_killed_inside_an_epoch_ends_as_if_undisturbed(
    epochs: int, overrides: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    apart = (f"cache.dir={tmp_path / 'cache'}",) if "cache=disk" in overrides else ()
    words = small(tiny, *EPOCHS, EVERY, "load.shuffle_buffer=16", *overrides, *apart)
    words = [word for word in words if not (word.startswith("load.shuffle_buffer") and "load=plain" in words)]
    undisturbed, killed, resumed = (tmp_path / name for name in ("undisturbed", "killed", "resumed"))
    assert run_here(undisturbed, words)[0] == 0
    kill_after_state(forked([*words, f"hydra.run.dir={killed}"], killed.parent), killed, epochs)
    assert (is_nobodys(killed), summary_of(killed)["status"]) == (True, "running")
    finish_well(forked([f"trainer.resume={killed}", f"hydra.run.dir={resumed}"], tmp_path))
    assert results(resumed) == results(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))
    begun = [event["epoch"] for event in events_of(resumed) if event["event"] == "epoch_began"]
    assert begun == [epochs + 1, 2][epochs:]
    resumed_epoch = summary_of(resumed)["epochs"][epochs]
    whole = summary_of(undisturbed)["epochs"][epochs]
    assert resumed_epoch["resumed_steps"] > 0
    assert resumed_epoch["resumed_steps"] + resumed_epoch["steps"] == whole["steps"]
    assert not list((resumed / "checkpoints").glob("*.npz"))


def goes_on_in_its_validation(folder: Path, words: list[str]) -> Path:
    """A run that is stopped in its validation and resumed, to the end of an undisturbed one."""
    undisturbed = folder / "undisturbed"
    complete_here(undisturbed, words)
    resumed = resumed_after(folder, words, "on_test_batch_end", _interrupt)
    assert results(resumed) == results(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))
    return resumed


@pytest.mark.slow
def test_features_of_weights_from_a_file_are_those_of_a_first_epoch_that_goes_on(tiny: Path, tmp_path: Path) -> None:
    weights = tmp_path / "base.weights.h5"
    with pytest.MonkeyPatch.context() as patch:
        shallow(patch)
        network = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, include_top=False, weights=None)
        network.save_weights(weights)
    words = small(tiny, *EPOCHS, EVERY, NO_DIGEST, "trainer.epochs=1", "cache.at=features", f"model.weights={weights}")
    goes_on_in_its_validation(tmp_path, words)


@pytest.mark.slow
def test_a_run_that_is_killed_in_its_validation_trains_no_step_again(tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, *EPOCHS, "trainer.checkpoint_every_steps=1", "trainer.epochs=1", "cache=none")
    resumed = goes_on_in_its_validation(tmp_path, words)
    steps = summary_of(tmp_path / "undisturbed")["epochs"][0]["steps"]
    assert [path.name for path in states_in(tmp_path / "stopped")] == [f"epoch_0000_step_{steps:06}.npz"]
    epoch = summary_of(resumed)["epochs"][0]
    assert (epoch["resumed_steps"], epoch["steps"]) == (steps, 0)


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def interrupted(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    words = small(tiny, *EPOCHS, "trainer.epochs=2", EVERY, "cache=none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpochRecorder, "on_test_batch_end", _interrupt)
        assert run_here(folder, words)[0] == 130
    return folder


def resumption(left: Path, folder: Path) -> str:
    """The error of a run that resumes the one in `left`."""
    words = Request(overrides=[f"trainer.resume={left}"]).resuming().overrides
    status, summary = run_here(folder, words)
    assert status == 1
    return str(summary["error"])


def test_a_damaged_state_is_refused(interrupted: Path, tmp_path: Path, says: Says) -> None:
    left = shutil.copytree(interrupted, tmp_path / "left")
    (state,) = states_in(left)
    state.write_bytes(state.read_bytes()[:1000])
    says(resumption(left, tmp_path / "run"))


def test_a_state_of_another_model_is_refused(interrupted: Path, tmp_path: Path) -> None:
    left = shutil.copytree(interrupted, tmp_path / "left")
    (path,) = states_in(left)
    with np.load(path) as file:
        arrays = dict(file)
    last = sum(name.startswith("variable") for name in arrays) - 1
    del arrays[f"variable{last}"]
    np.savez(path, **arrays)
    assert resumption(left, tmp_path / "run").startswith(f"{path}: found {last} variables of another model")


def test_a_disk_that_fills_while_a_state_is_written_ends_the_run(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = small(tiny, *EPOCHS, "trainer.checkpoint_every_steps=1", "cache=none")
    (folder / "checkpoints").parent.mkdir(parents=True)
    (folder / "checkpoints").write_text("a file where the folder of checkpoints would be")
    status, summary = run_here(folder, words)
    assert status == 1
    assert summary["error"].startswith(f"{folder}: found [Errno")


@pytest.mark.slow
def test_the_last_epochs_and_the_best_are_kept(tiny: Path, tmp_path: Path) -> None:
    folder, resumed = tmp_path / "run", tmp_path / "resumed"
    kept = ("trainer.checkpoint_keep=2", "cache=memory", "measure.digest=true")
    words = small(tiny, "trainer.epochs=4", *kept)
    assert run_here(folder, words)[0] == 0
    losses = [epoch["val_loss"] for epoch in summary_of(folder)["epochs"]]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["epoch_0003.keras", "epoch_0004.keras"]
    assert summary_of(folder)["best_epoch"] == 1 + losses.index(min(losses))
    assert run_here(resumed, [*words, "trainer.epochs=5", f"trainer.resume={folder}"])[0] == 0
    assert sorted(path.name for path in (resumed / "checkpoints").iterdir()) == ["epoch_0004.keras", "epoch_0005.keras"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [((3.0, 1.0, 2.0), 2), ((1.0, 1.0), 1), (("NaN", 2.0, 1.0), 3), (("NaN",), None), ((), None)],
)
def test_the_best_epoch_is_the_first_of_the_best(values: tuple[Any, ...], expected: int | None) -> None:
    epochs = [Epoch(epoch=number, loss=value) for number, value in enumerate(values, 1)]
    assert best_epoch(epochs, "loss") == expected
    assert best_epoch(epochs, None) is None
    accuracies = [Epoch(epoch=number, accuracy=value) for number, value in enumerate((0.5, 0.75, 0.75), 1)]
    assert best_epoch(accuracies, "accuracy") == 2
