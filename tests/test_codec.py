"""Caches that hold JPEGs: what they hold, what passes see, and where they are refused."""

from pathlib import Path
from typing import Any

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
from tests.pipelines import as_bytes, training_pipeline
from tests.programs import of_tiny
from tests.runs import emulated, run_here, small

JPEG = "cache.codec=jpeg90"
FLIPPED = ("transform.steps=[decode,resize,random_flip,scale_minus_one_one]", "cache.at=resize")


def passes_of(*words: str) -> list[Any]:
    with training_pipeline(plan_of(*words)) as pipeline:
        return [as_bytes(pipeline.dataset) for _ in range(3)]


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
    disk, memory = (passes_of(*words, f"cache={target}") for target in ("disk", "memory"))
    assert disk == memory == passes_of(*words, "cache=disk")  # filled, in memory, and read from the first pass on
    raw = passes_of(*small(tiny, f"cache.dir={tmp_path}", *library, *more), "cache=memory")
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
        (found,) = natively.op([data], **natively.values)
        np.testing.assert_array_equal(found, step.op(data, **step.values))
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
        passes = passes_of(*small(tiny, *words))
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
