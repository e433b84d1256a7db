"""What models of rows and of arrays have learned: evaluated and predicted in the units of their tables."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

import etlrun
from etlrun.system.errors import ConfigError
from tests.configs import raised
from tests.golden import Case, Golden, cases
from tests.runs import run_here
from tests.servers import serving
from tests.tables import COLUMNS, houses, words_of, write_houses
from tests.trained import refusal, refused, said

INPUTS = ["kind", "garden", "rooms", "area"]


@pytest.mark.parametrize("name", ["fit", "drain"])
def test_runs_of_rows_speak_of_no_images(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_houses(tmp_path)
    others = ("trainer=drain", "trainer.step_ms=10") if name == "drain" else ("model.step_ms=10", "cache.codec=jpeg90")
    given = [word for word in words_of(tmp_path, *others) if word != "model.step_ms=0"]  # too short to be measured
    assert run_here(tmp_path / "run", given)[0] == 0
    printed = "".join(capsys.readouterr())
    page = re.sub("<style.*?</style>", "", (tmp_path / "run" / "report.html").read_text(), flags=re.DOTALL)
    told = [printed, page, *((tmp_path / "run" / each).read_text() for each in ("report.md", "plan.txt"))]
    assert [re.findall("(?i).*(?:image|picture|photo).*", text) for text in told] == [[]] * len(told)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and two runs on them: of their prices, and of their bands."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    pyarrow.csv.write_csv(houses().select(INPUTS), folder / "rows.csv")
    for name, target, *words in (
        ("prices", "{price: {number: standardize}}"),
        ("bands", "{band: binary}", "dataset.inputs=null", COLUMNS),
    ):
        learned(folder, name, "trainer.epochs=1", *words, target=target)
    return folder


@pytest.fixture(scope="module")
def of_arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with arrays, and two runs on them: on some of the columns, and on all."""
    folder = tmp_path_factory.mktemp("arrays")
    some = np.random.default_rng(0).random((60, 2, 3)).astype("float32")
    found: dict[str, Any] = {"x": some[:, 0, 0], "wide": some, "kind": np.array(["a", "b", "c"])[np.arange(60) % 3]}
    np.savez(folder / "all.npz", **found, y=np.arange(60))
    pyarrow.parquet.write_table(pyarrow.table({"x": found["x"], "kind": found["kind"]}), folder / "all.parquet")
    for name, values in found.items():
        np.save(folder / f"{name}.npy", values)
    files = f"dataset.files={folder / 'all.npz'}"
    np.savez(folder / "other.npz", x=np.zeros(3), wide=np.zeros((3, 2)), kind=np.array(["a"] * 3))
    words = [of for of in words_of(folder, "model=linear", target="{y: number}") if not of.startswith("dataset.files")]
    for name, inputs in (("narrow", "[x,kind]"), ("whole", "[x,kind,wide]")):
        own = (files, "dataset=arrays", f"dataset.inputs={inputs}", "trainer.epochs=1")
        (folder / name).mkdir()
        assert run_here(folder / name, [*words, *own])[0] == 0
    return folder


def learned(rows: Path, name: str, *words: str, target: str) -> dict[str, Any]:
    """The summary of a run on the houses in `rows`, in a folder of that name there."""
    (rows / name).mkdir()
    status, summary = run_here(rows / name, [*words_of(rows, "model=linear", *words, target=target)])
    assert status == 0
    return summary


