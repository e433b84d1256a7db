"""Keras's weights for ImageNet: EfficientNetB0 to B7 have one more layer with them; on real photos where there are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import numpy.typing as npt
import pytest
from keras.src.applications import efficientnet
from keras.src.utils import file_utils

from etlrun.planning.plan import given_to_model
from etlrun.run.model import build
from tests.configs import plan_of
from tests.conftest import SHARED
from tests.programs import loaded, losses_in
from tests.runs import finish, losses_of, run_here, small, start, summary_of
from tests.test_applications import of, steps
from tests.test_eject import program

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
DEVIATIONS = [0.229, 0.224, 0.225]


@pytest.fixture(scope="module", autouse=True)
def _shallow() -> Iterator[None]:
    """EfficientNetB0 with one block, which has no stochastic depth for its first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(efficientnet, "DEFAULT_BLOCKS_ARGS", efficientnet.DEFAULT_BLOCKS_ARGS[:2])
        yield


@pytest.fixture(scope="module")
def imagenet() -> keras.Model:
    """Keras's network for ImageNet, with the normalization of its file; the other weights are random."""
    with mock.patch.object(file_utils, "get_file", return_value=""), mock.patch.object(keras.Model, "load_weights"):
        network = keras.applications.EfficientNetB0(input_shape=(32, 32, 3), include_top=False, pooling="avg")
    (normalization,) = [layer for layer in network.layers if isinstance(layer, keras.layers.Normalization)]
    normalization.set_weights([np.array([0.485, 0.456, 0.406]), np.array(DEVIATIONS), np.array(0)])
    normalization.finalize_state()
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):  # so that features are neither near 0 nor huge
            layer.set_weights([*layer.get_weights()[:3], 0.5 * np.ones_like(layer.get_weights()[3])])
    return network


@pytest.fixture(scope="module")
def weights(imagenet: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "b0.weights.h5"
    imagenet.save_weights(path)
    return path


def features_of(path: Path | str | None, trainable: str = "false") -> npt.NDArray[np.float32]:
    """Features of the images, of the model that a run would build of these weights."""
    weights = "null" if path is None else path
    words = of("EfficientNetB0", *steps(), f"model.weights={weights}", f"model.trainable={trainable}")
    plan = plan_of(*words, "transform.resize.size=[32,32]")
    model = build(plan.spec.model, given_to_model(plan.train), [], 2)
    base = keras.Model(model.input, model.layers[-1].input)
    found: npt.NDArray[np.float32] = base.predict(IMAGES, verbose=0)
    return found


@pytest.mark.parametrize("trainable", ["true", "false"])
def test_a_file_of_imagenet_weights_makes_the_network_of_imagenet(
    imagenet: keras.Model, weights: Path, trainable: str
) -> None:
    expected = imagenet.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(features_of(weights, trainable), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("variance", [[1.0, 1.0, 1.0], [0.229**2, 0.224**2, 0.225**2]])
def test_a_file_of_other_weights_makes_the_network_without_that_layer(tmp_path: Path, variance: list[float]) -> None:
    """Of one that began at random, and of one whose normalization was adapted."""
    network = keras.applications.EfficientNetB0(input_shape=(32, 32, 3), include_top=False, weights=None, pooling="avg")
    (normalization,) = [layer for layer in network.layers if isinstance(layer, keras.layers.Normalization)]
    normalization.set_weights([np.array([0.485, 0.456, 0.406]), np.array(variance), np.array(0)])
    normalization.finalize_state()
    network.save_weights(tmp_path / "own.weights.h5")
    expected = network.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(features_of(tmp_path / "own.weights.h5"), expected, rtol=1e-3, atol=1e-7)


@pytest.mark.slow
def test_a_program_and_a_loaded_model_have_the_network_of_the_run(
    tiny: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = small(tiny, *of("EfficientNetB0", *steps()), f"model.weights={weights}", "cache=none")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 0, summary
    monkeypatch.chdir(tmp_path)  # where a program saves its model
    assert losses_in(loaded(program(*words), tmp_path).train().history) == losses_of(summary)
    own = keras.models.load_model(tmp_path / "run" / "model.keras")
    features = keras.Model(own.input, own.layers[-1].input).predict(IMAGES, verbose=0)
    np.testing.assert_allclose(features, features_of(weights), rtol=1e-5)


@pytest.mark.slow
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


@pytest.mark.slow
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
