"""Targets, labels and weights of rows that are refused, each with its row or its option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.configs import refusal_of_plan
from tests.tables import NUM_ROWS, words_of
from tests.test_rows_several import learning, several


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    return folder


def changed(folder: Path, **columns: Any) -> None:
    """Write the rows again, some columns of which are others."""
    found = several()
    for name, values in columns.items():
        found = found.set_column(found.column_names.index(name), name, pa.array(values))
    pyarrow.parquet.write_table(found, folder / "houses.parquet")


TIMES = several()["times"].to_pylist()
COLUMNS = "area, rooms, kind, sold, garden, price, band, tags, times"
OF_WEIGHTS = {
    "none": ({}, "count", f"no column count; expected one of {COLUMNS}\n    -> check its name"),
    "missing": (
        {"times": [1, None, *TIMES[2:]]},
        "times",
        (
            "1 row of times without a value, the first of which is row 1; expected a weight of each row\n"
            "    -> correct the column, or set dataset.weight=null"
        ),
    ),
    "NaN": (
        {"times": [1.0, float("nan"), *map(float, TIMES[2:])]},
        "times",
        (
            "1 row of times without a value, the first of which is row 1; expected a weight of each row\n"
            "    -> correct the column, or set dataset.weight=null"
        ),
    ),
    "negative": (
        {"times": [*TIMES[:5], -2, *TIMES[6:]]},
        "times",
        "times of -2 in row 5; expected weights of at least 0\n    -> correct the column, or set dataset.weight=null",
    ),
    "all 0": (
        {"times": [0] * NUM_ROWS},
        "times",
        (
            "times, which is 0 in each of the 160 rows of train[:80%]; expected a positive weight of some row\n"
            "    -> choose another split, or set dataset.weight=null\n"
            "dataset.weight: found times, which is 0 in each of the 40 rows of train[80%:]; expected a positive weight "
            "of some row\n    -> choose another split, or set dataset.weight=null"
        ),
    ),
    "text": (
        {},
        "kind",
        (
            "kind, which is text; expected a column with a number in each row\n"
            "    -> correct the column, or set dataset.weight=null"
        ),
    ),
}


@pytest.mark.parametrize("case", OF_WEIGHTS)
def test_weights_that_are_none_are_refused(tmp_path: Path, case: str) -> None:
    columns, name, message = OF_WEIGHTS[case]
    changed(tmp_path, **columns)
    found = refusal_of_plan(*words_of(tmp_path, "dataset.inputs=[rooms]", f"dataset.weight={name}"))
    assert found == f"dataset.weight: found {message}"


NOT_TO_LEARN = {
    "no separator": (
        {"tags": ["sea,old"] * NUM_ROWS},
        "{tags: labels}",
        (
            "tags, which is text, such as 'sea,old'; expected the text between two labels\n"
            "    -> set 'dataset.target={tags: {labels: \",\"}}'"
        ),
    ),
    "numbers": (
        {},
        "{times: {labels: ','}}",
        (
            "times, which is int64 in [0, 2]; expected a column of text, of which the separator divides the labels\n"
            "    -> set 'dataset.target={times: labels}'"
        ),
    ),
    "no array": (
        {},
        "{times: labels}",
        (
            "times of shape [], int64 in [0, 2]; expected an array with a 0 or a 1 for each label\n"
            "    -> save such an array, or name another column"
        ),
    ),
    "no label": (
        {"tags": [" , "] * NUM_ROWS},
        "{tags: {labels: ','}}",
        (
            "0 labels in the training split; expected from 1 to 10,000 different ones\n"
            "    -> name the text between two labels of a row: {labels: ','}"
        ),
    ),
    "of the validation alone": (
        {"tags": ["sea"] * 180 + ["sea,hill"] * 20},
        "{tags: {labels: ','}}",
        (
            "tags of hill in 20 rows of train[80%:], the first of which is row 180; expected values that train[:80%] "
            "has, since no other label is learned\n"
            "    -> choose splits that have all labels, such as a larger training split, or leave these rows out"
        ),
    ),
    "two at once": (
        {},
        "{cost: number, kind: class}",
        (
            f"no column cost; expected one of {COLUMNS}\n    -> check its name\n"
            "dataset.target: found 12 rows of kind without a value, the first of which is row 13; expected a value in "
            "each row to learn from\n    -> leave these rows out of the files"
        ),
    ),
}


@pytest.mark.parametrize("case", NOT_TO_LEARN)
def test_targets_that_can_not_be_learned_are_refused(tmp_path: Path, case: str) -> None:
    columns, target, message = NOT_TO_LEARN[case]
    changed(tmp_path, **columns)
    given = words_of(tmp_path, "dataset.inputs=[rooms]", "dataset.order=file", target=target)
    assert refusal_of_plan(*given) == f"dataset.target: found {message}"


UNLIKE: dict[tuple[str, ...], str] = {
    ("transform.columns={far: {of: times}}",): (
        "transform.columns.far.of: found times, which is the weight; expected inputs alone\n"
        "    -> leave it out; dataset.weight says what is made of it"
    ),
    ("transform.columns={far: {of: band}}",): (
        "transform.columns.far.of: found band, which is a target; expected inputs alone\n"
        "    -> leave it out; dataset.target says what is made of it"
    ),
}


@pytest.mark.parametrize("others", UNLIKE)
def test_values_for_other_targets_are_refused(rows: Path, others: tuple[str, ...]) -> None:
    assert refusal_of_plan(*learning(rows, *others)) == UNLIKE[others]
