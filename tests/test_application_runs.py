"""Runs of `model.keras_application`: weights, caches of features, programs, resuming."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.applications import efficientnet_v2

from tests.programs import loaded, losses_in
from tests.runs import are_equal, losses_of, run_here, small, variables_of
from tests.test_applications import of, steps
from tests.test_eject import program

BLOCKS = efficientnet_v2.DEFAULT_BLOCKS_ARGS["efficientnetv2-b0"][1:2]
"""The first block of EfficientNetV2B0 with stochastic depth; the whole network compiles in ten times the time."""


@pytest.fixture(scope="module", autouse=True)
def _shallow() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(efficientnet_v2.DEFAULT_BLOCKS_ARGS, "efficientnetv2-b0", BLOCKS)
        yield


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of EfficientNetV2B0 without its top, as Keras saves them."""
    path = tmp_path_factory.mktemp("weights") / "b0.weights.h5"
    base = keras.applications.EfficientNetV2B0(input_shape=(32, 32, 3), include_top=False, weights=None)
    base.save_weights(path)
    return path


def words(tiny: Path, weights: Path, *overrides: str) -> list[str]:
    """The overrides of two epochs of a head on a frozen EfficientNetV2B0."""
    given = ("trainer.epochs=2", "trainer.learning_rate=0.1", f"model.weights={weights}")
    return small(tiny, *of("EfficientNetV2B0", *steps()), *given, *overrides)


@pytest.fixture(scope="module")
def plain(tiny: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plain")
    status, summary = run_here(folder, words(tiny, weights, "cache=none"))
    assert status == 0, summary
    return folder, summary


def test_a_run_has_the_weights_of_the_file(weights: Path, plain: tuple[Path, dict[str, Any]]) -> None:
    base = keras.models.load_model(plain[0] / "model.keras").get_layer("efficientnetv2-b0")
    file = keras.applications.EfficientNetV2B0(input_shape=(32, 32, 3), include_top=False, weights=str(weights))
    assert all(map(np.array_equal, base.get_weights(), file.get_weights()))


def test_a_cache_of_features_gives_the_same_losses(
    tiny: Path, weights: Path, plain: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The frozen base drops nothing in training, or its features would not be those of a cache."""
    status, summary = run_here(tmp_path / "run", words(tiny, weights, "cache=memory", "cache.at=features"))
    assert status == 0, summary
    np.testing.assert_allclose(losses_of(summary), losses_of(plain[1]), rtol=1e-4)
    assert summary["cache"]["pipelines"]["train"]["held_bytes"] == 38 * (1280 * 4 + 8)


@pytest.mark.slow
def test_a_program_reaches_the_losses_of_the_run(
    tiny: Path, weights: Path, plain: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a program saves its model
    text = program(*words(tiny, weights, "cache=none"))
    assert text.startswith('"""EfficientNetV2B0 on tiny_pictures: ')
    assert losses_in(loaded(text, tmp_path).train().history) == losses_of(plain[1])


@pytest.mark.slow
def test_a_trained_base_resumes_to_the_bit(tiny: Path, weights: Path, tmp_path: Path) -> None:
    """Stochastic depth goes on from its state, in the second epoch with that of a checkpoint, and so does a scale."""
    short = ("cache=none", "dataset.eval_split=null", "model.trainable=true", "model.batch_norm_momentum=0.8")
    own = words(tiny, weights, *short, "trainer.mixed_precision=mixed_float16")
    run_here(tmp_path / "whole", own)
    run_here(tmp_path / "half", [*own, "trainer.epochs=1"])
    status, _ = run_here(tmp_path / "on", [*own, f"trainer.resume={tmp_path / 'half'}"])
    assert status == 0
    assert are_equal(variables_of(tmp_path / "on"), variables_of(tmp_path / "whole"))


def test_weights_of_another_model_are_refused(tiny: Path, weights: Path, tmp_path: Path) -> None:
    overrides = small(tiny, *of("VGG16", *steps("zero_center_bgr")), f"model.weights={weights}")
    status, summary = run_here(tmp_path / "run", overrides)
    assert status == 1
    assert summary["error"].startswith(f"model.weights: found incompatible weights in {weights}: ")
    assert summary["error"].endswith(
        "; expected weights of VGG16 without its top\n"
        "    -> set model.name to the model of the file, or model.weights=null for random initialization"
    )
