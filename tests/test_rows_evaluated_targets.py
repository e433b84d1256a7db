"""Evaluations of several targets, of labels, and of rows with weights: those of the run, and of scikit-learn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from selenium.webdriver.common.by import By

from etlrun.report.render import RENDER
from etlrun.stages.flow import Flow
from etlrun.trained import scores
from etlrun.trained.documents import document
from etlrun.trained.evaluate import Evaluation, Outputs, of_classes, of_numbers
from tests.pages import chromium, opened
from tests.runs import run_here
from tests.tables import NUM_ROWS, houses, words_of
from tests.trained import said

TARGETS = "{price: {number: standardize}, band: binary, rooms: {class: {weight: 0.5}}, tags: {labels: '|'}}"
COLUMNS = "transform.columns={area: {of: area, steps: [{fill: median}, standardize]}, garden: {of: garden}}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned four targets of houses with weights."""
    folder = tmp_path_factory.mktemp("targets")
    draw = np.random.default_rng(1)
    table = houses()
    tags = ["|".join(draw.choice(["old", "park", "sea"], draw.integers(0, 4), replace=False)) for _ in range(NUM_ROWS)]
    table = table.append_column("tags", pa.array(tags)).append_column("times", pa.array(draw.integers(0, 4, NUM_ROWS)))
    pyarrow.parquet.write_table(table, folder / "houses.parquet")
    words = words_of(
        folder, "model=linear", "dataset.inputs=[area,garden]", "dataset.weight=times", COLUMNS, target=TARGETS
    )
    (folder / "run").mkdir()
    status, _ = run_here(folder / "run", [word for word in words if "emulated" not in word and "step_ms" not in word])
    assert status == 0
    return folder / "run"


def test_each_target_has_the_weighted_figures_of_the_last_epoch(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", run, "--format", "json"))
    last = json.loads((run / "summary.json").read_text())["epochs"][-1]
    assert found["loss"] == pytest.approx(last["val_loss"], rel=1e-4)
    assert list(found["targets"]) == ["price", "band", "rooms", "tags"]
    for target, name in (
        ("price", "mae"),
        ("price", "r2"),
        ("band", "accuracy"),
        ("rooms", "accuracy"),
        ("tags", "accuracy"),
    ):
        value: Any = found["targets"][target][name]["value"]
        assert value == pytest.approx(last["metrics"][f"val_{target}_{name}"], rel=1e-3), (target, name)
    worth = {name: of["importance"] for name, of in found["targets"].items()}
    assert {name: of["measure"] for name, of in worth.items()} == {
        "price": "mae", "band": "accuracy", "rooms": "accuracy", "tags": "accuracy",
    }  # fmt: skip
    for name, of in worth.items():
        assert of["value"] == pytest.approx(found["targets"][name][of["measure"]]["value"], rel=1e-5), name
    assert {of["name"] for of in worth["price"]["columns"]} == {"area", "garden"}
    assert set(found["targets"]["tags"]["mistakes"][0]["columns"]) == {"area", "garden"}
    assert [of["name"] for of in found["targets"]["tags"]["classes"]] == ["old", "park", "sea"]
    assert found["targets"]["price"]["method"].endswith("by their effective number (Kish 1965)")


def test_the_text_and_the_page_name_each_target(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "evaluate", run).splitlines()
    assert [line for line in lines if line in {"price", "band", "rooms", "tags"}] == ["price", "band", "rooms", "tags"]
    assert sum("in the run" in line for line in lines) == 8
    figures = [found[1] for line in lines if (found := re.match(r"  (\w+) +[\d.,-]+ ?\(", line))]
    assert [of for of in figures if of[0].isupper() or of == "mAP"] == [
        *("MAE", "RMSE", "R2", "MedAE", "MSE"), *("AUC", "AP", "ECE"), "ECE", "mAP",
    ]  # fmt: skip
    with chromium() as browser, opened(browser, run / "evaluations" / "train[80%:].html"):
        heads = [of.text for of in browser.find_elements(By.CSS_SELECTOR, "main > section > h2")]
        assert heads == ["price", "band", "rooms", "tags"]
        assert "median absolute error" in browser.page_source
        labels = browser.find_elements(By.XPATH, "//h3[text()='Labels']/..//tbody/tr/th")
        assert [of.text for of in labels] == ["old", "park", "sea"]


LABELS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]])
FOUND = np.array([[0.9, 0.2, 0.6], [0.4, 0.7, 0.3], [0.8, 0.4, 0.5], [0.1, 0.3, 0.8]], np.float32)


def test_figures_of_labels_are_those_of_scikit_learn() -> None:
    assert scores.mean_average_precision(FOUND, LABELS).value == pytest.approx(0.9722222222222222)
    weights = np.array([1, 2, 1, 0.5])
    assert scores.mean_average_precision(FOUND, LABELS, weights).value == pytest.approx(0.9576719576719577)
    f1 = [scores.of_class("", LABELS[:, place] == 1, FOUND[:, place] > 0.5).f1.value for place in range(3)]
    assert f1 == pytest.approx([1, 2 / 3, 0.8])


def test_labels_that_no_example_has_count_for_no_mean() -> None:
    labels = LABELS * [1, 1, 0]
    assert scores.mean_average_precision(FOUND, labels).value == pytest.approx(1.0, abs=0.05)
    assert scores.mean_average_precision(FOUND, labels * 0) == scores.Share(None)


NO_INPUTS: Any = SimpleNamespace(
    source=SimpleNamespace(dataset=SimpleNamespace(examples=Flow(features={}, targets=("y",)))),
    place="row {}".format,
    example=lambda _: {},
    image=lambda _: None,
)
"""Examples without inputs."""


def test_figures_of_examples_without_any_weight_are_not_defined() -> None:
    none = np.zeros(4)
    of: dict[str, Any] = {"targets": LABELS[:, 0], "numbers": np.arange(4), "weights": none}
    found = Outputs(predictions=FOUND[:, :2], logits=FOUND[:, :2], **of)
    of_two = of_classes(found, ("no", "yes"), NO_INPUTS, 0.5)
    found = Outputs(predictions=FOUND[:, :1], logits=FOUND[:, :1], **of)
    of_number = of_numbers(found, NO_INPUTS)
    assert of_two["accuracy"] == of_two["auc"] == of_two["average_precision"] == of_number["mae"] == scores.Share(None)
    assert of_number["mean_squared_error"] is None
    for figures in (of_two, of_number):
        evaluation = Evaluation(
            name="a", run="a", dataset="rows.csv", split="test", overrides=[], examples=4, skipped=[], loss=0.0,
            then={}, **figures,
        )  # fmt: skip
        doc = document(evaluation, "a test")
        assert RENDER["html"](doc)
        assert "NaN" not in RENDER["json"](doc)


def test_calibration_counts_examples_by_their_weights() -> None:
    confidence, is_right = np.array([0.51, 0.52, 0.95]), np.array([True, False, True])
    bins, error = scores.calibration(confidence, is_right, np.array([3.0, 1.0, 0.0]))
    filled = [(of.examples, of.confidence, of.accuracy) for of in bins if of.examples]
    assert filled == [(2, pytest.approx(0.5125), 0.75), (1, None, None)]
    assert error == pytest.approx(0.75 - 0.5125)
