"""What becomes of caches where a config changes."""

import re
from pathlib import Path

import pytest

from etlrun.graph.identity import PARTS
from etlrun.review.caches import VALID, caches
from etlrun.run.keepers import keepers_for
from tests.configs import CONF, plan_of
from tests.runs import small

KEPT = ["cache=disk", "cache.dir=/caches"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (KEPT, [*KEPT, "load.batch_size=8"], ["train: cache.disk at transformed stays valid"] * 2),
        (
            KEPT,
            [*KEPT, "transform.resize.size=[32,32]"],
            ["train: cache.disk at transformed will be rebuilt, since transform.resize.size differs"] * 2,
        ),
        (
            [*KEPT, "cache.at=decoded"],
            [*KEPT, "cache.at=decoded", "transform.resize.size=[32,32]"],
            ["train: cache.disk at decoded stays valid"] * 2,
        ),
        (
            KEPT,
            [*KEPT, "dataset.split=train"],
            [
                "train: cache.disk at transformed will be rebuilt, since dataset.split differs",
                "train: cache.disk at transformed stays valid",
            ],
        ),
        (KEPT, [*KEPT, "cache.dir=/others"], ["train: cache.disk at transformed will be built by the first run"] * 2),
        (KEPT, ["cache=none"], ["train: cache.disk at transformed is no longer read"] * 2),
        ([], KEPT, ["train: cache.disk at transformed will be built by the first run"] * 2),
        (KEPT, [], ["train: cache.memory at transformed is filled by each run"] * 2),
        (["cache=none"], ["cache=none", "load.prefetch=1"], []),
        (
            [*KEPT, "cache.at=decoded"],
            [*KEPT, "cache.at=decoded", "extract.cycle_length=8"],
            ["train: cache.disk at decoded will be rebuilt, since extract.interleave.cycle_length differs"] * 2,
        ),
        (
            [*KEPT, "cache.at=source"],
            [*KEPT, "cache.at=decoded"],
            ["train: cache.disk at decoded will be rebuilt, since cache.at differs"] * 2,
        ),
        (
            [*KEPT, "cache.at=features", "model.trainable=false"],
            [*KEPT, "cache.at=features", "model.trainable=false", "model.alpha=0.5"],
            ["train: cache.disk at features will be rebuilt, since model.mobilenet_v2.alpha differs"] * 2,
        ),
        (
            [*KEPT, "cache.at=features", "model.trainable=false"],
            [*KEPT, "cache.at=features", "model.trainable=false", "trainer.mixed_precision=mixed_bfloat16"],
            ["train: cache.disk at features will be rebuilt, since trainer.mixed_precision differs"] * 2,
        ),
        (
            [*KEPT, "cache.at=features", "model.trainable=false", "model.weights=null"],
            [*KEPT, "cache.at=features", "model.trainable=false", "model.weights=null", "trainer.seed=3"],
            ["train: cache.disk at features will be rebuilt, since trainer.seed differs"] * 2,
        ),
        (
            [*KEPT, "cache.at=features", "model.trainable=false", "model.weights=imagenet", "model.alpha=1.0"],
            [*KEPT, "cache.at=features", "model.trainable=false", "model.weights=imagenet", "model.alpha=1.0",
             "trainer.seed=3"],
            ["train: cache.disk at features stays valid"] * 2,
        ),
        (
            [*KEPT, "extract.shuffle_files=true"],
            [*KEPT, "extract.shuffle_files=true", "trainer.seed=3"],
            [
                "train: cache.disk at transformed will be rebuilt, since trainer.seed differs",
                "train: cache.disk at transformed stays valid",
            ],
        ),
    ],
)  # fmt: skip
def test_caches_stay_valid_where_nothing_before_them_differs(
    old: list[str], new: list[str], expected: list[str]
) -> None:
    found = [f"{kept.pipeline}: {kept}".split(" (")[0] for kept in caches(plan_of(*old), plan_of(*new))]
    names = ("train", "validation")
    assert found == [text.replace("train:", f"{name}:") for name, text in zip(names, expected, strict=False)]


def test_the_docs_list_what_a_key_rests_on() -> None:
    listed = re.findall(r"^    - (.+)[;.]$", (CONF.parent / "docs" / "caches.md").read_text(), re.MULTILINE)
    assert listed == [part.title for part in PARTS]


@pytest.mark.parametrize(
    "change",
    [
        "load.batch_size=8", "transform.resize.size=[32,32]", "cache.at=decoded", "cache.at=source", "trainer.seed=3",
        "extract.cycle_length=2", "extract.block_length=2", "extract.shuffle_files=false", "dataset.split='train[:24]'",
        "dataset.on_corrupt=skip", "extract=sequential", "transform.num_parallel_calls=null",
    ],
)  # fmt: skip
def test_a_cache_that_stays_valid_keeps_its_key(tiny: Path, change: str) -> None:
    shared = (*KEPT, "extract.shuffle_files=true")
    plans = [plan_of(*small(tiny, *shared)), plan_of(*small(tiny, *shared, change))]
    keys = [{name: keeper.key for name, keeper in keepers_for(plan).items()} for plan in plans]
    valid = {kept.pipeline for kept in caches(*plans) if kept.state == VALID}
    same = {name for name in keys[0] if keys[0][name] == keys[1][name]}
    assert valid <= same
    assert ("train" in valid) == ("train" in same)  # the only shard of validation is read in the same order
