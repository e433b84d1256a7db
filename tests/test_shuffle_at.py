"""Where examples are shuffled: as they are read, if that changes nothing but the speed."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.review.difference import compare
from etlrun.run.backend import seed_all
from etlrun.sources.base import on_disk
from tests.configs import TENSORFLOW, plan_of
from tests.own import PETS, image, of_folder
from tests.pipelines import as_bytes, training_pipeline
from tests.runs import emulated, run_here, small

AFTER_ALL = "load.shuffle_at=before_batch"
LISTS = ("steps", "eval_steps")
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"


def stages_of(*overrides: str) -> list[str]:
    return [planned.stage.path for planned in plan_of(*overrides).train]


def test_without_a_cache_the_buffer_holds_what_is_read() -> None:
    assert stages_of("cache=none")[:3] == ["extract.interleave", "load.shuffle", "load.batch"]
    assert stages_of("cache=none", "extract=tfds")[:3] == ["extract.tfds", "load.shuffle", "load.batch"]
    assert "load.shuffle" not in [planned.stage.path for planned in plan_of("cache=none").evaluation]


@pytest.mark.parametrize(
    "overrides",
    [
        ("cache=none", AFTER_ALL),
        ("cache=none", "transform.deterministic=false"),
        ("cache=none", "dataset.on_corrupt=skip"),
        ("cache=none", "extract=tfds", "extract.decode=true", *(f"transform.{name}=[resize]" for name in LISTS)),
        ("cache=memory",),
        ("cache=disk",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_where_it_would_change_examples_or_hold_larger_ones_all_steps_come_first(overrides: tuple[str, ...]) -> None:
    stages = stages_of(*overrides, "trainer=drain")
    assert stages.index("load.shuffle") > stages.index("transform.map")


def batches_of(plan: Plan, passes: int) -> list[Any]:
    with training_pipeline(plan) as pipeline:
        return [as_bytes(pipeline.dataset) for _ in range(passes)]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (FLIPPED,),
        ("extract.shuffle_files=true", "load.shuffle_buffer=5"),
        ("extract=sequential", "transform.num_parallel_calls=null"),
        ("extract=tfds",),
        ("load.drop_remainder=true", "load.shuffle_buffer=1000"),
    ],
    ids=" ".join,
)
def test_each_pass_has_the_same_batches(overrides: tuple[str, ...], tiny: Path) -> None:
    words = small(tiny, "cache=none", *overrides)
    early, late = plan_of(*words), plan_of(*words, AFTER_ALL)
    assert [planned.stage.path for planned in early.train] != [planned.stage.path for planned in late.train]
    passes = batches_of(early, 3)
    assert passes == batches_of(late, 3)
    assert passes[0] != passes[1] != passes[2]
    with training_pipeline(early) as pipeline:
        per_pass = len(passes[0])
        assert as_bytes(pipeline.endless().take(2 * per_pass)) == [*passes[0], *passes[1]]


def test_it_changes_the_speed_alone() -> None:
    early, late = plan_of("cache=none"), plan_of("cache=none", AFTER_ALL)
    assert early.fingerprint == late.fingerprint == plan_of().fingerprint
    found = compare(early, late)
    assert [(change.path, str(change.kind)) for change in found.differences] == [("load.shuffle_at", "speed")]


def test_a_run_measures_the_stages_in_their_place(tiny: Path, tmp_path: Path) -> None:
    """Wherever the buffer is, the transformation is a stage of its own, and the rows are in the order of the plan."""
    words = emulated(tiny, "cache=none", "load.shuffle_buffer=38", "measure.digest=true", "dataset.eval_split=null")
    words += [TENSORFLOW, "trainer.epochs=4", "transform.resize.size=[224,224]", "model.step_ms=20"]
    _, early = run_here(tmp_path / "early", words)
    _, late = run_here(tmp_path / "late", [*words, AFTER_ALL])
    assert [epoch["digest"] for epoch in early["epochs"]] == [epoch["digest"] for epoch in late["epochs"]]
    rows = {row["stage"]: row["examples"] for row in early["stages"]}
    assert list(rows) == ["extract.interleave", "load.shuffle", "transform.map", "load.batch", "load.prefetch"]
    assert rows["load.shuffle"] == 38
    of_late = [row["stage"] for row in late["stages"]]
    assert of_late == ["extract.interleave", "transform.map", "load.shuffle", "load.batch", "load.prefetch"]


def test_a_pass_starts_before_all_images_of_its_buffer_are_decoded(folder: Path) -> None:
    """A broken image ends the pass at its turn, and not while the buffer is filled."""
    (folder / PETS[1] / "no 1.jpg").write_bytes(image(1)[:200])
    words = ("cache=none", "dataset.split=train", "load.shuffle_buffer=40", "load.batch_size=2", "load.prefetch=0")

    def first_batch(*overrides: str) -> int:
        plan = of_folder(folder, *words, "transform.num_parallel_calls=null", *overrides)
        with training_pipeline(plan) as pipeline:
            return len(next(iter(pipeline.dataset))[1])

    assert first_batch() == 2
    with pytest.raises(tf.errors.InvalidArgumentError):
        first_batch(AFTER_ALL)


def test_a_plan_tells_what_the_buffer_takes(photos: Path) -> None:
    """Known where all examples have one size; forecast from the dataset's files where they are still encoded."""

    def buffer(overrides: str, read_bytes: float | None = None) -> str:
        lines = render.text(plan_of(overrides), read_bytes=read_bytes).splitlines()
        return next(" ".join(line.split()) for line in lines if "buffer_size" in line)

    assert buffer("cache=memory") == "buffer_size 1024 (13 MB) training"
    assert buffer("cache=none") == "buffer_size 1024 training"
    dataset = plan_of("experiment=cats_vs_dogs", f"dataset.data_dir={photos}").spec.dataset
    known = on_disk(dataset).examples(dataset.split)
    assert known is not None
    assert buffer("cache=none", known.encoded_bytes) == "buffer_size 1024 (about 23 MB) training"


@pytest.mark.parametrize("seed", [0, 5])
def test_the_order_of_a_pass_does_not_depend_on_what_a_program_has_seeded(seed: int, tiny: Path) -> None:
    plan = plan_of(*small(tiny, "cache=none"))
    seed_all(plan.spec.trainer.seed)
    expected = batches_of(plan, 1)
    tf.random.set_seed(seed)
    assert batches_of(plan, 1) == expected
