"""Rows of the validation that the training has, too: how many a plan notes, and when it counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.planning.planner import plan
from etlrun.sources.rows import leaks
from tests.configs import plan_of, spec_of
from tests.tables import words_of

SPLITS = ("dataset.order=file", "dataset.split='train[:100]'", "dataset.eval_split='train[100:]'")


def written(folder: Path, **others: Any) -> tuple[str, ...]:
    """Arguments of a run on 120 rows: of the last 20, 3 are as in the training, and 2 are with another target."""
    rng = np.random.default_rng(0)
    area, kind, price = rng.random(120), rng.integers(0, 50, 120), rng.random(120)
    for row, same in ((100, 7), (101, 7), (102, 99), (103, 0), (104, 1)):
        area[row], kind[row] = area[same], kind[same]
        price[row] = price[same] + (row in (103, 104))
    area[[5, 105]] = np.nan
    pyarrow.parquet.write_table(
        pa.table({"area": area, "kind": kind, "price": price, **others}), folder / "houses.parquet"
    )
    return tuple(word for word in words_of(folder, *SPLITS) if not word.startswith("dataset.inputs"))


def notes_of(words: tuple[str, ...]) -> list[str]:
    return [note for note in plan_of(*words).remarks if "of 20 rows" in note]


def test_rows_in_two_splits_are_noted_with_the_same_and_with_another_target(tmp_path: Path) -> None:
    assert notes_of(written(tmp_path)) == [
        "3 of 20 rows of train[100:] are also in train[:100], with the same target.",
        "2 of 20 rows of train[100:] have the inputs of rows in train[:100], and another target.",
    ]


def test_a_column_with_another_value_in_each_row_is_left_out(tmp_path: Path) -> None:
    assert notes_of(written(tmp_path, id=np.arange(120), name=[f"house {row}" for row in range(120)])) == [
        "3 of 20 rows of train[100:] are also in train[:100], with the same target if id and name are left out.",
        (
            "2 of 20 rows of train[100:] have the inputs of rows in train[:100], and another target if id and name are "
            "left out."
        ),
    ]


def test_rows_that_are_equal_by_chance_or_read_twice_are_not_noted(table: Path, tmp_path: Path) -> None:
    few = words_of(table, "dataset.inputs=[rooms,garden]", target="{band: class}")
    assert not [note for note in plan_of(*few).remarks if "also in" in note or "have the inputs" in note]
    words = (*written(tmp_path), "dataset.eval_split='train[90:]'")
    assert not [note for note in plan_of(*words).remarks if "also in" in note]


def test_rows_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = written(tmp_path)
    before = plan(spec_of(*words)).remarks
    monkeypatch.setattr(leaks, "hashes_of", None)
    assert plan(spec_of(*words)).remarks == before
    with pytest.raises(TypeError):
        plan(spec_of(*words, "dataset.eval_split='train[101:]'"))
