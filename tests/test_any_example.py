"""Examples of any features go the whole way: here two numbers, and a third that is to be predicted from them."""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.planning.plan import given_to_model
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.run.backend import seed_all
from etlrun.stages import STAGES
from etlrun.stages.keras_models import build
from tests.blocks import OF_NUMBERS, of_files, write_blocks
from tests.blocks import words_of as words_of_blocks
from tests.boxes import DRAINED, MINE, plan_with, ran, words_of
from tests.configs import TENSORFLOW, composed, plan_of
from tests.conftest import Once
from tests.golden import Case, Golden, Says, cases
from tests.pictures import damaged, feature_of, with_feature
from tests.pipelines import batches_of, digest_of, training_pipeline
from tests.programs import of_words, program_of
from tests.runs import SMALL, run_here, small


def as_bytes(batches: Any) -> list[tuple[Any, ...]]:
    """Inputs and target of each batch in order."""
    return [
        (sorted((name, of.numpy().tobytes()) for name, of in inputs.items()), targets.numpy().tobytes())
        for inputs, targets in batches
    ]


@pytest.fixture(scope="module")
def digest(boxes: Path) -> str:
    """Of what TFDS itself reads of the training examples."""
    dataset = tfds.load("tiny_boxes", data_dir=boxes, split="train[:80%]", download=False).batch(7)
    return digest_of(({name: batch[name] for name in ("width", "height")}, batch["price"]) for batch in dataset)


def test_a_plan_tells_the_features_and_needs_no_data() -> None:
    planned = plan_with(None, words_of(Path("/nowhere"), "trainer=drain"))
    given = "{height: float32, width: float32}, price: float32"
    assert [str(stage.gives) for stage in planned.train[:2]] == ["serialised example", given]
    assert str(planned.train[-1].gives) == f"8 x {given}"
    assert planned.train[-1].gives.example_bytes == 12


def test_a_config_that_names_no_features_is_that_of_an_image_and_its_class() -> None:
    """As those of before: a run that they have begun can be resumed."""
    config = composed(TENSORFLOW)
    for key in ("features", "target"):
        assert config["dataset"].pop(key) is None
    planned = plan(parse(config, STAGES))
    assert planned == plan_of(TENSORFLOW)
    assert planned.fingerprint == "0920c5171ba574bc"


def test_a_network_of_another_package_is_given_scaled_images() -> None:
    """Only the models of etlrun scale images themselves."""
    planned = plan(parse(composed() | {"model": {"name": "linear"}}, MINE))
    assert ([step.stage.path for step in plan_of().by_model], planned.by_model) == (
        ["transform.scale_minus_one_one"],
        (),
    )
    assert str(planned.train[-1].gives) == "32 x float32 [64, 64, 3] in [-1, 1], label"


