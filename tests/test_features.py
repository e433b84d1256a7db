"""The head alone, trained on what a frozen base makes of the images once."""

from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.runs import run_here, small

RELATIVE = 1e-4
"""Between losses with and without a cache of features: other batches through the base, other rounding."""


@pytest.fixture(scope="module")
def runs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Two epochs without a cache, and with one of features in memory, on disk, and on disk again."""
    folder = tmp_path_factory.mktemp("features")
    words = small(tiny, "trainer.epochs=2", "trainer.learning_rate=0.1")
    disk = ["cache=disk", "cache.at=features", f"cache.dir={folder / 'caches'}"]
    settings = {"none": ["cache=none"], "memory": ["cache=memory", "cache.at=features"], "filled": disk, "read": disk}
    found = {}
    for name, extra in settings.items():
        status, summary = run_here(folder / name, [*words, *extra])
        assert status == 0
        found[name] = folder / name, summary
    return found


def losses(summary: dict[str, Any]) -> list[float]:
    return [epoch[key] for epoch in summary["epochs"] for key in ("loss", "val_loss")]


@cache
def head_of(folder: Path) -> list[Any]:
    weights: list[Any] = keras.models.load_model(folder / "model.keras").get_layer("probabilities").get_weights()
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", "filled", "read"])
def test_losses_and_the_head_are_those_of_a_run_without_a_cache(
    name: str, runs: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    folder, summary = runs[name]
    plain_folder, plain = runs["none"]
    assert losses(summary) == pytest.approx(losses(plain), rel=RELATIVE)
    assert losses(plain)[0] != pytest.approx(losses(plain)[2], rel=RELATIVE)
    for mine, other in zip(head_of(folder), head_of(plain_folder), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)


def test_the_second_run_computes_no_features(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    filled, read = (runs[name][1]["cache"]["pipelines"] for name in ("filled", "read"))
    assert [pipeline["passes"] for pipeline in filled.values()] == [["filled", "read"]] * 2
    assert [pipeline["passes"] for pipeline in read.values()] == [["read", "read"]] * 2
    assert read["train"]["held_bytes"] == 38 * (1280 * 4 + 8)
    assert runs["memory"][1]["cache"]["pipelines"]["train"]["held_bytes"] == 38 * (1280 * 4 + 8)
    remark = "cache.at = features: losses equal those of a run without it within float tolerance, not bit for bit."
    assert remark in runs["read"][1]["remarks"]


def test_the_saved_model_takes_pictures(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    answers = [keras.models.load_model(runs[name][0] / "model.keras").predict(pictures) for name in ("none", "memory")]
    assert answers[0].shape == (3, 2)
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_run_goes_on_with_another_cache(
    tiny: Path, runs: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    words = small(tiny, "trainer.epochs=3", "trainer.learning_rate=0.1")
    whole = run_here(tmp_path / "whole", [*words, "cache=none"])[1]
    resumed = f"trainer.resume={runs['memory'][0]}"
    status, summary = run_here(tmp_path / "on", [*words, "cache=none", resumed])
    assert status == 0
    assert losses(summary) == pytest.approx(losses(whole), rel=RELATIVE)
    back = f"trainer.resume={runs['none'][0]}"
    status, summary = run_here(tmp_path / "back", [*words, "cache=memory", "cache.at=features", back])
    assert status == 0
    assert losses(summary) == pytest.approx(losses(whole), rel=RELATIVE)


def test_other_weights_are_another_cache(
    tiny: Path, runs: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    caches = runs["filled"][0].parent / "caches"
    words = small(tiny, "cache=disk", "cache.at=features", f"cache.dir={caches}", "trainer.seed=1")
    status, summary = run_here(tmp_path / "other", words)
    assert status == 0
    assert summary["cache"]["pipelines"]["train"]["passes"] == ["filled"]
