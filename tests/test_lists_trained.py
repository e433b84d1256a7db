"""What a model of lists of numbers has learned, and the commands around it: each once, on one run."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.datasets.examine.show import Wanted, as_text, collect
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_numbers import Fill, Log1p, Standardize
from etlrun.stages.columns import Columns, Output
from etlrun.trained.columns_layer import ColumnsLayer
from tests.configs import plan_of
from tests.conftest import Once
from tests.lists import EVENTS, NUM_ROWS, SIGNAL, signals, words_of, write_signals
from tests.runs import run_here
from tests.trained import said

COLUMNS = f"{SIGNAL.replace('[', '[{fill: 5}, ')}, {EVENTS}"


def train(folder: Path) -> None:
    """Train a model of signals and events."""
    write_signals(folder)
    words = words_of(folder, "model=text", "model.layer=gru", "model.units=4", columns=COLUMNS)
    status, _ = run_here(folder / "run", [*words])
    assert status == 0


@pytest.fixture(scope="module")
def lists(once: Once) -> Path:
    """The folder of `signals.parquet`, and of a run on it."""
    return once("trained on lists", train)


def predicted(text: str) -> list[tuple[np.float32, np.float32]]:
    rows = csv.DictReader(text.splitlines())
    return [(np.float32(row["probability_down"]), np.float32(row["probability_up"])) for row in rows]


@pytest.mark.slow
def test_an_evaluation_shows_the_beginning_and_the_end_of_lists(
    lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(lists / "run", tmp_path / "run")
    told = said(capsys, "evaluate", folder, "--importance", "1")
    found = json.loads((folder / "evaluations" / "train[80%:].json").read_text())
    assert found["accuracy"]["value"] == pytest.approx(found["then"]["accuracy"])
    assert {of["name"] for of in found["importance"]["columns"]} == {"signal", "events"}
    assert "text  " not in told
    (worst, *_) = found["mistakes"]
    row = int(worst["place"].rpartition(" ")[2])
    assert worst["columns"]["events"] == ",".join(map(str, signals()["events"][row]))
    numbers = [float(of) for of in worst["columns"]["signal"].replace("...,", "").split(",")]
    kept = [*signals()["signal"][row]]
    np.testing.assert_allclose(numbers, kept if len(kept) <= 8 else [*kept[:3], *kept[-3:]], atol=1e-4)
    assert f"<td>{worst['columns']['signal']}</td>" in (folder / "evaluations" / "train[80%:].html").read_text()


@pytest.mark.slow
def test_rows_of_other_files_are_predicted_and_exported_as_those_of_the_training(
    lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, names = signals(), ("signal", "events")
    rows = [{name: [*columns[name][row]] for name in names} for row in range(NUM_ROWS)]
    rows[3]["events"] = [*rows[3]["events"], 99]
    rows[4]["signal"] = [*rows[4]["signal"][:-1], None]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = predicted(said(capsys, "predict", lists / "run", tmp_path / "rows.jsonl"))
    of_split = csv.DictReader(said(capsys, "predict", lists / "run", "dataset.split=train").splitlines())
    known = {int(of["path"].rpartition(" ")[2]): float(of["probability_up"]) for of in of_split}
    same = [row for row in range(NUM_ROWS) if row not in (3, 4)]
    np.testing.assert_allclose([found[row][1] for row in same], [known[row] for row in same], rtol=1e-5)
    said(capsys, "export", lists / "run", "--format", "saved_model", "--output", tmp_path / "saved")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    given = {"signal": np.full((NUM_ROWS, 31), np.nan), "events": np.full((NUM_ROWS, 31), np.iinfo(np.int64).min)}
    for place, row in enumerate(rows):
        for name in names:
            given[name][place, : len(row[name])] = row[name]
    given["signal_length"] = np.array([len(row["signal"]) for row in rows])
    served = serve(**{name: tf.constant(of) for name, of in given.items()})["probabilities"]
    np.testing.assert_allclose(served, found, rtol=1e-5)


def taken(name: str, lengths: str = "") -> dict[str, Any]:
    """What a layer is told of an input of lists."""
    flags = {"is_list": True, "is_required": False, "is_missing_when_empty": False}
    return {"name": name, "column": name, "lengths": lengths, **flags}


def test_an_item_that_a_step_makes_nan_is_no_padding() -> None:
    columns = Columns(outputs=(Output(name="x", of=("x",), steps=(Log1p(),)),))
    layer = ColumnsLayer(columns.described(), [taken("x")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="an item of NaN"):
        layer({"x": tf.constant([[1.0, -3.0, 2.0]])})
    np.testing.assert_allclose(layer({"x": tf.constant([[1.0, 3.0]])})["x"], np.log1p([[1, 3]]), rtol=1e-6)


def test_an_export_takes_lists_with_padding_behind_their_items() -> None:
    signal = Output(name="x", of=("x",), steps=(Fill(value=0, filled=0), Standardize(mean=1, std=2)))
    large = 2**60
    ids = Output(name="n", of=("n",), steps=(Lookup(values=(large, large + 1)), Embed(dimension=2, padding=True)))
    columns = Columns(outputs=(signal, ids)).described()
    layer = ColumnsLayer(columns, [taken("x", "x_length"), taken("n")])
    again = ColumnsLayer.from_config(layer.get_config())
    nan, pad = np.nan, np.iinfo(np.int64).min
    given = {
        "x": np.array([[3.0, nan, nan], [1, nan, nan], [nan] * 3]),
        "x_length": np.array([3, 1, 0]),
        "n": np.array([[large + 1, pad], [pad] * 2, [6, large]]),
    }
    found = again({name: tf.constant(values) for name, values in given.items()})
    np.testing.assert_array_equal(found["x"], [[1, -0.5, -0.5], [0, nan, nan], [nan] * 3])
    np.testing.assert_array_equal(found["n"], [[3, 0, 0], [0, 0, 0], [1, 2, 0]])


def test_the_doctor_finds_equal_lists_and_has_figures_of_their_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = signals()
    rows = [{name: columns[name][row] for name in ("signal", "events", "kind")} for row in range(100)]
    other = "up" if rows[1]["kind"] == "down" else "down"
    tables = {"train": rows[:80], "val": [*rows[80:], rows[0], {**rows[1], "kind": other}]}
    for name, of in tables.items():
        pyarrow.parquet.write_table(pa.Table.from_pylist(of), tmp_path / f"{name}.parquet")
    files = f"dataset.files={{train: {tmp_path}/train.parquet, val: {tmp_path}/val.parquet}}"
    words = [word for word in words_of(tmp_path, columns=COLUMNS) if "dataset.files" not in word]
    words += [files, "dataset.split=train", "dataset.eval_split=val"]
    found = json.loads(said(capsys, "doctor", *words, "--format", "json", "--html", tmp_path / "page.html"))
    assert [(of["text"], of["places"]) for of in found["findings"]] == [
        ("1 row is in several splits", [f"{tmp_path}/train.parquet, row 0 = {tmp_path}/val.parquet, row 20"]),
        ("1 row is under several targets", [f"{tmp_path}/train.parquet, row 1 = {tmp_path}/val.parquet, row 21"]),
    ]
    events = next(of for of in found["splits"][0]["columns"] if of["name"] == "events")
    assert events["rows"] == sum(len(row["events"]) for row in tables["train"])
    assert (events["type"], events["quantiles"][0], events["quantiles"][-1]) == ("integers", 0, 3)


def test_lists_are_shown_after_each_step(lists: Path) -> None:
    plan = plan_of(*words_of(lists, "dataset.order=file", columns=COLUMNS))
    sheet = collect(plan, "train", Wanted(batches=1, examples=3))
    shown = {
        column.path: [as_text(cell["events"], view.features["events"]) for cell in view.cells]
        for column, view in sheet.views
    }
    assert shown == {
        "transform.parse": ["[0, 0, 2, 1, 2]", "[1, 3, 2, 3, 0, 3, 3, 0]", "[3]"],
        "transform.columns after step 1": ["[2, 2, 3, 4, 3]", "[4, 1, 3, 1, 2, 1, 1, 2]", "[1]"],
        "transform.columns": ["[3, 3, 4, 5, 4]", "[5, 2, 4, 2, 3, 2, 2, 3]", "[2]"],
    }
    signal = next(view for column, view in sheet.views if column.path == "transform.columns")
    assert as_text(signal.cells[1]["signal"], signal.features["signal"]) == "[0.1535, 0.0085, 0.0085, 0.208 ]"
