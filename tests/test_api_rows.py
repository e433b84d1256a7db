"""Predictions of rows in memory by the Python API: those of the same rows in a file."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etlrun
from etlrun.api.predictions import _plain
from tests.runs import run_here
from tests.tables import houses, words_of, write_houses
from tests.trained import said

TARGETS = {"prices": "{price: {number: standardize}}", "bands": "{band: class}"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and two runs on them: of their prices, and of their bands."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    for name, target in TARGETS.items():
        words = [of for of in words_of(folder, "model=linear", target=target) if "emulated" not in of]
        status, _ = run_here(folder / name, [of for of in words if "step_ms" not in of] + ["trainer.epochs=1"])
        assert status == 0
    return folder


def loaded(folder: Path) -> etlrun.Run:
    found = etlrun.load(folder)
    assert isinstance(found, etlrun.Run)
    return found


INPUTS = ["area", "rooms", "kind", "garden"]


def test_tensorflow_warns_of_no_prediction_that_follows_others(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, given = loaded(rows / "prices"), houses().select(INPUTS).to_pylist()
    assert len({run.predict(given[place])[0].value for place in range(6)}) > 1
    assert [record.getMessage() for record in caplog.records if record.name == "tensorflow"] == []


@pytest.mark.parametrize("name", TARGETS)
def test_rows_are_predicted_as_those_of_a_file(name: str, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = [
        json.loads(line)
        for line in said(capsys, "predict", rows / name, rows / "houses.parquet", "--format", "jsonl").splitlines()
    ]
    run, given = loaded(rows / name), houses().select(INPUTS).to_pylist()
    found = run.predict(given)
    assert [of.row for of in found] == [*range(200)]
    if name == "prices":
        assert [of.value for of in found] == [of["value"] for of in written]
    else:
        assert [(of.class_name, of.probabilities) for of in found] == [
            (of["class"], of["probabilities"]) for of in written
        ]
    assert run.predict(given[3])[0].value == found[3].value
    of_numpy = {**given[0], "rooms": np.int64(given[0]["rooms"]), "garden": np.bool_(given[0]["garden"])}
    assert run.predict([of_numpy])[0] == found[0]


def test_a_missing_value_is_none_nan_or_no_key(rows: Path) -> None:
    run, row = loaded(rows / "prices"), {"area": 50.0, "rooms": 2, "garden": True}
    found = run.predict([{**row, "kind": "flat"}, {**row, "kind": None}, row, {**row, "kind": float("nan")}])
    values = [of.value for of in found]
    assert values[1] == values[2] == values[3] != values[0]


def test_faults_name_the_rows(rows: Path) -> None:
    run, row = loaded(rows / "prices"), {"area": 50.0, "rooms": 2, "garden": True, "kind": "flat"}
    with pytest.raises(etlrun.EtlrunError) as caught:
        run.predict([{"area": 1.0}])
    assert str(caught.value) == (
        "rows: found no column garden, kind, rooms; expected the columns that the model takes, area, garden, kind, "
        "rooms, and none that its training did not have\n"
        "    -> name the columns as in the table of the training, and leave out others"
    )
    with pytest.raises(etlrun.EtlrunError) as caught:
        run.predict([row, {**row, "rooms": "two"}])
    assert str(caught.value) == (
        "row 1, rooms: found a text: two; expected a number, as in row 0\n    -> repair the row"
    )


class Frame:
    columns = ("area",)

    def to_dict(self) -> dict[str, Any]:
        return {}


def test_of_a_frame_it_is_said_how_its_rows_are_passed(rows: Path) -> None:
    with pytest.raises(etlrun.EtlrunError) as caught:
        loaded(rows / "prices").predict(Frame())  # type: ignore[arg-type]
    assert str(caught.value) == (
        "predict: found a Frame; expected paths, overrides, images as bytes, or rows as mappings from columns to "
        "values\n    -> of a DataFrame pass frame.to_dict('records')"
    )


def test_values_of_numpy_and_times_are_plain() -> None:
    day = datetime(2020, 1, 31, 12, tzinfo=UTC)
    given = [np.float32(0.5), np.array([1, 2]), day, (1, float("nan")), np.datetime64("NaT"), "a", None]
    assert [_plain(of) for of in given] == [0.5, [1, 2], "2020-01-31T12:00:00+00:00", [1, None], None, "a", None]
