"""Exports of several targets of rows, by name, and of labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf

from tests.runs import run_here
from tests.test_rows_several import learning, several
from tests.trained import said


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses and their labels, and two runs: of several targets, with weights, and of the labels."""
    folder = tmp_path_factory.mktemp("heads")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    for name, others in (("several", {}), ("labels", {"target": "{tags: {labels: ','}}"})):
        (folder / name).mkdir()
        words = learning(folder, "trainer.epochs=1", "transform=columns", **others)
        status, _ = run_here(folder / name, [*words])
        assert status == 0
    return folder


NUMBERS = [
    "price_value",
    *(f"band_probability_{name}" for name in ("cheap", "dear")),
    *(f"garden_probability_{name}" for name in ("false", "true")),
    *(f"tags_probability_{name}" for name in ("old", "park", "sea")),
]


def predicted(rows: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [*csv.DictReader(said(capsys, "predict", rows / "several", rows / "houses.parquet").splitlines())]


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    table = several()
    return {
        "area": tf.constant(table["area"].to_numpy().astype("float64")),
        "rooms": tf.constant(table["rooms"].to_numpy()),
    }


def test_a_saved_model_gives_each_target_by_name(
    rows: Path, tmp_path: Path, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", rows / "several", "--format", "saved_model", "--output", tmp_path / "saved")
    found = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"](**inputs)
    wanted = predicted(rows, capsys)
    names = ["price_value", "band_probabilities", "garden_probabilities", "tags_probabilities"]
    together = np.concatenate([found[name].numpy() for name in names], axis=1)
    exact = np.array([[np.float32(row[name]) for name in NUMBERS] for row in wanted])
    np.testing.assert_allclose(together, exact, rtol=1e-5, atol=1e-6)
    for name in ("band_class", "garden_class"):
        assert [of.decode() for of in found[name].numpy()] == [row[name] for row in wanted]
    assert {*found} == {*names, "band_class", "garden_class"}  # of weights nothing is taken or given
    described = json.loads((tmp_path / "saved" / "export.json").read_text())
    assert [of["name"] for of in described["inputs"]] == ["area", "rooms"]
    assert [(of["name"], of["target"], of["classes"]) for of in described["outputs"]] == [
        ("price_value", "price", None),
        ("band_probabilities", "band", ["cheap", "dear"]),
        ("garden_probabilities", "garden", ["false", "true"]),
        ("tags_probabilities", "tags", ["old", "park", "sea"]),
    ]
    card = (tmp_path / "saved" / "model_card.md").read_text()
    assert '| `band` | `["cheap", "dear"]` |' in card


def test_a_keras_model_gives_each_target_by_name(
    rows: Path, tmp_path: Path, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", rows / "several", "--format", "keras", "--output", tmp_path / "keras")
    found = keras.saving.load_model(tmp_path / "keras" / "model.keras", compile=False)(inputs)
    wanted = [float(row["tags_probability_sea"]) for row in predicted(rows, capsys)]
    np.testing.assert_allclose(found["tags_probabilities"][:, 2], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_an_export_of_labels_gives_the_probability_of_each(
    rows: Path, tmp_path: Path, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", rows / "labels", "--format", "saved_model", "--output", tmp_path / "saved")
    found = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"](**inputs)
    told = csv.DictReader(said(capsys, "predict", rows / "labels", rows / "houses.parquet").splitlines())
    wanted = [float(row["probability_sea"]) for row in told]
    np.testing.assert_allclose(found["probabilities"][:, 2], wanted, rtol=1e-5, atol=1e-6)
    described = json.loads((tmp_path / "saved" / "export.json").read_text())
    assert (described["output"]["content"], described["classes"]) == (
        "a probability of each label",
        ["old", "park", "sea"],
    )
