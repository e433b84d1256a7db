"""The epoch whose model is kept: the best of the validation or the last, resumed, averaged, noted, and read again."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.planning.plan import kept_by
from etlrun.record.outcome import outcome_of
from etlrun.record.summary import Epoch, Kept, Summary
from etlrun.run.checkpoint import noise_between, note_of_last
from tests.configs import plan_of, spec_of
from tests.golden import Case, Golden, Says, cases
from tests.pages import scalars_of
from tests.present import present
from tests.runs import run_here, small, summary_of
from tests.trained import refused, said, with_summary

THREE = (
    "trainer.epochs=3", "cache=none", "trainer.optimizer=sgd", "trainer.learning_rate=1", "trainer.label_smoothing=0.3",
)  # fmt: skip
"""Steps so long that the second epoch is the best one."""
EVERY = "trainer.checkpoint_keep=3"


def trained_here(folder: Path, data_dir: Path, *overrides: str) -> tuple[int, dict[str, Any]]:
    """Run in this process, with the cheapest model that learns."""
    words = [word for word in small(data_dir, *overrides) if not word.startswith("model.")]
    return run_here(folder, [*words, "model=linear"])


def weights_of(path: Path) -> list[Any]:
    return list(keras.models.load_model(path).get_weights())


def are_same(one: Path, other: Path) -> bool:
    return all(map(np.array_equal, weights_of(one), weights_of(other)))


def checkpoint(folder: Path, epoch: int) -> Path:
    return folder / f"checkpoints/epoch_{epoch:04}.keras"


def with_losses(folder: Path, *losses: float, best: int | None) -> Path:
    """Let the epochs of an interrupted run have these validation losses, and its model be that of an epoch."""
    epochs = json.loads((folder / "summary.json").read_text())["epochs"]
    for epoch, loss in zip(epochs, losses, strict=True):
        epoch["val_loss"] = loss
    kept = None
    if best is not None:
        shutil.copy(checkpoint(folder, best), folder / "model.keras")
        kept = {"epoch": best, "monitor": "val_loss", "value": losses[best - 1]}
    with_summary(folder, epochs=epochs, status="interrupted", kept=kept)
    return folder


@pytest.fixture(scope="module")
def three(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs, whose checkpoints are all there."""
    folder = tmp_path_factory.mktemp("three") / "run"
    assert trained_here(folder, tiny, *THREE, EVERY, "logger=tensorboard")[0] == 0
    return folder


@pytest.fixture
def left(three: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(three, tmp_path / "left"))


def resumed(tiny: Path, left: Path, *words: str) -> tuple[int, dict[str, Any]]:
    return trained_here(left.parent / "resumed", tiny, *THREE, f"trainer.resume={left}", *words)


def test_the_model_is_that_of_the_best_epoch(three: Path) -> None:
    summary = summary_of(three)
    losses = [epoch["val_loss"] for epoch in summary["epochs"]]
    best = 1 + losses.index(min(losses))
    assert best == 2
    assert summary["kept"] == {"epoch": best, "monitor": "val_loss", "value": min(losses)}
    assert summary["best_epoch"] == best
    assert are_same(three / "model.keras", checkpoint(three, best))
    assert not are_same(three / "model.keras", checkpoint(three, 3))
    outcome = present(outcome_of(three))
    assert outcome.measures["val_loss"] == min(losses)
    logged, _ = scalars_of(three / "tensorboard")
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert logged[f"run/{name}", 3] == pytest.approx(summary["epochs"][best - 1][name])


@pytest.mark.parametrize(("words", "noted"), [("trainer.keep=last", 1), ("dataset.eval_split=null", 0)])
def test_the_last_epoch_is_kept_where_that_is_asked_for_and_without_a_validation_and_noted_where_it_is_worse(
    words: str, noted: int, tiny: Path, tmp_path: Path
) -> None:
    status, summary = trained_here(tmp_path / "run", tiny, *THREE, words)
    assert (status, summary["kept"], summary.get("best_epoch")) == (0, {"epoch": 3}, None)
    assert are_same(tmp_path / "run/model.keras", checkpoint(tmp_path / "run", 3))
    assert sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir()) == ["epoch_0003.keras"]
    with_losses(tmp_path / "run", 0.1, 0.1, 0.1, best=None)
    status, summary = resumed(tiny, tmp_path / "run", words, "trainer.epochs=4")
    notes = [
        note
        for note in summary["remarks"]
        if note.startswith("The last epoch, 4, is worse than epoch 1: its val loss differs by ")
    ]
    assert (status, summary["kept"], len(notes)) == (0, {"epoch": 4}, noted)
    end = ", the noise between epochs is 0: trainer.keep=best keeps the best one."
    assert all(note.endswith(end) for note in notes)


