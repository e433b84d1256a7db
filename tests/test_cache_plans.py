"""Where a cache may stand, what a plan says of it, and what a target is made of."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from etlrun.planning.plan import at_cache
from etlrun.run import run
from etlrun.stages import STAGES, Stages
from etlrun.stages.cache import CACHES, MemoryCache, Space
from tests.configs import TENSORFLOW, composed, plan_of
from tests.runs import emulated, summary_of

SCALED = "transform.steps=[decode,center_crop,resize,scale_minus_one_one]"
SCALED_TOO = "transform.eval_steps=[decode,center_crop,resize,scale_minus_one_one]"
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"


def stages_of(*overrides: str) -> list[str]:
    """All stages of the training pipeline, with the steps of each."""
    return [
        " ".join([planned.stage.path, *(step.stage.path.removeprefix("transform.") for step in planned.steps)])
        for planned in plan_of("extract.num_parallel_calls=null", *overrides).train
    ]


@pytest.mark.parametrize(
    ("at", "before", "after"),
    [
        ("source", "transform.map parse", "transform.after_cache decode center_crop resize"),
        ("decoded", "transform.map parse decode", "transform.after_cache center_crop resize"),
        ("center_crop", "transform.map parse decode center_crop", "transform.after_cache resize"),
        ("transformed", "transform.map parse decode center_crop resize", None),
    ],
)
def test_steps_after_the_cache_come_after_the_shuffling(at: str, before: str, after: str | None) -> None:
    middle = [after] if after else []
    assert stages_of(SCALED, SCALED_TOO, f"cache.at={at}", TENSORFLOW) == [
        "extract.interleave",
        before,
        "cache.memory",
        "load.shuffle",
        *middle,
        "load.batch",
        "load.prefetch",
    ]


def test_features_are_made_before_the_cache() -> None:
    plan = plan_of("cache.at=features", "model.trainable=false")
    before, _, after = at_cache(plan.train)
    assert [planned.stage.path for planned in before] == [
        *("extract.interleave", "transform.map", "transform.turbo"),
        "model.backbone",
    ]
    assert str(before[-1].gives) == "float32 [1280], label"
    assert str(after[-1].gives) == "32 x float32 [1280], label"


def test_a_wide_model_has_more_features() -> None:
    plan = plan_of("cache.at=features", "model.trainable=false", "model.alpha=1.4")
    assert str(plan.train[-1].gives) == "32 x float32 [1792], label"


def test_the_place_of_a_cache_changes_no_fingerprint() -> None:
    frozen = "model.trainable=false"
    plans = [
        plan_of(frozen, "cache=none"),
        plan_of(frozen, "cache=disk", "cache.dir=/caches", "cache.when_busy=wait"),
        *(plan_of(frozen, f"cache.at={at}") for at in ("source", "decoded", "resize", "transformed", "features")),
    ]
    assert len({plan.fingerprint for plan in plans}) == 1


def test_none_takes_the_values_of_the_others() -> None:
    assert stages_of("cache=none", "cache.at=source") == stages_of("cache=none")


@pytest.mark.parametrize(
    ("overrides", "remarks"),
    [
        (["trainer.epochs=1"], ("cache.memory has no effect: a single epoch never reads it back.",)),
        (
            ["trainer.epochs=1", "cache=disk"],
            ("cache.disk benefits only other runs: a single epoch never reads it back.",),
        ),
        (["trainer.epochs=1", "cache=none"], ()),
        (["trainer.epochs=2"], ()),
        (["trainer.epochs=1", "trainer.steps_per_epoch=100"], ()),
    ],
)
def test_a_cache_that_can_not_pay_is_said(overrides: list[str], remarks: tuple[str, ...]) -> None:
    assert plan_of(*overrides).remarks == remarks


@dataclass(frozen=True, kw_only=True)
class Scratch(MemoryCache):
    """A cache target: what it is called, where its space is, and tf.data's call."""

    path: ClassVar[str] = "cache.scratch"

    @classmethod
    def space(cls, folder: Path) -> Space:  # noqa: ARG003 - it has none
        return Space(free_bytes=2 * 10**6, share=0.5, where="a scratch")


def test_a_cache_target_is_a_stage(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CACHES, "scratch", Scratch)
    stages: Stages = {**STAGES, "cache": CACHES}
    words = emulated(tiny, "trainer.epochs=2", "measure.digest=true")
    config = composed(*words)
    found = {}
    for name in ("memory", "scratch"):
        run.freeze(tmp_path / name, {**config, "cache": {**config["cache"], "name": name}}, words)
        assert run.run(tmp_path / name, stages) == 0
        found[name] = summary_of(tmp_path / name)
        assert all(of.pop("filled_s") > 0 for of in found[name]["cache"]["pipelines"].values())
    digests = {name: [epoch["digest"] for epoch in summary["epochs"]] for name, summary in found.items()}
    assert digests["scratch"] == digests["memory"]
    assert found["scratch"]["cache"] == {**found["memory"]["cache"], "target": "cache.scratch"}
    config["transform"]["resize"]["size"] = [128, 128]
    run.freeze(tmp_path / "large", {**config, "cache": {**config["cache"], "name": "scratch"}}, words)
    assert run.run(tmp_path / "large", stages) == 1
    error = summary_of(tmp_path / "large")["error"]
    assert "with 2 MB free in a scratch; expected at most 50% (the training needs memory, too) of the free" in error
    assert "cache=memory" in error
