"""Caches that hold JPEGs, and those of features: what they hold, what passes and heads see, where they are refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan, at_cache
from etlrun.review.difference import compare
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from tests import pictures
from tests.configs import TENSORFLOW, plan_of
from tests.pipelines import as_bytes, passes_of
from tests.programs import of_tiny
from tests.runs import emulated, run_here, small

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


JPEG = "cache.codec=jpeg90"
FLIPPED = ("transform.steps=[decode,resize,random_flip,scale_minus_one_one]", "cache.at=resize")


def stages_of(plan: Plan) -> dict[str, Any]:
    return {planned.stage.path: planned.stage for planned in plan.train}


def images_of(batches: Any) -> Any:
    return np.concatenate([image for image, _ in batches.as_numpy_iterator()])


@pytest.mark.parametrize("more", [(), FLIPPED], ids=["plain", "flipped"])
@pytest.mark.parametrize("library", [(TENSORFLOW,), ()], ids=["tensorflow", "turbo"])
def test_each_pass_sees_what_the_jpegs_hold(
    library: tuple[str, ...], more: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    words = small(tiny, JPEG, f"cache.dir={tmp_path}", *library, *more)
    disk, memory = (passes_of(plan_of(*words, f"cache={target}"), 3) for target in ("disk", "memory"))
    assert (
        disk == memory == passes_of(plan_of(*words, "cache=disk"), 3)
    )  # filled, in memory, and read from the first pass on
    raw = passes_of(plan_of(*small(tiny, f"cache.dir={tmp_path}", *library, *more), "cache=memory"), 3)
    assert raw != memory
    assert [labels for _, labels, _ in memory[0]] == [labels for _, labels, _ in raw[0]]


def test_the_first_pass_is_that_of_an_encoder_and_a_decoder(tiny: Path) -> None:
    words = small(tiny, "load.shuffle_buffer=0", "cache=memory", "transform.resize.size=[64,96]")
    raw, held = (images_of(Pipeline(plan.train, contexts_of(plan, open_source(plan.spec.dataset))["train"]).dataset)
                 for plan in (plan_of(*words), plan_of(*words, "cache.codec=jpeg95")))  # fmt: skip
    for image, found in zip(raw, held, strict=True):
        expected = tf.io.decode_jpeg(tf.io.encode_jpeg(image, quality=95, chroma_downsampling=True))
        np.testing.assert_array_equal(found, expected)


def test_both_libraries_read_the_same_pixels(tiny: Path) -> None:
    """So that the choice changes the speed of a cache, and the pixels only by what is before it."""
    words = small(tiny, "cache=memory", JPEG, "transform.resize.size=[40,48]")
    plain, turbo = (stages_of(plan_of(*words, *library)) for library in ((TENSORFLOW,), ()))
    assert [*turbo][-3:] == ["load.batch", "transform.turbo_after_cache", "load.prefetch"]
    natively, (step,) = turbo["transform.turbo_after_cache"], plain["transform.after_cache"].steps
    for seed in range(5):
        data = pictures.jpeg(seed)
        (found,) = natively.op([data], **natively.arguments)
        np.testing.assert_array_equal(found, step.op(data, **step.arguments))
    assert plan_of(*words).fingerprint != plan_of(*words, TENSORFLOW).fingerprint


def test_it_changes_the_data_of_a_run_with_a_cache() -> None:
    fingerprints = {
        codec: {plan_of(cache, f"cache.codec={codec}").fingerprint for cache in ("cache=memory", "cache=disk")}
        for codec in ("raw", "jpeg90", "jpeg95")
    }
    assert [len(found) for found in fingerprints.values()] == [1, 1, 1]
    assert len(set.union(*fingerprints.values())) == 3
    assert plan_of("cache=none", JPEG).fingerprint == plan_of("cache=none").fingerprint
    unused = "cache.codec = jpeg90 has no effect with cache=none: images stay as they are."
    assert plan_of("cache=none", JPEG).remarks == (unused,)
    found = compare(plan_of("cache=disk"), plan_of("cache=disk", JPEG))
    assert found.changes_data
    assert found.headline == "changes the data, from the cache on"
    assert compare(plan_of("cache=none"), plan_of("cache=disk", JPEG)).headline == found.headline
    assert not compare(plan_of("cache=none", JPEG), plan_of("cache=disk")).changes_data
    assert not compare(plan_of("cache=memory", JPEG), plan_of("cache=disk", JPEG)).changes_data


@pytest.mark.slow
def test_a_program_reads_the_same_batches(tiny: Path, tmp_path: Path) -> None:
    for library in ((TENSORFLOW,), ()):
        words = ("cache=disk", JPEG, f"cache.dir={tmp_path / 'caches'}", *FLIPPED, *library)
        _, module = of_tiny(tiny, tmp_path, *words)
        passes = passes_of(plan_of(*small(tiny, *words)), 3)
        found = as_bytes(module.train_dataset())
        assert found == [batch for one in passes for batch in one][: len(found)]


def test_a_run_fills_and_reads_it_and_knows_its_size(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "cache=disk", JPEG, f"cache.dir={tmp_path / 'caches'}", "trainer.epochs=2")
    words += ["measure.digest=true", "transform.resize.size=[128,128]"]
    runs = [run_here(tmp_path / name, words) for name in ("fills", "reads")]
    assert [status for status, _ in runs] == [0, 0]
    passes = [summary["cache"]["pipelines"]["train"]["passes"] for _, summary in runs]
    assert passes == [["filled", "read"], ["read", "read"]]
    assert len({epoch["digest"] for _, summary in runs for epoch in summary["epochs"]}) == 1
    assert runs[0][1]["plan_fingerprint"] == runs[1][1]["plan_fingerprint"]
    cache = runs[0][1]["cache"]
    held = sum(pipeline["held_bytes"] for pipeline in cache["pipelines"].values())
    assert cache["forecast_bytes"] == pytest.approx(held + 48 * 64, rel=0.05)
    assert {"cache.disk", "transform.turbo_after_cache"} <= {row["stage"] for row in runs[1][1]["stages"]}


def test_corrupt_records_are_skipped_before_it(tiny: Path, tmp_path: Path) -> None:
    damage = pictures.with_feature("image", pictures.bytes_feature(b"no picture"))
    pictures.damaged(tiny, tmp_path / "data", damage)
    for library in ("tensorflow", "turbo"):
        words = emulated(
            tmp_path / "data", "cache=memory", JPEG, "dataset.on_corrupt=skip", "load.drop_remainder=false"
        )
        status, summary = run_here(tmp_path / library, [*words, f"transform.decode.library={library}"])
        assert status == 0
        assert (summary["skipped"]["train"], summary["epochs"][0]["examples"]) == (1, 37)


def test_its_key_names_the_quality(tiny: Path) -> None:
    from etlrun.graph.identity import identity

    keys = []
    for words in ((), (JPEG,), ("cache.codec=jpeg95",), (JPEG, "load.batch_size=4")):
        plan = plan_of(*small(tiny, "cache=disk", *words))
        context = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"]
        keys.append(identity(at_cache(plan.train)[0], context))
    assert keys[1] == keys[3]
    assert keys[0] != keys[1] != keys[2] != keys[0]
    assert ["cache.codec.quality", 90] in keys[1]