@pytest.mark.parametrize("case", cases("kept"))
def test_a_metric_of_the_validation_tells_which_epoch_is_kept(case: Case, golden: Golden) -> None:
    golden(case, str(kept_by(spec_of(*case["overrides"]))))


def test_a_plan_in_which_it_is_the_same_has_the_same_fingerprint() -> None:
    alone = "dataset.eval_split=null"
    assert plan_of(alone).fingerprint == plan_of(alone, "trainer.keep=last").fingerprint
    assert plan_of().fingerprint != plan_of("trainer.keep=last").fingerprint


@pytest.mark.parametrize(
    ("losses", "best", "model", "kept"),
    [
        ((0.3, 0.1, 0.2), 2, 2, 2),
        ((0.3, 0.2, 0.1), 1, 1, 3),
        ((0.3, 0.2, 0.1), 2, 3, 3),
        ((0.1, 0.3, 0.2), None, None, 3),
        ((0.3, 0.1, 0.2), 2, None, 3),
    ],
    ids=[
        "the best of all", "killed before its model is kept", "killed before the summary says so", "without its model",
        "with a damaged model",
    ],
)  # fmt: skip
def test_a_resumed_run_keeps_the_best_epoch_of_which_there_is_a_model(
    losses: tuple[float, ...], best: int | None, model: int | None, kept: int, left: Path, tiny: Path
) -> None:
    with_losses(left, *losses, best=best)
    expected = Path(shutil.copy(checkpoint(left, kept), left.parent / "expected.keras"))
    if best and not model:
        (left / "model.keras").write_text("x\n")
    elif model != best:
        shutil.copy(checkpoint(left, 3), left / "model.keras")
    for epoch in (1, 2):
        checkpoint(left, epoch).unlink()
    status, summary = resumed(tiny, left)
    assert (status, summary["kept"]) == (0, {"epoch": kept, "monitor": "val_loss", "value": losses[kept - 1]})
    first = 1 + losses.index(min(losses))
    note = f"The model of epoch {first}, the best by val_loss, is not in {left}: it can't be kept."
    assert (note in summary["remarks"]) is (first != kept)
    assert are_same(left.parent / "resumed/model.keras", expected)


def test_a_resumed_run_keeps_by_the_same_metric(left: Path, tiny: Path, says: Says) -> None:
    with_losses(left, 0.3, 0.1, 0.2, best=2)
    status, summary = resumed(tiny, left, "trainer.early_stopping.monitor=val_accuracy", "trainer.keep=best")
    assert status == 2
    says(summary["error"], LEFT=left)


@pytest.mark.slow
def test_averages_of_the_weights_are_validated_and_kept(tiny: Path, tmp_path: Path) -> None:
    words, folder = (*THREE, EVERY, "trainer.ema_momentum=0.5"), tmp_path / "left"
    assert trained_here(folder, tiny, *words)[0] == 0
    best = summary_of(folder)["kept"]["epoch"]
    model, kept = keras.models.load_model(checkpoint(folder, best)), weights_of(folder / "model.keras")
    assert not all(map(np.array_equal, model.get_weights(), kept))
    model.optimizer.finalize_variable_values(model.trainable_variables)
    assert all(map(np.array_equal, model.get_weights(), kept))
    (folder / "model.keras").unlink()
    with_summary(folder, status="interrupted", kept=None)
    assert resumed(tiny, folder, EVERY, "trainer.ema_momentum=0.5")[0] == 0
    assert are_same(tmp_path / "resumed/model.keras", checkpoint(folder, best)) is False
    assert all(map(np.array_equal, weights_of(tmp_path / "resumed/model.keras"), kept))


