"""Runs of `model.keras_application`: weights, also those for ImageNet, caches of features, programs, resuming."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.applications import efficientnet_v2

from tests.conftest import SHARED
from tests.programs import loaded, losses_in
from tests.runs import (
    are_equal,
    complete_here,
    finish,
    finish_well,
    losses_of,
    run_here,
    small,
    start,
    summary_of,
    variables_of,
)
from tests.test_applications import of, steps
from tests.test_eject import program


@pytest.fixture(scope="module", autouse=True)
def _shallow() -> Iterator[None]:
    """EfficientNetV2 with one block, which has stochastic depth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(efficientnet_v2.DEFAULT_BLOCKS_ARGS, "efficientnetv2-b0", BLOCKS)
        yield


@pytest.mark.slow
def test_the_exercise_learns_from_a_tenth_of_the_photos(photos: Path, tmp_path: Path) -> None:
    home = tmp_path / "keras"
    shutil.copytree(SHARED / "weights", home / "models")
    words = [
        "experiment=cats_vs_dogs", f"dataset.data_dir={photos}", "dataset.split='train[:10%]'",
        "dataset.eval_split='train[90%:]'", "trainer.epochs=2", f"hydra.run.dir={tmp_path / 'run'}",
    ]  # fmt: skip
    finish_well(start(words, tmp_path, KERAS_HOME=str(home)))
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


BLOCKS = efficientnet_v2.DEFAULT_BLOCKS_ARGS["efficientnetv2-b0"][1:2]
"""The first block of EfficientNetV2B0 with stochastic depth; the whole network compiles in ten times the time."""


@pytest.fixture(scope="module")
def weights_of_v2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of EfficientNetV2B0 without its top, as Keras saves them."""
    path = tmp_path_factory.mktemp("weights") / "b0.weights.h5"
    base = keras.applications.EfficientNetV2B0(input_shape=(32, 32, 3), include_top=False, weights=None)
    base.save_weights(path)
    return path


def words(tiny: Path, weights_of_v2: Path, *overrides: str) -> list[str]:
    """The overrides of two epochs of a head on a frozen EfficientNetV2B0."""
    given = ("trainer.epochs=2", "trainer.learning_rate=0.1", f"model.weights={weights_of_v2}")
    return small(tiny, *of("EfficientNetV2B0", *steps()), *given, *overrides)


@pytest.fixture(scope="module")
def plain(tiny: Path, weights_of_v2: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plain")
    summary = complete_here(folder, words(tiny, weights_of_v2, "cache=none"))
    return folder, summary


def test_a_run_has_the_weights_of_the_file(weights_of_v2: Path, plain: tuple[Path, dict[str, Any]]) -> None:
    base = keras.models.load_model(plain[0] / "model.keras").get_layer("efficientnetv2-b0")
    file = keras.applications.EfficientNetV2B0(input_shape=(32, 32, 3), include_top=False, weights=str(weights_of_v2))
    assert all(map(np.array_equal, base.get_weights(), file.get_weights()))


def test_a_cache_of_features_gives_the_same_losses(
    tiny: Path, weights_of_v2: Path, plain: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The frozen base drops nothing in training, or its features would not be those of a cache."""
    summary = complete_here(tmp_path / "run", words(tiny, weights_of_v2, "cache=memory", "cache.at=features"))
    np.testing.assert_allclose(losses_of(summary), losses_of(plain[1]), rtol=1e-4)
    assert summary["cache"]["pipelines"]["train"]["held_bytes"] == 38 * (1280 * 4 + 8)


@pytest.mark.slow
def test_a_program_reaches_the_losses_of_the_run(
    tiny: Path, weights_of_v2: Path, plain: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a program saves its model
    text = program(*words(tiny, weights_of_v2, "cache=none"))
    assert text.startswith('"""EfficientNetV2B0 on tiny_pictures: ')
    assert losses_in(loaded(text, tmp_path).train()[0].history) == losses_of(plain[1])


@pytest.mark.slow
def test_a_trained_base_resumes_to_the_bit(tiny: Path, weights_of_v2: Path, tmp_path: Path) -> None:
    """Stochastic depth goes on from its state, in the second epoch with that of a checkpoint, and so does a scale."""
    short = ("cache=none", "dataset.eval_split=null", "model.trainable=true", "model.batch_norm_momentum=0.8")
    own = words(tiny, weights_of_v2, *short, "trainer.mixed_precision=mixed_float16")
    run_here(tmp_path / "whole", own)
    run_here(tmp_path / "half", [*own, "trainer.epochs=1"])
    complete_here(tmp_path / "on", [*own, f"trainer.resume={tmp_path / 'half'}"])
    assert are_equal(variables_of(tmp_path / "on"), variables_of(tmp_path / "whole"))


def test_weights_of_another_model_are_refused(tiny: Path, weights_of_v2: Path, tmp_path: Path) -> None:
    overrides = small(tiny, *of("VGG16", *steps("zero_center_bgr")), f"model.weights={weights_of_v2}")
    status, summary = run_here(tmp_path / "run", overrides)
    assert status == 1
    assert summary["error"].startswith(f"model.weights: found incompatible weights in {weights_of_v2}: ")
    assert summary["error"].endswith(
        "; expected weights of VGG16 without its top\n"
        "    -> set model.name to the model of the file, or model.weights=null for random initialization"
    )
