"""On real photos and real weights, where this machine has them."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.runs import finish, start, summary_of

pytestmark = pytest.mark.slow


def test_the_exercise_learns_from_a_tenth_of_the_photos(photos: Path, tmp_path: Path) -> None:
    home = tmp_path / "keras"
    shutil.copytree(SHARED / "weights", home / "models")
    words = [
        "experiment=cats_vs_dogs",
        f"dataset.data_dir={photos}",
        "dataset.split='train[:10%]'",
        "dataset.eval_split='train[90%:]'",
        "trainer.epochs=2",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    status, _, err = finish(start(words, tmp_path, KERAS_HOME=str(home)))
    assert status == 0, err
    assert summary_of(tmp_path / "run")["epochs"][-1]["val_accuracy"] >= 0.9


def test_imagenet_weights_that_cannot_be_downloaded(photos: Path, tmp_path: Path) -> None:
    home = tmp_path / "keras"
    words = ["experiment=cats_vs_dogs", f"dataset.data_dir={photos}", f"hydra.run.dir={tmp_path / 'run'}"]
    closed = "http://127.0.0.1:9"
    status, _, err = finish(start(words, tmp_path, KERAS_HOME=str(home), https_proxy=closed, HTTPS_PROXY=closed))
    assert status == 1
    assert "model.weights: found imagenet weights that could not be downloaded: " in err
    assert err.endswith(
        "; expected a working download, or the file in Keras's folder of models\n"
        f"    -> copy the file that Keras names into {home}/models (the environment variable KERAS_HOME "
        "sets that folder), or set model.weights to the path of a weights file\n"
    )
