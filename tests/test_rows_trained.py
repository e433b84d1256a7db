"""What models of rows have learned: evaluated and predicted in the units of their tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from etlrun.trained import scores
from tests.runs import run_here
from tests.tables import houses, words_of, write_houses
from tests.trained import refused, said


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and two runs on them: of their prices, and of their bands."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    for name, target in (("prices", "{price: {number: standardize}}"), ("bands", "{band: binary}")):
        given = words_of(folder, "model=linear", "trainer.epochs=1", target=target)
        (folder / name).mkdir()
        status, _ = run_here(
            folder / name, [word for word in given if "emulated" not in word and "step_ms" not in word]
        )
        assert status == 0
    return folder


def test_the_auc_is_the_share_of_pairs_in_order() -> None:
    draw = np.random.default_rng(1)
    labels, found = draw.integers(0, 2, 60), draw.integers(0, 9, 60).astype("float32")
    pairs = [(a > b) + (a == b) / 2 for a in found[labels == 1] for b in found[labels == 0]]
    share = scores.auc(found, labels)
    assert share.value == pytest.approx(np.mean(pairs))
    assert share.low is not None
    assert share.high is not None
    assert 0 < share.low < np.mean(pairs) < share.high < 1
    assert scores.auc(found, np.ones(60, int)) == scores.Share(None)


def test_intervals_of_errors_are_those_of_resampled_examples() -> None:
    draw = np.random.default_rng(1)
    wanted = draw.normal(5, 2, (400, 1))
    errors = draw.normal(0, 1, (400, 1))
    found = scores.of_numbers(wanted, errors)
    assert found["rmse"].value == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found["r2"].value == pytest.approx(1 - np.sum(errors**2) / np.sum((wanted - wanted.mean()) ** 2))
    mae, half = np.abs(errors).mean(), 1.96 * np.abs(errors).std() / 20
    assert [found["mae"].low, found["mae"].high] == pytest.approx([mae - half, mae + half], abs=half / 5)
    assert scores.of_numbers(np.ones((3, 1)), np.ones((3, 1)))["r2"] == scores.Share(None)


def test_an_evaluation_of_numbers_is_in_their_units(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", rows / "prices", "--format", "json"))
    last = json.loads((rows / "prices" / "summary.json").read_text())["epochs"][-1]
    assert {name: found[name]["value"] for name in ("mae", "rmse", "r2")} == {
        name: pytest.approx(last["metrics"][f"val_{name}"], rel=1e-4) for name in ("mae", "rmse", "r2")
    }
    assert found["method"] == "95 % intervals: percentiles of 1,000 bootstrap samples of the examples"
    prices = houses()["price"].to_pylist()
    for mistake in found["mistakes"]:
        path, row = mistake["place"].split(", row ")
        assert path == str(rows / "houses.parquet")
        assert float(mistake["target"]) == pytest.approx(prices[int(row)], rel=1e-4)
    page = (rows / "prices" / "evaluations" / "train[80%:].html").read_text()
    assert "<dt>R2</dt>" in page
    assert "image" not in page.partition("<main>")[2]


def test_an_evaluation_of_two_classes_has_the_area_under_the_curve(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(said(capsys, "evaluate", rows / "bands", "--format", "json"))
    last = json.loads((rows / "bands" / "summary.json").read_text())["epochs"][-1]
    assert found["accuracy"]["value"] == pytest.approx(last["val_accuracy"])
    assert found["auc"]["value"] == pytest.approx(last["metrics"]["val_auc"], abs=0.02)
    assert [of["name"] for of in found["classes"]] == ["cheap", "dear"]
    text = said(capsys, "evaluate", rows / "bands")
    assert "by the probability of dear" in text


def test_other_rows_have_the_columns_that_the_training_has_fitted(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.parquet.write_table(houses().slice(150), rows / "others.parquet")
    pyarrow.parquet.write_table(houses().drop_columns(["area", "kind"]), rows / "fewer.parquet")
    split = 'dataset.split="train[:50]"'
    words = (f"dataset.files={rows / 'others.parquet'}", split)
    found = json.loads(said(capsys, "evaluate", rows / "prices", *words, "--format", "json"))
    whole = json.loads(said(capsys, "evaluate", rows / "prices", 'dataset.split="train"', "--format", "json"))
    wanted = {of["target"]: of["predicted"] for of in whole["mistakes"]}
    both = [of for of in found["mistakes"] if of["target"] in wanted]
    assert both
    assert all(of["predicted"] == wanted[of["target"]] for of in both)
    assert refused(capsys, "evaluate", rows / "prices", f"dataset.files={rows / 'fewer.parquet'}", split, status=2) == [
        "  dataset.inputs: found no column area, kind; expected columns of the rows: rooms, sold, garden, price, band",
        "    -> check the names",
    ]
