import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest

from etlrun.config.request import Request
from etlrun.record.record import Record, is_nobodys
from etlrun.record.summary import Epoch
from etlrun.run.callbacks import EpochRecorder
from etlrun.run.checkpoint import best_epoch, states_in
from etlrun.run.state import State
from tests.forked import forked
from tests.quick import shallow
from tests.runs import are_equal, finish, kill_after_state, run_here, small, summary_of, variables_of

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
        pytest.param(0, ("cache=none",), id="first epoch"),
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
    assert is_nobodys(killed)
    status, _, err = finish(forked([f"trainer.resume={killed}", f"hydra.run.dir={resumed}"], tmp_path))
    assert status == 0, err
    assert results(resumed) == results(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))
    resumed_epoch = summary_of(resumed)["epochs"][epochs]
    whole = summary_of(undisturbed)["epochs"][epochs]
    assert resumed_epoch["resumed_steps"] > 0
    assert resumed_epoch["resumed_steps"] + resumed_epoch["steps"] == whole["steps"]
    assert not list((resumed / "checkpoints").glob("*.npz"))


@pytest.mark.slow
def test_features_of_weights_from_a_file_are_those_of_a_first_epoch_that_goes_on(tiny: Path, tmp_path: Path) -> None:
    weights = tmp_path / "base.weights.h5"
    with pytest.MonkeyPatch.context() as patch:
        shallow(patch)
        network = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, include_top=False, weights=None)
        network.save_weights(weights)
    words = small(tiny, *EPOCHS, EVERY, NO_DIGEST, "trainer.epochs=1", "cache.at=features", f"model.weights={weights}")
    undisturbed, stopped, resumed = (tmp_path / name for name in ("undisturbed", "stopped", "resumed"))
    assert run_here(undisturbed, words)[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpochRecorder, "on_test_batch_end", _interrupt)
        assert run_here(stopped, words)[0] == 130
    assert run_here(resumed, [*words, f"trainer.resume={stopped}"])[0] == 0
    assert results(resumed) == results(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))


@pytest.mark.slow
def test_a_run_that_is_killed_in_its_validation_trains_no_step_again(tiny: Path, tmp_path: Path) -> None:
    words = small(tiny, *EPOCHS, "trainer.checkpoint_every_steps=1", "trainer.epochs=1", "cache=none")
    undisturbed, killed, resumed = (tmp_path / name for name in ("undisturbed", "killed", "resumed"))
    assert run_here(undisturbed, words)[0] == 0
    steps = summary_of(undisturbed)["epochs"][0]["steps"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpochRecorder, "on_test_batch_end", _interrupt)
        assert run_here(killed, words)[0] == 130
    assert [path.name for path in states_in(killed)] == [f"epoch_0000_step_{steps:06}.npz"]
    assert run_here(resumed, [*words, f"trainer.resume={killed}"])[0] == 0
    assert results(resumed) == results(undisturbed)
    assert are_equal(variables_of(resumed), variables_of(undisturbed))
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


def test_a_damaged_state_is_refused(interrupted: Path, tmp_path: Path) -> None:
    left = shutil.copytree(interrupted, tmp_path / "left")
    (state,) = states_in(left)
    state.write_bytes(state.read_bytes()[:1000])
    remedy = (
        "remove the file, so that the run is resumed from its last epoch, or start a new run without trainer.resume"
    )
    assert resumption(left, tmp_path / "run") == (
        f"{state}: found a file that can't be read: BadZipFile: File is not a zip file; expected the complete state "
        f"that a run saves after a step\n    -> {remedy}"
    )


def test_a_state_of_another_model_is_refused(interrupted: Path, tmp_path: Path) -> None:
    left = shutil.copytree(interrupted, tmp_path / "left")
    (path,) = states_in(left)
    state = State.load(path)
    replace(state, variables=state.variables[1:]).save(path, Record(left))
    assert resumption(left, tmp_path / "run").startswith(
        f"{path}: found {len(state.variables) - 1} variables of another model"
    )


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
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "epoch_0003.keras",
        "epoch_0004.keras",
    ]
    assert summary_of(folder)["best_epoch"] == 1 + losses.index(min(losses))
    without, plain = tmp_path / "without", [word for word in words if "checkpoint" not in word]
    assert run_here(without, plain)[0] == 0
    assert results(folder) == results(without)
    assert run_here(resumed, [*words, "trainer.epochs=5", f"trainer.resume={folder}"])[0] == 0
    assert sorted(path.name for path in (resumed / "checkpoints").iterdir()) == [
        "epoch_0004.keras",
        "epoch_0005.keras",
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [((3.0, 1.0, 2.0), 2), ((1.0, 1.0), 1), (("NaN", 2.0, 1.0), 3), (("NaN",), None), ((), None)],
)
def test_the_best_epoch_is_the_first_of_the_best(values: tuple[Any, ...], expected: int | None) -> None:
    epochs = [Epoch(epoch=number, loss=value) for number, value in enumerate(values, 1)]
    assert best_epoch(epochs, "loss") == expected
    assert best_epoch(epochs, None) is None


def test_larger_accuracies_are_better() -> None:
    epochs = [Epoch(epoch=number, accuracy=value) for number, value in enumerate((0.5, 0.75, 0.75), 1)]
    assert best_epoch(epochs, "accuracy") == 2
