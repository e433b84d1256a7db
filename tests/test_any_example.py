"""Examples of any features go the whole way: here two numbers, and a third that is to be predicted from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

from etlrun.measure.digest import Digest
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.run.backend import seed_all
from etlrun.stages import STAGES
from tests.boxes import DRAINED, MINE, plan_with, ran, words_of
from tests.configs import TENSORFLOW, composed, plan_of, refusal_of_plan, refusal_of_spec
from tests.pictures import damaged, with_feature
from tests.pipelines import training_pipeline
from tests.programs import program_of
from tests.runs import small


def digest_of(batches: Any) -> str:
    digest = Digest()
    for inputs, targets in batches:
        digest.add(inputs, targets)
    return digest.taken()


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
    "serial": ("cache=none", "transform.num_parallel_calls=null", "extract=sequential", "load.prefetch=0"),
    "read by tfds": ("cache=none", "extract=tfds"),
    "in memory": ("cache=memory",),
    "in memory, as read": ("cache=memory", "cache.at=source", "extract=tfds"),
    "on disk": ("cache=disk",),
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


@pytest.mark.slow
def test_a_model_is_fitted_and_a_program_comes_to_its_losses(
    boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = words_of(boxes, "trainer.learning_rate=0.1", "measure.digest=true")
    status, summary = ran(tmp_path / "run", words, "linear")
    assert status == 0
    epochs = summary["epochs"]
    assert epochs[1]["loss"] < epochs[0]["loss"]
    assert epochs[1]["val_loss"] < epochs[0]["val_loss"]
    assert "accuracy" not in epochs[0]
    module = program_of(plan_with("linear", words), tmp_path, words)
    history = module.train().history
    assert {name: [epoch[name] for epoch in epochs] for name in ("loss", "val_loss")} == history
    assert digest_of(module.validation_dataset()) == epochs[0]["validation_digest"]


def test_an_accelerator_is_stood_in_for_whatever_it_is_given(digest: str, boxes: Path, tmp_path: Path) -> None:
    emulated = ("model=emulated", "model.step_ms=0", "model.eval_step_ms=0", "measure.digest=true")
    status, summary = ran(tmp_path, words_of(boxes, *emulated))
    assert status == 0
    assert [epoch["digest"] for epoch in summary["epochs"]] == [digest, digest]


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


IN = "in tiny_boxes/1.0.0"


@pytest.mark.parametrize(
    ("override", "error"),
    [
        (
            "dataset.features={widht: float32}",
            (f"dataset.features: found no feature 'widht' {IN}; expected one of height, kind, name, price, sides, width"
             "\n    -> did you mean `width`?"),
        ),
        (
            "dataset.features={width: int64}",
            (f"dataset.features: found 'width', which is Scalar(shape=(), dtype=float32), {IN}; expected int64, as "
             "declared\n    -> write width: float32"),
        ),
        (
            "dataset.features={sides: int32}",
            (f"dataset.features: found 'sides', which is Tensor(shape=(2,), dtype=int32), {IN}; expected int32, as "
             "declared\n    -> write sides: int32 2"),
        ),
        (
            "dataset.features={name: float32}",
            (f"dataset.features: found 'name', which is Text(shape=(), dtype=string), {IN}; expected float32, as "
             "declared\n    -> write name: text"),
        ),
        (
            "dataset.target={price: class}",
            (f"dataset.target: found 'price', which is Scalar(shape=(), dtype=float32), {IN}; expected a feature of "
             "type ClassLabel: kind\n    -> write kind: class"),
        ),
    ],
)  # fmt: skip
def test_what_the_dataset_has_not_is_told_with_what_it_has(
    override: str, error: str, boxes: Path, tmp_path: Path
) -> None:
    status, summary = ran(tmp_path, words_of(boxes, *DRAINED, override))
    assert (status, summary["error"]) == (1, error)


def test_a_step_without_its_feature_is_refused_with_the_known_ones() -> None:
    known = "expected a feature 'image'; known are height, price, width"
    told = refusal_of_plan(*words_of(Path("/data"), "trainer=drain", "transform.steps=[decode]"))
    told_with = f"{known}\n    -> set transform=columns model=tabular: this step is for images"
    assert f"transform.decode: found {{height: float32, width: float32}}, price: float32 before it; {told_with}" in told
    words = words_of(Path("/data"), "trainer=drain", "dataset.features={image: float32}", "transform.steps=[decode]")
    told = "transform.decode: found float32, price: float32 before it; expected an encoded image"
    assert told in refusal_of_plan(*words)


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("dataset.features={width: float16}", "dataset.features: found {width: float16}; expected a mapping from"),
        ("dataset.features={}", "dataset.features: found {}; expected a mapping from"),
        (
            "dataset.target={a: int8, b: class 0}",
            "dataset.target: found {a: int8, b: class 0}; expected a mapping from",
        ),
        ("dataset.features={price: int8}", "dataset.features: found price, which is the target; expected features to"),
    ],
)
def test_a_declaration_that_says_nothing_is_refused(override: str, found: str) -> None:
    assert refusal_of_spec(*words_of(Path("/data"), override)).startswith(found)


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