def with_measures(values: Sequence[float | None], best: int, monitor: str = "val_loss") -> Summary:
    epochs = [Epoch(epoch=number, val_loss=value, val_accuracy=value) for number, value in enumerate(values, 1)]
    kept = Kept(epoch=best, monitor=monitor, value=values[best - 1])
    return Summary(status="completed", overrides=[], epochs=epochs, kept=kept)


def test_the_end_says_which_epoch_is_kept() -> None:
    assert with_measures([0.5, 0.461, 1.176], 2).kept_text == "epoch 2 (val loss 0.461); epoch 3 has 1.176"
    assert with_measures([0.5, 0.461], 2).kept_text == "epoch 2 (val loss 0.461)"
    last = Summary(status="completed", overrides=[], epochs=[Epoch(epoch=1)], kept=Kept(epoch=1))
    assert last.kept_text == "epoch 1, the last"
    assert Summary(status="running", overrides=[], epochs=[Epoch(epoch=1)]).kept_text == ""


NOTE = "The last epoch, 30, is worse than epoch 2: its val loss differs by 0.728, the noise between epochs is 0.13082."
RISING = [0.6, 0.461, *(0.461 + 0.026 * number for number in range(1, 29))]


@pytest.mark.parametrize(
    ("values", "best", "monitor", "note"),
    [
        (RISING, 2, "val_loss", NOTE),
        ([0.5, 0.9, 0.6, 0.55, 0.4], 2, "val_accuracy", None),
        ([0.50, 0.46, 0.49, 0.47, 0.48, 0.47, 0.50, 0.48], 2, "val_loss", None),
        ([0.5, 0.4, 9.0], 2, "val_loss", None),
        ([0.5, 0.6], 1, "val_loss", None),
        ([0.5, 0.4], 2, "val_loss", None),
    ],
    ids=["rising", "few and unsteady", "noise", "three", "two", "the last is the best"],
)
def test_a_last_epoch_that_is_worse_by_more_than_the_noise_is_noted(
    values: list[float], best: int, monitor: str, note: str | None
) -> None:
    summary = with_measures(values, best, monitor)
    assert note_of_last(summary.epochs, monitor, best) == note


@pytest.mark.parametrize("epochs", [3, 5, 10, 30])
def test_noise_alone_is_noted_in_one_of_twenty_trainings_at_most(epochs: int) -> None:
    draws = np.random.default_rng(0).normal(size=(2_000, epochs))
    noted = [values[-1] - values.min() > (noise_between([*values]) or 0.0) for values in draws]
    assert np.mean(noted) < 0.05


def test_commands_take_the_epoch_that_is_kept_or_another(
    left: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    summary = summary_of(left)
    kept = summary["kept"]["epoch"]
    for words, epoch in (((), kept), (("--epoch", "last"), 3), (("--epoch", str(kept)), kept)):
        found = json.loads(said(capsys, "evaluate", left, *words, "--format", "json"))
        assert found["epoch"] == epoch
        assert found["loss"] == pytest.approx(summary["epochs"][epoch - 1]["val_loss"], rel=1e-5)
        assert found["then"]["loss"] == summary["epochs"][epoch - 1]["val_loss"]
    names = {path.name for path in (left / "evaluations").glob("*.json")}
    assert names == {"train[80%:].json", "train[80%:] epoch 3.json"}
    split = "dataset.split='train[80%:]'"
    model = keras.models.load_model(left / "model.keras")
    model.set_weights([0 * of for of in model.get_weights()])
    model.save(left / "model.keras")
    shares = re.findall(r"[\d.]+$", said(capsys, "predict", left, split), re.MULTILINE)
    assert [*map(float, shares)] == pytest.approx([0.5] * len(shares))
    assert "0.5" not in re.findall(r"[\d.]+$", said(capsys, "predict", left, split, "--epoch", "last"), re.MULTILINE)
    for epoch in {1, 2} - {kept}:
        checkpoint(left, epoch).unlink()
    gone = min({1, 2} - {kept})
    for given in (str(gone), "9", "0", "first"):
        says(refused(capsys, "evaluate", left, "--epoch", given))
    checkpoint(left, 3).unlink()
    for command in (("predict", left, split), ("export", left, "--format", "saved_model")):
        assert refused(capsys, *command, "--epoch", "last")[0].endswith(
            f"--epoch: found last, which is 3; expected an epoch with a saved model: {kept}"
        )
