"""Classes of unlike size: drawing each at the same odds, and weighing their losses."""

from pathlib import Path

import keras
import numpy as np
import pytest

from etlrun.run.backend import seed_all
from etlrun.run.custom_objects import Crossentropy
from etlrun.stages.load import SampleByClass, balanced
from tests.own import image
from tests.programs import losses_in, of_words
from tests.quick import shallow
from tests.runs import losses_of, run_here

BY_CLASS = ("load.shuffle=full", "load.sample=uniform_by_class", "extract=sequential")
CLASSES = {"cat": 24, "dog": 6, "eel": 10}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A run on 40 images, of which 6 are of the smallest class."""
    for place, (name, count) in enumerate(CLASSES.items()):
        (tmp_path / "animals" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "animals" / name / f"{number}.jpg").write_bytes(image(100 * place + number))
    data = ["dataset=folder", f"dataset.dir={tmp_path / 'animals'}", "dataset.split=train", "dataset.eval_split=train"]
    return [*data, "transform.resize.size=[32,32]", "load.batch_size=10", "trainer.epochs=2", "cache=none"]


def test_each_class_is_drawn_at_the_same_odds_and_its_examples_in_turn() -> None:
    labels = np.repeat([0, 1, 4], [9000, 800, 200])
    order = SampleByClass.op(labels, 7)
    assert len(order) == len(labels)
    for label in (0, 1, 4):
        drawn = order[labels[order] == label]
        assert abs(len(drawn) - 10_000 / 3) < 200  # four standard deviations
        times = np.bincount(drawn, minlength=len(labels))[labels == label]
        assert times.max() - times.min() <= 1
    np.testing.assert_array_equal(order, SampleByClass.op(labels, 7))
    assert (order != SampleByClass.op(labels, 8)).any()


def test_weights_are_the_inverse_of_shares_and_one_in_the_mean() -> None:
    labels = np.array([0] * 6 + [1] * 2 + [3] * 4)
    weights = balanced(np.bincount(labels, minlength=5).tolist())
    assert weights == [12 / (3 * 6), 12 / (3 * 2), 0.0, 12 / (3 * 4), 0.0]
    assert np.mean([weights[label] for label in labels]) == pytest.approx(1)


def test_the_weighted_loss_is_that_of_weighted_samples() -> None:
    labels, outputs = np.array([0, 1, 1, 2]), np.random.default_rng(0).dirichlet([1, 1, 1], 4).astype("float32")
    weights = [0.5, 2.0, 0.0]  # of a class that the training lacks
    plain = keras.losses.SparseCategoricalCrossentropy()
    wanted = plain(labels, outputs, sample_weight=np.array([weights[label] for label in labels]))
    loss = Crossentropy(weights)
    assert float(loss(labels, outputs)) == pytest.approx(float(wanted))
    assert Crossentropy.from_config(loss.get_config()).class_weights == weights


@pytest.mark.slow
@pytest.mark.parametrize("own", [("load.class_weights=balanced",), BY_CLASS], ids=" ".join)
def test_a_program_trains_to_the_losses_of_the_run(
    own: tuple[str, ...], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow(monkeypatch)
    status, summary = run_here(tmp_path / "run", [*words, *own])
    assert status == 0
    key = next(word for word in own if "balanced" in word or "uniform" in word).replace("=", " = ")
    noted = {
        "load.class_weights = balanced": ", with their weights, are cat 24 (0.556), dog 6 (2.22), eel 10 (1.33).",
        "load.sample = uniform_by_class": " are cat 24, dog 6, eel 10.",
    }
    assert f"{key}: training examples by class{noted[key]}" in summary["remarks"]
    monkeypatch.chdir(tmp_path)
    keras.backend.clear_session()
    assert losses_in(of_words([*words, *own], tmp_path)[1].train().history) == losses_of(summary)


@pytest.mark.slow
def test_a_run_with_weights_is_resumed_to_the_same_losses(words: list[str], tmp_path: Path) -> None:
    own = [*words, "load.class_weights=balanced"]
    _, whole = run_here(tmp_path / "whole", own)
    run_here(tmp_path / "half", [*own, "trainer.epochs=1"])
    seed_all(0)
    status, resumed = run_here(tmp_path / "rest", [*own, f"trainer.resume={tmp_path / 'half'}"])
    assert status == 0
    assert losses_of(resumed) == losses_of(whole)
    assert len(losses_of(whole)) == 2
