"""Two pipelines share a cache exactly when their examples are the same, also where several are parsed in one call."""

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from etlrun.graph.build import Pipeline
from etlrun.graph.disk import keepers_of
from etlrun.planning.plan import at_cache
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.image import Resize
from tests.configs import TENSORFLOW, plan_of
from tests.runs import small

EDITS: dict[str, tuple[str, ...]] = {
    "cache.at": ("source", "decoded", "transformed", "center_crop"),
    "dataset.split": ("train", "'train[:50%]'", "'train[:24]'", "'train[50%:]'"),
    "extract.cycle_length": ("2", "3"),
    "extract.block_length": ("1", "2"),
    "extract.num_parallel_calls": ("autotune", "null"),
    "transform.num_parallel_calls": ("autotune", "2", "null"),
    "transform.resize.size": ("[24,24]", "[24,32]"),
    "transform.resize.method": ("bilinear", "area"),
    "transform.resize.dtype": ("uint8", "float32"),
    "load.shuffle_buffer": ("0", "16"),
    "load.batch_size": ("4", "8"),
    "load.prefetch": ("0", "autotune"),
    "trainer.seed": ("0", "1"),
    "trainer.epochs": ("1", "2"),
    "dataset.data_dir": ("here", "there"),
}
"""Values that a config can take in turn; some of them mean the same data in other words."""
STEPS = "[decode,center_crop,resize,scale_minus_one_one]"


def key_and_data(words: list[str], folder: Path) -> tuple[str, str]:
    """The key of the training pipeline's cache, and a hash of the examples that it would hold, in their order."""
    base = ["model=emulated", "cache=disk", f"cache.dir={folder}", "measure.digest=false"]
    kept = [word for word in small(Path(), *base, *words) if not word.startswith("model.trainable")]
    plan = plan_of(*kept)
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    keeper = keepers_of(plan, contexts, {}, print)["train"]
    pipeline, digest = Pipeline(plan.train, contexts["train"], keeper), sha256()
    for example in pipeline.uncached(at_cache(plan.train)[0]).as_numpy_iterator():
        picture, label = example["image"], example["label"]
        digest.update(picture if isinstance(picture, bytes) else f"{picture.dtype}{picture.shape}".encode())
        digest.update(b"" if isinstance(picture, bytes) else np.ascontiguousarray(picture).data)
        digest.update(int(label).to_bytes(1))
    return keeper.key, digest.hexdigest()


@pytest.mark.slow
def test_keys_and_data_are_equal_together(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "there")
    places = {"here": str(tiny), "there": str(tmp_path / "there")}
    keys_of: dict[str, str] = {}
    data_of: dict[str, str] = {}

    class Edits(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.values = {key: values[0] for key, values in EDITS.items()}

        @rule(edits=st.lists(st.tuples(st.sampled_from(sorted(EDITS)), st.integers(0, 3)), min_size=1, max_size=4))
        def edit(self, edits: list[tuple[str, int]]) -> None:
            for key, choice in edits:
                self.values[key] = EDITS[key][choice % len(EDITS[key])]
            words = [f"{name}={places.get(value, value)}" for name, value in self.values.items()]
            words += [f"transform.steps={STEPS}", f"transform.eval_steps={STEPS}"]
            cache_key, data = key_and_data(words, tmp_path / "caches")
            assert keys_of.setdefault(data, cache_key) == cache_key, "two keys for one and the same data"
            assert data_of.setdefault(cache_key, data) == data, "one key for two kinds of data"

    checks = (HealthCheck.too_slow,)
    run_state_machine_as_test(
        Edits, settings=settings(max_examples=4, stateful_step_count=12, deadline=None, suppress_health_check=checks)
    )
    assert len(keys_of) > 1


def with_another_picture(shard: Path) -> None:
    """A shard of the same size, in which one record holds other pixels under a checksum of their own."""
    from tests.pictures import records_of

    with records_of(shard) as records:
        changed = bytearray(records[3])
        changed[len(changed) // 2] ^= 1
        records[3] = bytes(changed)


def test_a_changed_shard_is_another_cache(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "data")
    words = [f"dataset.data_dir={tmp_path / 'data'}", "cache.at=source"]
    before = key_and_data(words, tmp_path / "caches")
    shard = sorted((tmp_path / "data").rglob("*.tfrecord-*"))[1]
    size = shard.stat().st_size
    with_another_picture(shard)
    assert shard.stat().st_size == size
    after = key_and_data(words, tmp_path / "caches")
    assert before[0] != after[0]
    assert before[1] != after[1]


def identity_of(tiny: Path, *words: str) -> dict[str, Any]:
    plan = plan_of(*small(tiny, "cache=disk", *words))
    contexts = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)
    return dict(map(tuple, keepers_of(plan, contexts, {}, print)["train"].kept.identity))


def test_the_code_that_makes_the_examples_is_a_part_of_the_key(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that does something else, here by a function of this module, and another version of etlrun."""
    place = f"cache.dir={tmp_path}"
    natively = identity_of(tiny, place)
    assert [name for name in natively if name.startswith("code ")] == ["code transform.turbo"]
    before = identity_of(tiny, place, TENSORFLOW)
    assert [name for name in before if name.startswith("code ")] == ["code transform.decode", "code transform.resize"]
    monkeypatch.setattr(Resize, "op", staticmethod(lambda image, **_: image))
    assert identity_of(tiny, place) == natively
    after = identity_of(tiny, place, TENSORFLOW)
    names = before.keys() | after.keys()
    assert {name for name in names if before.get(name) != after.get(name)} == {"code transform.resize"}
    monkeypatch.setattr("etlrun.graph.identity.VERSION", "0.1.1")
    assert {name for name, value in identity_of(tiny, place, TENSORFLOW).items() if after.get(name) != value} == {
        "etlrun"
    }


def test_only_what_decodes_or_computes_depends_on_tensorflow(tiny: Path, tmp_path: Path) -> None:
    place = f"cache.dir={tmp_path}"
    assert "tensorflow" in identity_of(tiny, place, "cache.at=decoded")
    assert "tensorflow" not in identity_of(tiny, place, "cache.at=source")
    decoded_by_tfds = ("extract=tfds", "extract.decode=true", "transform.steps=[resize,scale_minus_one_one]")
    eval_steps = "transform.eval_steps=[resize,scale_minus_one_one]"
    assert "tensorflow" in identity_of(tiny, place, "cache.at=decoded", *decoded_by_tfds, eval_steps)


def test_the_classes_are_a_part_of_the_key(tiny: Path, tmp_path: Path) -> None:
    """A label outside them is an error, or skipped."""
    plan = plan_of(*small(tiny, "cache=disk", f"cache.dir={tmp_path}"))
    source = open_source(plan.spec.dataset)
    found = []
    for source.num_classes in (2, 3):
        contexts = contexts_of(plan, source, with_validation=False)
        found.append(dict(map(tuple, keepers_of(plan, contexts, {}, print)["train"].kept.identity)))
    before, after = found
    assert {name: (before[name], after[name]) for name in before if before[name] != after[name]} == {
        "dataset.classes": (2, 3)
    }
