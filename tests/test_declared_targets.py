"""Examples of TFDS and of TFRecord files with several targets, labels, and a weight, in TFDS's own files."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.planning.plan import given_to_model
from etlrun.record.summary import read_summary
from etlrun.run.model import build
from tests.blocks import KINDS, OF_NUMBERS, of_files, words_of, write_blocks
from tests.configs import plan_of
from tests.conftest import Once
from tests.pictures import with_feature
from tests.pipelines import training_pipeline
from tests.programs import program_of
from tests.runs import SMALL, run_here
from tests.trained import said


@pytest.fixture(scope="session")
def blocks(once: Once) -> Path:
    """The data_dir of 48 blocks, as TFDS writes them."""
    return once("blocks", write_blocks)


@pytest.fixture(scope="module")
def run(blocks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four targets of numbers, whose examples are weighted."""
    folder = tmp_path_factory.mktemp("run") / "run"
    assert run_here(folder, words_of(blocks, *OF_NUMBERS))[0] == 0
    return folder


def losses_of(folder: Path) -> list[tuple[Any, ...]]:
    summary = read_summary(folder)
    assert summary is not None
    return [(epoch.loss, epoch.val_loss) for epoch in summary.epochs]


def test_a_batch_has_the_targets_and_the_weight_as_tfds_reads_them(blocks: Path) -> None:
    words = words_of(blocks, *OF_NUMBERS, "load=plain", "extract=sequential", "load.shuffle_buffer=0")
    with training_pipeline(plan_of(*words)) as pipeline:
        width, targets, weight = next(iter(pipeline.dataset))
    read = next(iter(tfds.load("blocks", data_dir=blocks, split="train[:80%]", download=False).batch(8)))
    np.testing.assert_array_equal(width, read["width"])
    np.testing.assert_array_equal(weight, read["weight"])
    for name in ("price", "kind", "tags", "is_old"):
        np.testing.assert_array_equal(targets[name], read[name])


@pytest.mark.slow
def test_the_same_records_read_as_files_come_to_the_same_losses(run: Path, blocks: Path, tmp_path: Path) -> None:
    assert run_here(tmp_path / "files", of_files(blocks, *OF_NUMBERS))[0] == 0
    assert losses_of(tmp_path / "files") == losses_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("source", [words_of, of_files])
def test_a_program_trains_to_the_same_losses(
    source: Any, run: Path, blocks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    history = program_of(plan_of(*source(blocks, *OF_NUMBERS)), tmp_path).train().history
    assert [*zip(history["loss"], history["val_loss"], strict=True)] == losses_of(run)


@pytest.mark.slow
def test_a_run_is_resumed_evaluated_and_predicts(
    run: Path, blocks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(tmp_path / "one", words_of(blocks, *OF_NUMBERS, "trainer.epochs=1"))[0] == 0
    resumed = words_of(blocks, *OF_NUMBERS, f"trainer.resume={tmp_path / 'one'}")
    assert run_here(tmp_path / "two", resumed)[0] == 0
    assert losses_of(tmp_path / "two")[-1] == losses_of(run)[-1]
    said(capsys, "evaluate", run)
    found = json.loads((run / "evaluations" / "train[80%:].json").read_text())
    assert found["loss"] == pytest.approx(losses_of(run)[-1][1], rel=1e-5)
    assert [*found["targets"]] == ["price", "kind", "tags", "is_old"]
    assert {of["name"] for of in found["targets"]["kind"]["classes"]} == {*KINDS}
    rows = [*csv.DictReader(io.StringIO(said(capsys, "predict", run, 'dataset.split="train[80%:]"')))]
    assert [*rows[0]] == [
        *("path", "price_value", "kind_class", *(f"kind_probability_{name}" for name in KINDS)),
        *("tags_labels", *(f"tags_probability_{place}" for place in range(4))),
        *("is_old_class", "is_old_probability_0", "is_old_probability_1"),
    ]


IN = "in blocks/1.0.0"


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (
            "{kind: class 4, price: number}",
            (
                f"dataset.target: found 'kind', which is ClassLabel(shape=(), dtype=int64, "
                f"num_classes=3), {IN}; expected 4 classes, as declared\n"
                "    -> write kind: class 3"
            ),
        ),
        (
            "{tags: labels 5}",
            (
                f"dataset.target: found 'tags', which is Tensor(shape=(4,), dtype=uint8), {IN}; expected 5 numbers "
                "of 0 or 1 in each example\n    -> write tags: labels 4"
            ),
        ),
        (
            "{price: binary}",
            (
                f"dataset.target: found 'price', which is Scalar(shape=(), dtype=float32), {IN}; expected a number of "
                "0 or 1 in each example\n    -> name another feature of image, is_old, kind, price, tags, weight, width"
            ),
        ),
    ],
)
def test_targets_that_tfds_has_not_so_are_faults(target: str, error: str, blocks: Path, tmp_path: Path) -> None:
    words = words_of(blocks, *OF_NUMBERS, f"dataset.target={target}")
    status, summary = run_here(tmp_path / "run", words)
    assert (status, summary["error"]) == (1, error)


def float_feature(value: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))


def int_features(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("weight", float_feature(-1.0), "weight -1; expected a weight of at least 0"),
        ("weight", float_feature(float("nan")), "weight nan; expected a weight of at least 0"),
        ("kind", int_features(3), "kind 3; expected a kind from 0 to 2"),
        ("tags", int_features(0, 1, 2, 0), "tags 2; expected a tags from 0 to 1"),
    ],
)
def test_a_record_with_another_value_is_named_or_skipped(
    key: str, value: tf.train.Feature, found: str, blocks: Path, tmp_path: Path
) -> None:
    path = shutil.copy(blocks / "blocks" / "1.0.0" / "blocks-train.tfrecord-00000-of-00001", tmp_path / "a.tfrecord")
    with_feature(key, value)(Path(path))
    drained = ("trainer=drain", "trainer.epochs=1", f"dataset.files={path}", "dataset.eval_split=null")
    status, summary = run_here(tmp_path / "run", of_files(blocks, *OF_NUMBERS[:3], *drained))
    assert (status, summary["error"]) == (
        1,
        (
            f"{path}, record 5: found {found}\n    -> write the file again, check dataset.num_classes and the declared "
            "features, or set dataset.on_corrupt=skip to skip and count such records"
        ),
    )
    status, summary = run_here(
        tmp_path / "skipping", of_files(blocks, *OF_NUMBERS[:3], *drained, "dataset.on_corrupt=skip")
    )
    assert (status, summary["skipped"]) == (0, {"train": 1})


def test_images_have_several_targets_to_the_export(blocks: Path, tmp_path: Path) -> None:
    """The heads of a program are those of the run."""
    words = words_of(blocks, *(word for word in SMALL if word.startswith(("model", "transform", "cache"))))
    planned = plan_of(*words)
    assert str(planned.train[-1].gives).endswith(
        "price: float32, kind, tags: int64 [4] in [0, 1], is_old, weight: float32"
    )
    made = program_of(planned, tmp_path).model()
    scaling = [step.stage.factors for step in planned.by_model if step.stage.factors is not None]
    built = build(planned.spec.model, given_to_model(planned.train), scaling, None)
    assert {name: of.shape for name, of in made.output.items()} == {name: of.shape for name, of in built.output.items()}
    assert [layer.name for layer in made.layers[-4:]] == [layer.name for layer in built.layers[-4:]]
