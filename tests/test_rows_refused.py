"""Rows that a run refuses to predict and to evaluate: those without a column, and with numbers beyond float32."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import etlrun
from tests.runs import run_here
from tests.tables import COLUMNS, houses, words_of, write_houses
from tests.trained import refused, said

INPUTS = ["area", "rooms", "kind", "garden"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and a run on their prices that names its columns, but no inputs."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    words = words_of(folder, "model=linear", "dataset.inputs=null", COLUMNS, target="{price: {number: standardize}}")
    given = [of for of in words if "emulated" not in of and "step_ms" not in of]
    assert run_here(folder / "prices", [*given, "trainer.epochs=1"])[0] == 0
    return folder


def loaded(folder: Path) -> etlrun.Run:
    found = etlrun.load(folder)
    assert isinstance(found, etlrun.Run)
    return found


def test_rows_without_an_input_that_the_training_chose_are_not_evaluated(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv.write_csv(houses().drop_columns(["kind", "area"]), path := rows / "lacking.csv")
    words = ("evaluate", rows / "prices", f"dataset.files={path}", "dataset.split=train")
    assert refused(capsys, *words, status=2) == [
        f"  {path}: found no column area, kind; expected the columns of the training, area, rooms, kind, garden, price",
        "    -> name the columns as in the table of the training",
    ]


TOO_LARGE = (
    "found {}; expected numbers of at most 3.403e+38, since a model {} float32\n"
    "    -> repair the value, or write it in the unit of the training"
)


@pytest.mark.parametrize("area", [1e42, -1e300])
def test_inputs_that_float32_does_not_hold_are_faults(
    area: float, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"area": 50.0, "rooms": 2, "garden": True, "kind": "flat"}
    with pytest.raises(etlrun.EtlrunError) as caught:
        loaded(rows / "prices").predict([row, {**row, "area": area}])
    wanted = TOO_LARGE.format(area, "takes")
    assert str(caught.value) == f"row 1, area: {wanted}"
    table = houses().slice(0, 2)
    table = table.set_column(table.schema.get_field_index("area"), "area", pa.array([50.0, area]))
    pq.write_table(table.select(INPUTS), inputs := rows / "inputs.parquet")
    with pytest.raises(SystemExit):
        said(capsys, "predict", rows / "prices", inputs)
    assert capsys.readouterr().err.endswith(f"  {inputs}, row 1, area: {wanted}\n")
    pq.write_table(table, large := rows / "large.parquet")
    words = (f"dataset.files={large}", "dataset.split=train", "--importance", "0")
    assert refused(capsys, "evaluate", rows / "prices", *words) == f"  {large}, row 1, area: {wanted}".splitlines()


def test_a_target_that_float32_does_not_hold_is_a_fault(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = houses().slice(0, 2)
    table = table.set_column(table.schema.get_field_index("price"), "price", pa.array([50.0, 1e40]))
    pq.write_table(table, large := rows / "costly.parquet")
    words = (f"dataset.files={large}", "dataset.split=train", "--importance", "0")
    wanted = f"  {large}, row 1, price: {TOO_LARGE.format(1e40, 'predicts')}"
    assert refused(capsys, "evaluate", rows / "prices", *words) == wanted.splitlines()


ROW = {"area": 50.0, "rooms": 2, "garden": True, "kind": "flat"}
KINDS = "expected a number of 64 bits, a truth value, a text, a time, or a list of numbers or of texts"
ABSENT = "convert the value, or leave it out, which is missing"
EMPTY = "repair the value: the column has the type of the training"
UNFIT: dict[str, tuple[Any, str]] = {
    "bytes": ([{**ROW, "area": b"3"}], f"row 0, area: found a value of type bytes; {KINDS}\n    -> {ABSENT}"),
    "a set": ([ROW, {**ROW, "area": {1}}], f"row 1, area: found a value of type set; {KINDS}\n    -> {ABSENT}"),
    "a complex": ([{**ROW, "area": 1j}], f"row 0, area: found a value of type complex; {KINDS}\n    -> {ABSENT}"),
    "too many digits": (
        [{**ROW, "area": 10**5000}],
        f"row 0, area: found a value of type int; {KINDS}\n    -> {ABSENT}",
    ),
    "a key": (
        [{**ROW, b"area": 3}],
        (
            "row 0: found the key b'area'; expected names of columns, which are texts\n"
            "    -> name the columns as in the table of the training"
        ),
    ),
    "an empty text": (
        [{**ROW, "area": ""}],
        f"row 0, area: found an empty text; expected a value of type number\n    -> {EMPTY}",
    ),
    "an empty text behind a number": (
        [ROW, {**ROW, "area": ""}],
        "row 1, area: found an empty text; expected a number, as in row 0\n    -> repair the row",
    ),
    "images": (
        b"abc",
        (
            "predict: found images for a model of area, band, garden, kind, rooms, sold; expected paths or rows\n"
            "    -> pass rows as mappings from columns to values, or dataset.split=SPLIT"
        ),
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_values_that_no_table_has_are_faults(name: str, rows: Path) -> None:
    given, message = UNFIT[name]
    with pytest.raises(etlrun.EtlrunError) as caught:
        loaded(rows / "prices").predict(given)
    assert str(caught.value) == message


def test_decimals_are_numbers(rows: Path) -> None:
    run = loaded(rows / "prices")
    given = [{**ROW, "area": Decimal("50.0"), "rooms": Decimal(2)}, {**ROW, "area": Decimal("NaN")}]
    wanted = run.predict([ROW, {**ROW, "area": None}])
    assert run.predict(given) == wanted
