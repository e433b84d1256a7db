"""Columns beside other features: outputs of numbers of TFDS datasets, which are added, replaced or dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from etlrun.system.errors import ConfigError
from tests.boxes import DRAINED, plan_with, ran, words_of
from tests.test_any_example import digest_of

COLUMNS = (
    "+transform.columns={width: {steps: [{standardize: {mean: 0.5, std: 0.25}}]}, "
    "wide: {of: width, steps: [{bucketize: [0.25, 0.5]}, one_hot]}, height: drop}"
)


@pytest.fixture(scope="module")
def digest(boxes: Path) -> str:
    """Of what TFDS itself reads of the training examples, with the outputs computed for whole batches."""
    dataset = tfds.load("tiny_boxes", data_dir=boxes, split="train[:80%]", download=False).batch(7)
    return digest_of((outputs(batch["width"]), batch["price"]) for batch in dataset)


def outputs(width: tf.Tensor) -> dict[str, tf.Tensor]:
    exact = tf.cast(width, tf.float64)
    wide = tf.one_hot(tf.cast(exact >= 0.25, tf.int64) + tf.cast(exact >= 0.5, tf.int64), 3)
    return {"width": tf.cast((exact - 0.5) / 0.25, tf.float32), "wide": wide}


CACHES: dict[str, tuple[str, ...]] = {
    "no cache": ("cache=none",),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "before the columns": ("cache=memory", "cache.at=source"),
}


@pytest.mark.parametrize("name", CACHES)
def test_outputs_stand_beside_the_other_features(name: str, digest: str, boxes: Path, tmp_path: Path) -> None:
    words = words_of(boxes, *DRAINED, *CACHES[name], COLUMNS, f"cache.dir={tmp_path / 'caches'}")
    status, summary = ran(tmp_path / "run", words)
    assert (status, {epoch["digest"] for epoch in summary["epochs"]}) == (0, {digest})


def test_a_plan_shows_outputs_beside_the_other_features(boxes: Path) -> None:
    planned = plan_with(None, words_of(boxes, "trainer=drain", COLUMNS.replace("height: drop", "more: {of: height}")))
    given = "{height: float32, more: float32, wide: float32 [3] in [0, 1], width: float32}, price: float32"
    assert str(planned.train[-1].gives) == f"8 x {given}"


def refusal_of(boxes: Path, columns: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan_with(None, words_of(boxes, "trainer=drain", f"+transform.columns={columns}"))
    return str(caught.value)


def test_columns_beside_other_features_learn_nothing(boxes: Path) -> None:
    columns = "{width: {steps: [log1p, standardize]}, heigth: {steps: [log1p]}, price: drop}"
    assert refusal_of(boxes, columns) == (
        "transform.columns.heigth.of: found heigth; expected one of the columns width, height, or an output above it\n"
        "    -> did you mean `height`?\n"
        "transform.columns.price: found price, which is the target; expected inputs alone\n"
        "    -> leave it out; dataset.target says what is made of it"
    )
    assert refusal_of(boxes, "{width: {steps: [log1p, standardize]}, height: {steps: [one_hot]}}") == (
        "transform.columns.width.steps[1]: found a step that learns from the training split; "
        "expected its values, since this dataset is not read by columns\n"
        "    -> give all values of the step, such as {standardize: {mean: 0, std: 1}}, or read its TFRecord files as "
        "rows: dataset=table\n"
        "transform.columns.height.steps[0]: found float32; expected the index of a category\n"
        "    -> put `lookup`, `bucketize` or `hash` before it"
    )
    assert refusal_of(boxes, "{width: drop, height: drop}") == (
        "transform.columns: found no input; expected at least one\n"
        "    -> name columns with their steps in transform.columns"
    )
    assert refusal_of(boxes, "auto") == (
        "transform.columns: found auto; expected a dataset of rows\n    -> set transform.columns to a mapping, or null"
    )