VARIANTS: Mapping[str, tuple[str, ...]] = {
    "no cache": ("cache=none",),
    "read by tfds": ("cache=none", "extract=tfds"),
    "in memory, as read": ("cache=memory", "cache.at=source", "extract=tfds"),
    "on disk, as read": ("cache=disk", "cache.at=source", "load.shuffle_buffer=0"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_pass_has_the_same_examples_whatever_keeps_them(
    name: str, digest: str, boxes: Path, tmp_path: Path
) -> None:
    words = words_of(boxes, *DRAINED, *VARIANTS[name], f"cache.dir={tmp_path / 'caches'}")
    status, summary = ran(tmp_path / "run", words)
    assert status == 0
    assert [epoch["digest"] for epoch in summary["epochs"]] == [digest, digest]
    if not name.startswith("on disk"):
        return
    filled = summary["cache"]["pipelines"]["train"]
    assert filled.pop("filled_s") > 0
    assert filled | {"key": ""} == {"held_bytes": 40 * 12, "key": "", "passes": ["filled", "read"]}
    assert summary["cache"]["forecast_bytes"] == 40 * (12 + 64)
    again = ran(tmp_path / "again", words)[1]
    assert again["cache"]["pipelines"]["train"]["passes"] == ["read", "read"]
    assert [epoch["digest"] for epoch in again["epochs"]] == [digest, digest]


def test_features_of_any_dtype_and_shape_are_kept(boxes: Path, tmp_path: Path) -> None:
    features = "dataset.features={sides: int32 2, name: text, width: float32, kind: int64}"
    digests = set()
    for cache in ("none", "memory", "disk"):
        words = words_of(boxes, *DRAINED, features, f"cache={cache}", f"cache.dir={tmp_path / 'caches'}")
        status, summary = ran(tmp_path / cache, words)
        assert status == 0
        digests |= {epoch["digest"] for epoch in summary["epochs"]}
    assert len(digests) == 1


def test_a_step_may_work_on_another_feature_and_after_a_cache(boxes: Path, tmp_path: Path) -> None:
    steps = ("transform.steps=[jitter]", "dataset.eval_split=null")
    passes = []
    for cache in ("none", "memory", "disk"):
        words = words_of(boxes, *DRAINED, *steps, f"cache={cache}", "cache.at=source", f"cache.dir={tmp_path / 'c'}")
        status, summary = ran(tmp_path / cache, words)
        assert status == 0
        passes.append([epoch["digest"] for epoch in summary["epochs"]])
        planned = plan_with(None, words)
        seed_all(0)
        module = program_of(planned, tmp_path, words)
        with training_pipeline(planned) as pipeline:
            batches = [batch for _ in range(2) for batch in as_bytes(pipeline.dataset)]
        assert as_bytes(module.train_dataset()) == batches
    assert passes[0] == passes[1] == passes[2]
    assert passes[0][0] != passes[0][1]


def test_a_number_is_predicted_from_an_image(tiny: Path, tmp_path: Path) -> None:
    status, summary = ran(tmp_path, small(tiny, "dataset.target={number: int64}"))
    assert status == 0
    assert summary["epochs"][0].keys() >= {"loss", "val_loss"}
    assert "accuracy" not in summary["epochs"][0]


def test_records_without_a_feature_are_left_out(boxes: Path, tmp_path: Path) -> None:
    damaged(boxes, tmp_path / "data", with_feature("width", None))
    words = words_of(tmp_path / "data", *DRAINED, "dataset.on_corrupt=skip")
    status, summary = ran(tmp_path / "run", words)
    assert (status, summary["skipped"]) == (0, {"train": 1})
    assert [epoch["examples"] for epoch in summary["epochs"]] == [39, 39]


def test_a_digest_tells_features_targets_and_their_names_apart() -> None:
    numbers = np.arange(6, dtype=np.float32)
    inputs = {"a": numbers, "b": numbers[::-1].copy()}
    variants: list[tuple[Any, Any]] = [
        (inputs, numbers),
        ({"a": inputs["b"], "b": inputs["a"]}, numbers),
        ({"a": numbers, "c": inputs["b"]}, numbers),
        (inputs, numbers.astype(np.float64)),
        (inputs, numbers.astype(np.int64)),
        (numbers, numbers),
    ]
    found = [digest_of([variant]) for variant in variants]
    assert len(set(found)) == len(found)
    order = np.random.default_rng(0).permutation(6)
    assert digest_of([({name: of[order] for name, of in inputs.items()}, numbers[order])]) == found[0]


@pytest.fixture(scope="session")
def blocks(once: Once) -> Path:
    """The data_dir of 48 blocks, as TFDS writes them."""
    return once("blocks", write_blocks)


def test_a_batch_has_the_targets_and_the_weight_as_tfds_reads_them(blocks: Path) -> None:
    words = words_of_blocks(blocks, *OF_NUMBERS, "load=plain", "extract=sequential", "load.shuffle_buffer=0")
    with training_pipeline(plan_of(*words)) as pipeline:
        width, targets, weight = next(iter(pipeline.dataset))
    read = next(iter(tfds.load("blocks", data_dir=blocks, split="train[:80%]", download=False).batch(8)))
    np.testing.assert_array_equal(width, read["width"])
    np.testing.assert_array_equal(weight, read["weight"])
    for name in ("price", "kind", "tags", "is_old"):
        np.testing.assert_array_equal(targets[name], read[name])


def test_records_that_are_only_parsed_are_parsed_in_batches(blocks: Path, tmp_path: Path) -> None:
    """A map of single records takes longer than what it does; the examples and their order are those of before."""
    words = words_of_blocks(blocks, *OF_NUMBERS, "cache=none")
    planned, program = of_words(words, tmp_path)
    paths = ["extract.interleave", "load.shuffle", "load.batch", "transform.map", "load.prefetch"]
    assert [of.stage.path for of in planned.train] == paths
    with training_pipeline(planned) as pipeline:
        batches = batches_of(pipeline.dataset)
    late, _ = of_words([*words, "load.shuffle_at=before_batch"], tmp_path)
    assert late.train[1].stage.path == "transform.map"
    with training_pipeline(late) as pipeline:
        assert batches_of(pipeline.dataset) == batches
    seed_all(planned.spec.trainer.seed)
    assert batches_of(program.train_dataset().take(len(batches))) == batches


@pytest.mark.parametrize("case", cases("tfds"))
def test_what_the_dataset_has_not_is_told_with_what_it_has(
    case: Case, golden: Golden, boxes: Path, blocks: Path, tmp_path: Path
) -> None:
    override = case["override"]
    of_blocks = words_of_blocks(blocks, *OF_NUMBERS, override)
    status, summary = ran(tmp_path, words_of(boxes, *DRAINED, override) if case["dataset"] == "boxes" else of_blocks)
    assert status == 1
    golden(case, summary["error"])


WRONG = {
    "below zero": ("weight", feature_of(-1.0)),
    "not a number": ("weight", feature_of(math.nan)),
    "no class": ("kind", feature_of(3)),
    "no label": ("tags", feature_of(0, 1, 2, 0)),
}


@pytest.mark.parametrize(("key", "value"), WRONG.values(), ids=WRONG)
def test_a_record_with_another_value_is_named_or_skipped(
    key: str, value: tf.train.Feature, blocks: Path, tmp_path: Path, says: Says
) -> None:
    path = shutil.copy(blocks / "blocks" / "1.0.0" / "blocks-train.tfrecord-00000-of-00001", tmp_path / "a.tfrecord")
    with_feature(key, value)(Path(path))
    drained = ("trainer=drain", "trainer.epochs=1", f"dataset.files={path}", "dataset.eval_split=null")
    status, summary = run_here(tmp_path / "run", of_files(blocks, *OF_NUMBERS[:3], *drained))
    assert status == 1
    says(summary["error"])
    status, summary = run_here(
        tmp_path / "skipping", of_files(blocks, *OF_NUMBERS[:3], *drained, "dataset.on_corrupt=skip")
    )
    assert (status, summary["skipped"]) == (0, {"train": 1})


def test_images_have_several_targets_to_the_export(blocks: Path, tmp_path: Path) -> None:
    """The heads of a program are those of the run."""
    words = words_of_blocks(blocks, *(word for word in SMALL if word.startswith(("model", "transform", "cache"))))
    planned = plan_of(*words)
    assert str(planned.train[-1].gives).endswith(
        "price: float32, kind, tags: int64 [4] in [0, 1], is_old, weight: float32"
    )
    made = program_of(planned, tmp_path).model()
    scaling = [step.stage.factors for step in planned.by_model if step.stage.factors is not None]
    built = build(planned.spec.model, given_to_model(planned.train), scaling, None)
    assert {name: of.shape for name, of in made.output.items()} == {name: of.shape for name, of in built.output.items()}
    assert [layer.name for layer in made.layers[-4:]] == [layer.name for layer in built.layers[-4:]]
