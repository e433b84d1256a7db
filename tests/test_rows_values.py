"""Values of rows of which the types or the names were taken for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.planning.columns import misnamed
from etlrun.sources.base import open_source
from etlrun.stages.column_categories import Cross, Identity, Lookup
from etlrun.stages.column_numbers import Fill, Standardize
from etlrun.stages.columns import Columns, Output, with_indicators
from etlrun.stages.flow import Feature
from etlrun.system.errors import ConfigError, EtlrunError
from tests.configs import plan_of
from tests.programs import program_of
from tests.tables import NUM_ROWS, houses, words_of


def test_classes_that_are_truth_values_have_labels(table: Path, tmp_path: Path) -> None:
    by_class = ("load.sample=uniform_by_class", "load.shuffle=full", "dataset.inputs=[area]", "dataset.order=file")
    plan = plan_of(*words_of(table, *by_class, target="{garden: class}"))
    source: Any = open_source(plan.spec.dataset)
    gardens = np.array(houses()["garden"].to_pylist(), int)
    np.testing.assert_array_equal(source.labels_of(source.split("train", "")), gardens)
    np.testing.assert_array_equal(program_of(plan, tmp_path).labels_of("train"), gardens)


def table_of(folder: Path, **columns: Any) -> tuple[str, ...]:
    """Arguments of a run on a table with these columns and a price, of which all are inputs."""
    price = np.random.default_rng(0).random(NUM_ROWS)
    pyarrow.parquet.write_table(pa.table({"price": price, **columns}), folder / "houses.parquet")
    return words_of(folder, "dataset.inputs=null", "dataset.order=file")


def chosen(*words: str) -> dict[str, list[str]]:
    (step,) = (step for step in plan_of(*words).spec.transform.steps if isinstance(step, Columns))
    return {of.name: [step.name for step in of.steps] for of in step.chosen}


NUMBERS = np.random.default_rng(1).random(NUM_ROWS)
LATE = np.arange(NUM_ROWS) >= NUM_ROWS - 10
"""Rows of the validation alone."""


def test_names_that_auto_would_give_twice_are_refused(tmp_path: Path) -> None:
    age = pa.array(NUMBERS, mask=NUMBERS < 0.2)
    days = (np.arange(NUM_ROWS) * 30).astype("datetime64[D]")
    with pytest.raises(ConfigError) as refused:
        plan_of(*table_of(tmp_path, age=age, age_missing=NUMBERS, day=days.astype("datetime64[us]"), day_hour=NUMBERS))
    assert str(refused.value) == (
        "transform.columns.age_missing: found an output of age and one of age_missing; "
        "expected one output of auto of that name\n"
        "    -> leave one of them out of dataset.inputs, or name the columns with their steps in transform.columns"
    )


def test_auto_takes_what_is_true_of_all_rows(tmp_path: Path) -> None:
    days = (np.arange(NUM_ROWS) * 7 + 10_000).astype("datetime64[D]").astype("datetime64[us]")
    tail = np.where(LATE, -5.0, np.random.default_rng(0).lognormal(0, 2, NUM_ROWS))
    found = chosen(*table_of(tmp_path, day=pa.array(days, mask=LATE), tail=tail))
    assert found == {
        "day_year": ["part", "fill", "standardize"],
        "day_month": ["part", "fill", "identity", "one_hot"],
        "tail": ["standardize"],
    }


def test_large_integers_are_numbers_and_categories(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ids = draw.choice(draw.integers(2**60, 2**62, NUM_ROWS), NUM_ROWS)
    few = 2**60 + np.arange(NUM_ROWS) % 5
    found = chosen(*table_of(tmp_path, id=ids, few=few))
    assert found == {"id": ["standardize"], "few": ["lookup", "one_hot"]}
    lookup = Lookup(values=(2**60, 2**60 + 2))
    assert lookup.unknown(pa.array([2**60, 2**60 + 1, 2**60 + 2, None])).to_pylist() == [2**60 + 1]


def test_a_name_of_a_column_and_of_an_output_above_is_refused() -> None:
    features = {"age": Feature(dtype="float64"), "zip": Feature(dtype="int64")}
    age = Output(name="age", of=("age",), steps=(Fill(value="median", indicator=True), Standardize()))
    place = Output(name="place", of=("age", "zip"), steps=(Cross(bins=10),))
    assert list(misnamed(Columns(outputs=with_indicators([place, age])), features, ())) == []
    (fault,) = misnamed(Columns(outputs=with_indicators([age, place])), features, ())
    assert str(fault) == (
        "transform.columns.place.of: found age, which is a column and an output above it; "
        "expected the name of one of them\n"
        "    -> give the output age another name, such as age_0, and `of: age`"
    )


def test_a_class_of_several_values_in_each_row_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", NUMBERS)
    np.save(tmp_path / "y.npy", np.arange(NUM_ROWS).reshape(-1, 1) % 3)
    words = [word for word in words_of(tmp_path) if not word.startswith("dataset")]
    files = f"dataset.files={{x: {tmp_path}/x.npy, y: {tmp_path}/y.npy}}"
    with pytest.raises(ConfigError) as refused:
        plan_of("dataset=arrays", files, f"dataset.dir={tmp_path}/kept", "dataset.target={y: class}", *words)
    assert str(refused.value) == (
        "dataset.target: found y of shape [1] in each row; expected one value in each row as a class\n"
        "    -> save the array as y.reshape(-1), or its argmax of axis 1"
    )


def test_identity_refuses_fractions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_of(*table_of(tmp_path, x=NUMBERS), "transform.columns={x: {steps: [{identity: 4}]}}")
    assert str(refused.value) == (
        f"transform.columns.x.steps[0]: found float64 in [{NUMBERS.min():.6g}, {NUMBERS.max():.6g}]; "
        "expected integers\n    -> put `bucketize` or `quantiles` in its place"
    )
    assert Identity.op(tf.constant([0.0, 3.0]), categories=4).numpy().tolist() == [0, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        Identity.op(tf.constant([0.0, 1.7, 3.0]), categories=4)


def test_a_vocabulary_begins_behind_a_mark_of_unicode(tmp_path: Path) -> None:
    (tmp_path / "kinds.txt").write_text("fair\ngood\n", encoding="utf-8-sig")
    assert Lookup(file=str(tmp_path / "kinds.txt")).opened().values == ("fair", "good")


@pytest.mark.parametrize("columns", ["auto", "{a: {of: a}}"])
def test_numbers_that_a_model_can_not_take(tmp_path: Path, columns: str) -> None:
    rows = [f"{number % 13 * 1e300},{1e300 + number % 20 * 1e300}" for number in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["a,price", *rows]))
    words = words_of(tmp_path, f"dataset.files={tmp_path}/a.csv", "dataset.inputs=[a]", f"transform.columns={columns}")
    with pytest.raises(EtlrunError) as caught:
        plan_of(*words)
    of_column = {
        "auto": (
            "found numbers from 0 to 1.2e+301, whose standard deviation is infinite; expected numbers whose squares "
            "are finite\n    -> repair them, write them in a larger unit, or put `clip` before it"
        ),
        "{a: {of: a}}": (
            "found numbers from 0 to 1.2e+301; expected numbers of at most 3.403e+38, since a model takes float32"
            "\n    -> repair them, or put `clip` or `standardize` behind the other steps"
        ),
    }
    assert str(caught.value) == (
        f"transform.columns.a.steps[0]: {of_column[columns]}\n"
        "dataset.target: found numbers from 1e+300 to 2e+301; expected numbers of at most 3.403e+38, since a model "
        "predicts float32\n    -> repair them, or write them in a larger unit"
    )
