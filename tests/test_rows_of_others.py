"""Other tables for models of rows: their types are those of the training, and values that it lacks are named."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

from tests.runs import run_here
from tests.tables import a_table, kept_from, words_of
from tests.trained import said

COLUMNS = "transform.columns={zip: {of: zip, steps: [{lookup: {oov: error}}, one_hot]}}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose codes are text."""
    folder = tmp_path_factory.mktemp("codes")
    codes = ["012", "300", "400", "a5"] * 10
    pyarrow.csv.write_csv(pa.table({"zip": codes, "price": [1.0, 2.5, 3.0, 4.0] * 10}), folder / "codes.csv")
    given = words_of(folder, f"dataset.files={folder}/codes.csv", "dataset.inputs=[zip]", "model=linear", COLUMNS)
    words = [word for word in given if "emulated" not in word and "step_ms" not in word]
    (folder / "run").mkdir()
    assert run_here(folder / "run", words)[0] == 0
    return folder / "run"


def test_another_table_has_the_types_of_the_training(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow.csv.write_csv(pa.table({"zip": [300, 400] * 4, "price": [2, 3] * 4}), run / "other.csv")
    words = (f"dataset.files={run}/other.csv", "dataset.split=train")
    assert json.loads(said(capsys, "evaluate", run, *words, "--format", "json"))["examples"] == 8


def test_evaluations_of_two_tables_with_one_name_stand_beside_each_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [tmp_path / name / "codes.csv" for name in ("spring", "autumn")]
    for place, count in zip(places, (8, 12), strict=True):
        place.parent.mkdir()
        pyarrow.csv.write_csv(
            pa.table({"zip": ["012", "300"] * (count // 2), "price": [1.0, 2.5] * (count // 2)}), place
        )
    said(capsys, "evaluate", run, "dataset.split=train")
    own = (run / "evaluations" / "train.json").read_text()
    found = []
    for place in (*places, places[0]):
        words = (f"dataset.files={place}", "dataset.split=train", "--format", "json")
        of = json.loads(said(capsys, "evaluate", run, *words))
        found.append((of["name"], of["dataset"], of["examples"]))
    first, second = (str(place) for place in places)
    assert found == [("codes.csv train", first, 8), ("codes.csv train 2", second, 12), ("codes.csv train", first, 8)]
    assert (run / "evaluations" / "train.json").read_text() == own


def test_a_value_that_is_in_no_vocabulary_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow.csv.write_csv(pa.table({"zip": ["300", "400", "b7"]}), run / "rows.csv")
    with pytest.raises(SystemExit):
        said(capsys, "predict", run, run / "rows.csv")
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  {run}/rows.csv, row 2, zip: found b7; expected values that the steps of zip accept, as in the training",
        "    -> repair the value, or train with a `lookup` whose `oov` is 1",
    ]


def test_types_of_columns_are_those_that_a_config_would_declare(tmp_path: Path) -> None:
    text = "n,x,t,day,word,none,price\n1,1.5,true,2020-01-01T00:00:00Z,a,,1\n2,,,2020-01-02T00:00:00Z,b,,2\n"
    known = kept_from(tmp_path, "rows.csv", text).known
    types = a_table("rows.csv", tmp_path, known=known, columns={"n": "text"}).types
    assert types == {
        "n": "text",
        "x": "number",
        "t": "truth",
        "day": "timestamp",
        "word": "text",
        "none": "number",
        "price": "integer",
    }
