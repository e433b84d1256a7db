"""The best model of a run that is resumed with `trainer.checkpoint_best`: kept, chosen anew, or refused."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.networks import trained_here
from tests.runs import summary_of
from tests.trained import with_summary

THREE = ("trainer.epochs=3", "cache=none", "trainer.optimizer=sgd")
EVERY = "trainer.checkpoint_keep=3"
BY_VALIDATION, BY_TRAINING = "trainer.checkpoint_best=val_loss", "trainer.checkpoint_best=loss"


def with_losses(folder: Path, **losses: Sequence[float]) -> Path:
    """Let the epochs of a run have these measures, so that it is known which is the best."""
    epochs = json.loads((folder / "summary.json").read_text())["epochs"]
    for key, values in losses.items():
        for epoch, value in zip(epochs, values, strict=True):
            epoch[key] = value
    with_summary(folder, epochs=epochs, status="interrupted")
    return folder


def weights_of(path: Path) -> list[Any]:
    return list(keras.models.load_model(path).get_weights())


def are_same(one: Path, other: Path) -> bool:
    return all(map(np.array_equal, weights_of(one), weights_of(other)))


@pytest.fixture(scope="module")
def kept(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs, whose checkpoints are all there, and that keeps none as the best."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    assert trained_here(folder, tiny, *THREE, EVERY)[0] == 0
    return with_losses(folder, val_loss=(0.3, 0.1, 0.2), loss=(0.1, 0.2, 0.3))


def copied(folder: Path, to: Path) -> Path:
    return shutil.copytree(folder, to / "left")


def resumed(tiny: Path, left: Path, to: Path, *words: str) -> tuple[int, dict[str, Any]]:
    return trained_here(to / "resumed", tiny, *THREE, f"trainer.resume={left}", *words)


@pytest.mark.slow
@pytest.mark.parametrize(("word", "best"), [(BY_VALIDATION, 2), (BY_TRAINING, 1)])
def test_a_metric_that_is_first_set_at_a_resume_chooses_among_the_checkpoints(
    word: str, best: int, kept: Path, tiny: Path, tmp_path: Path
) -> None:
    status, summary = resumed(tiny, kept, tmp_path, word)
    assert (status, summary["best_epoch"]) == (0, best)
    assert are_same(tmp_path / "resumed/checkpoints/best.keras", kept / f"checkpoints/epoch_{best:04}.keras")


def test_a_metric_that_is_changed_at_a_resume_chooses_again(kept: Path, tiny: Path, tmp_path: Path) -> None:
    left = copied(kept, tmp_path)
    shutil.copy(left / "checkpoints/epoch_0002.keras", left / "checkpoints/best.keras")
    with_summary(left, best_epoch=2)
    status, summary = resumed(tiny, left, tmp_path, BY_TRAINING)
    assert (status, summary["best_epoch"]) == (0, 1)
    assert are_same(tmp_path / "resumed/checkpoints/best.keras", kept / "checkpoints/epoch_0001.keras")


def test_a_metric_that_is_left_out_at_a_resume_keeps_no_model(kept: Path, tiny: Path, tmp_path: Path) -> None:
    left = copied(kept, tmp_path)
    shutil.copy(left / "checkpoints/epoch_0002.keras", left / "checkpoints/best.keras")
    with_summary(left, best_epoch=2)
    status, summary = resumed(tiny, left, tmp_path)
    assert (status, summary.get("best_epoch")) == (0, None)
    assert not (tmp_path / "resumed/checkpoints/best.keras").exists()


def test_the_same_metric_keeps_the_model_whose_checkpoint_is_gone(kept: Path, tiny: Path, tmp_path: Path) -> None:
    left = copied(kept, tmp_path)
    for epoch, place in ((2, "best.keras"), (1, "")):
        path = left / f"checkpoints/epoch_{epoch:04}.keras"
        path.rename(path.with_name(place)) if place else path.unlink()
    with_summary(left, best_epoch=2)
    status, summary = resumed(tiny, left, tmp_path, BY_VALIDATION)
    assert (status, summary["best_epoch"]) == (0, 2)
    assert are_same(tmp_path / "resumed/checkpoints/best.keras", kept / "checkpoints/epoch_0002.keras")


def test_a_best_model_that_an_older_epoch_left_is_not_taken_for_a_newer_one(
    kept: Path, tiny: Path, tmp_path: Path
) -> None:
    left = copied(kept, tmp_path)
    shutil.copy(left / "checkpoints/epoch_0001.keras", left / "checkpoints/best.keras")
    with_summary(left, best_epoch=1)
    assert resumed(tiny, left, tmp_path, BY_VALIDATION)[0] == 0
    assert are_same(tmp_path / "resumed/checkpoints/best.keras", kept / "checkpoints/epoch_0002.keras")


@pytest.mark.parametrize(("before", "remedy"), [(None, "null, as there"), ("val_loss", "val_loss, as there")])
def test_a_best_epoch_whose_model_is_gone_is_refused(
    before: str | None, remedy: str, kept: Path, tiny: Path, tmp_path: Path
) -> None:
    left = copied(kept, tmp_path)
    (left / "checkpoints/epoch_0001.keras").unlink()
    if before is not None:
        config = left / "config.yaml"
        config.write_text(config.read_text().replace("checkpoint_best: null", f"checkpoint_best: {before}"))
    status, summary = resumed(tiny, left, tmp_path, BY_TRAINING)
    assert (status, summary["status"]) == (2, "failed")
    assert summary["error"] == (
        f"trainer.checkpoint_best: found loss, by which epoch 1 of {left} is the best, whose model isn't there; "
        "expected a metric by which an epoch with a checkpoint is the best: 2, 3\n"
        f"    -> set trainer.checkpoint_best={remedy}, or start a new run without trainer.resume"
    )


@pytest.mark.slow
def test_a_best_model_that_is_chosen_again_has_the_averages_of_its_weights(tiny: Path, tmp_path: Path) -> None:
    words, folder = ("trainer.ema_momentum=0.5", "trainer.epochs=3"), tmp_path / "run"
    assert trained_here(folder, tiny, *THREE, EVERY, BY_VALIDATION, *words)[0] == 0
    best = summary_of(folder)["best_epoch"]
    left = copied(with_losses(folder), tmp_path)
    (left / "checkpoints/best.keras").unlink()
    assert resumed(tiny, left, tmp_path, BY_VALIDATION, *words)[0] == 0
    assert are_same(tmp_path / "resumed/checkpoints/best.keras", folder / "checkpoints/best.keras")
    assert not are_same(folder / "checkpoints/best.keras", folder / f"checkpoints/epoch_{best:04}.keras")