def test_an_evaluation_of_numbers_is_in_their_units(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", rows / "prices", "--format", "json"))
    last = json.loads((rows / "prices" / "summary.json").read_text())["epochs"][-1]
    assert {name: found[name]["value"] for name in ("mae", "rmse", "r2")} == {
        name: pytest.approx(last["metrics"][f"val_{name}"], rel=1e-4) for name in ("mae", "rmse", "r2")
    }
    assert found["method"] == (
        "95 % intervals: percentiles of 1,000 bootstrap samples of the examples, drawn with seed 0"
    )
    assert found["then"]["mae"] == last["metrics"]["val_mae"]
    prices = houses()["price"].to_pylist()
    for mistake in found["mistakes"]:
        path, row = mistake["place"].split(", row ")
        assert path == str(rows / "houses.parquet")
        assert float(mistake["target"]) == pytest.approx(prices[int(row)], rel=1e-4)
        assert mistake["columns"] == houses().select(["area", "rooms", "kind", "garden"]).to_pylist()[int(row)]
    worth = found["importance"]
    assert (worth["measure"], worth["value"]) == ("mae", pytest.approx(found["mae"]["value"], rel=1e-5))
    assert {of["name"] for of in worth["columns"]} == {*INPUTS}
    assert (worth["examples"], worth["repeats"], worth["predictions"]) == (40, 5, 40 * 21)
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
    assert found["thresholds"][0]["threshold"] == 0.5
    assert found["thresholds"][0]["f1"] == found["classes"][1]["f1"]
    text = said(capsys, "evaluate", rows / "bands")
    assert "threshold of dear" in text


def test_a_threshold_decides_which_class_is_predicted(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--threshold", "0.9", "--importance", "0", "--format", "json")
    found = json.loads(said(capsys, "evaluate", rows / "bands", *words))
    of_split = said(capsys, "predict", rows / "bands", 'dataset.split="train[80%:]"').splitlines()
    above = sum(float(of["probability_dear"]) > 0.9 for of in csv.DictReader(of_split))
    assert found["classes"][1]["predicted"] == above == sum(row[1] for row in found["confusion"])
    assert found["importance"] is None


@pytest.mark.parametrize("case", cases("rows_trained"))
def test_what_a_run_of_rows_can_not_read_is_refused(
    rows: Path, of_arrays: Path, case: Case, golden: Golden, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    golden(case, refusal(capsys, case, RUNS=rows, ARRAYS=of_arrays, DIR=tmp_path))


def test_other_rows_have_the_columns_that_the_training_has_fitted(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.parquet.write_table(houses().slice(150), rows / "others.parquet")
    words = (f"dataset.files={rows / 'others.parquet'}", 'dataset.split="train[:50]"')
    found = json.loads(said(capsys, "evaluate", rows / "prices", *words, "--format", "json"))
    whole = json.loads(said(capsys, "evaluate", rows / "prices", 'dataset.split="train"', "--format", "json"))
    wanted = {of["target"]: of["predicted"] for of in whole["mistakes"]}
    both = [of for of in found["mistakes"] if of["target"] in wanted]
    assert both
    assert all(of["predicted"] == wanted[of["target"]] for of in both)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("prices", ["rows.csv"]),
        ("bands", ["rows.csv"]),
        ("whole", ["all.npz"]),
        ("whole", ["x.npy", "kind.npy", "wide.npy"]),
        ("narrow", ["all.parquet"]),
    ],
)
def test_rows_of_files_are_predicted_as_those_of_the_training(
    rows: Path, of_arrays: Path, name: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = rows if files == ["rows.csv"] else of_arrays
    found = [*csv.DictReader(said(capsys, "predict", folder / name, *(folder / of for of in files)).splitlines())]
    of_split = csv.DictReader(said(capsys, "predict", folder / name, 'dataset.split="train"').splitlines())
    known = {int(of["path"].rpartition(" ")[2]): of for of in of_split}
    first, *_, last = found[0]
    assert [int(of[first]) for of in found] == [*range(len(found))] == sorted(known)
    wanted = [float(known[row][last]) for row in range(len(found))]
    np.testing.assert_allclose([float(of[last]) for of in found], wanted, rtol=1e-5, atol=1e-6)
    assert [of.get("class") for of in found] == [known[row].get("class") for row in range(len(found))]


def test_tables_of_another_dialect_are_predicted_and_evaluated(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    pyarrow.csv.write_csv(houses(), plain)
    pyarrow.csv.write_csv(houses(), other, pyarrow.csv.WriteOptions(delimiter=";"))
    csv_is = 'dataset.csv={separator: ";"}'
    assert said(capsys, "predict", rows / "prices", other, csv_is) == said(capsys, "predict", rows / "prices", plain)
    of_files = [
        json.loads(said(capsys, "evaluate", rows / "prices", f"dataset.files={path}", *words, "--format", "json"))[
            "loss"
        ]
        for path, words in ((plain, ()), (other, (csv_is,)))
    ]
    assert of_files[0] == of_files[1]


def test_tables_of_urls_are_predicted_as_the_same_files(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for place, path in enumerate(paths):
        pyarrow.csv.write_csv(houses().select(INPUTS).slice(5 * place, 5), path)
    with serving() as server:
        urls = [server.put(path.name, path.read_bytes()) for path in paths]
        there = said(capsys, "predict", rows / "prices", *urls)
        bad = server.put("bad.csv", b"area,rooms\n1,2\n")
        assert refused(capsys, "predict", rows / "prices", bad, status=2)[0].startswith(f"  {bad}: found no column ")
        other = server.put("houses.parquet", (rows / "houses.parquet").read_bytes())
        of_other = ("evaluate", rows / "prices", f"dataset.files={other}", "dataset.split=train", "--format", "json")
        found = json.loads(said(capsys, *of_other))
        assert found["mistakes"][0]["place"].startswith(f"{other}, row ")
        ragged = server.put("ragged.csv", paths[0].read_bytes() + b"1\n")
        assert refused(capsys, "predict", rows / "prices", ragged)[0].startswith(f"  {ragged}, line 7: found ")
    here = said(capsys, "predict", rows / "prices", *paths)
    assert there == here.replace(f"{tmp_path}/", f"{server.url}/")


def test_a_run_whose_table_is_gone_predicts_and_is_evaluated_on_another(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = said(capsys, "predict", rows / "bands", rows / "rows.csv")
    loss = json.loads(said(capsys, "evaluate", rows / "bands", 'dataset.split="train"', "--format", "json"))["loss"]
    expected = "the rows to read: the folder of a run has what their columns have learned, and no rows"
    (rows / "houses.parquet").rename(tmp_path / "houses.parquet")
    try:
        assert said(capsys, "predict", rows / "bands", rows / "rows.csv") == before
        assert refused(capsys, "evaluate", rows / "bands", status=2) == [
            f"  dataset.files: found no rows on this machine; expected {expected}",
            "    -> restore the files, or set dataset.files to a copy of those",
        ]
        words = (f"dataset.files={tmp_path / 'houses.parquet'}", "dataset.split=train", "--format", "json")
        assert json.loads(said(capsys, "evaluate", rows / "bands", *words))["loss"] == pytest.approx(loss)
    finally:
        (tmp_path / "houses.parquet").rename(rows / "houses.parquet")


def test_json_lines_of_rows_have_their_numbers(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow.parquet.write_table(houses().slice(5, 2), rows / "two.parquet")
    lines = said(capsys, "predict", rows / "prices", rows / "two.parquet", "--format", "jsonl").splitlines()
    assert [sorted(json.loads(line)) for line in lines] == [["row", "value"]] * 2
    assert [json.loads(line)["row"] for line in lines] == [0, 1]


@pytest.mark.parametrize("command", ["predict", "evaluate", "API"])
def test_a_missing_value_of_a_column_without_steps_is_refused(
    command: str, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = houses().set_column(4, "garden", pyarrow.array([True] * 3 + [None] + [False] * 196))
    (folder := rows / "no_garden").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(new.slice(0, 2), folder / "a.parquet")
    pyarrow.parquet.write_table(new.slice(2), folder / "b.parquet")
    if command == "API":
        run = etlrun.load(rows / "prices")
        assert isinstance(run, etlrun.Run)
        told = raised(ConfigError, run.predict, new.select(["area", "rooms", "kind", "garden"]).to_pylist())
        where, row, lines = "rows", "row 3", told.splitlines()
    else:
        files = {"predict": [f"{folder}/*.parquet"]}.get(
            command, [f"dataset.files={folder}/*.parquet", "dataset.split=train"]
        )
        where, row = f"{folder}/a.parquet, {folder}/b.parquet", f"row 1 of {folder}/b.parquet"
        lines = refused(capsys, command, rows / "prices", *files, status=2)
    assert [line.strip() for line in lines] == [
        (
            f"{where}: found garden: float32 of which some are missing, the first of which is {row}; "
            "expected a value in each row"
        ),
        "-> write such values, or train again: put {fill: median} before it",
    ]


def test_the_rows_of_several_tables_are_written_as_parquet(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, first in (("first.parquet", 0), ("second.parquet", 150)):
        pyarrow.parquet.write_table(houses().slice(first, 50), rows / name)
    paths = [rows / "second.parquet", rows / "first.parquet"]
    said(capsys, "predict", rows / "bands", *paths, "--format", "parquet", "--output", rows / "found.parquet")
    said(capsys, "predict", rows / "bands", rows / "houses.parquet", "--output", rows / "found.csv")
    found, whole = pyarrow.parquet.read_table(rows / "found.parquet"), pyarrow.csv.read_csv(rows / "found.csv")
    assert found.column_names == ["path", "row", *whole.column_names[1:]]
    assert found["path"].to_pylist() == [str(path) for path in paths for _ in range(50)]
    assert found["row"].to_pylist() == [*range(50), *range(50)]
    wanted = [*whole["class"].to_pylist()[150:], *whole["class"].to_pylist()[:50]]
    assert found["class"].to_pylist() == wanted
    exact = [*whole["probability_dear"].to_pylist()[150:], *whole["probability_dear"].to_pylist()[:50]]
    np.testing.assert_allclose(found["probability_dear"], exact, rtol=1e-5)


@pytest.mark.slow
def test_a_resumed_training_has_the_losses_and_errors_of_a_whole_one(rows: Path) -> None:
    target = "{price: {number: standardize}}"
    whole = learned(rows, "whole", target=target)
    resumed = learned(rows, "resumed", f"trainer.resume={rows / 'prices'}", target=target)
    last, again = whole["epochs"][-1], resumed["epochs"][-1]
    assert sorted(last["metrics"]) == ["mae", "r2", "rmse", "val_mae", "val_r2", "val_rmse"]
    assert [last[name] for name in ("loss", "val_loss", "metrics")] == [
        again[name] for name in ("loss", "val_loss", "metrics")
    ]
