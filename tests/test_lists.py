"""Columns of lists of numbers, as they are read and kept, and what is refused of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from etlrun.sources.base import open_source
from etlrun.sources.rows.kept import Kept
from etlrun.sources.rows.table import kept_of
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of, refusal_of_plan
from tests.lists import words_of
from tests.pipelines import training_pipeline
from tests.tables import a_table, message
from tests.test_rows_python import installed

FEW: dict[str, list[Any]] = {
    "x": [[0.5, 0.0], [], None, [-1.5]],
    "n": [[2**60], [7, 0], [], None],
    "price": [1, 2, 3, 4],
}
FORMS: dict[str, Any] = {
    "a.parquet": lambda path: pyarrow.parquet.write_table(pa.table(FEW), path),
    "a.feather": lambda path: pyarrow.feather.write_feather(pa.table(FEW), path),
    "a.jsonl": lambda path: path.write_text(
        "".join(json.dumps({name: of[row] for name, of in FEW.items()}) + "\n" for row in range(4))
    ),
}


def lists_in(kept: Kept, name: str) -> list[list[float]]:
    whole: list[list[float]] = kept.arrow(name).to_pylist()
    numbers = np.array([3, 0, 0, 1])
    assert [of.tolist() for of in kept.take(name, numbers)] == [whole[number] for number in numbers]
    return whole


@pytest.mark.parametrize("name", FORMS)
def test_lists_are_kept_as_they_are(tmp_path: Path, name: str) -> None:
    FORMS[name](tmp_path / name)
    kept = kept_of(a_table(str(tmp_path / name), tmp_path / "kept"))
    assert lists_in(kept, "x") == [[0.5, 0.0], [], [], [-1.5]]
    assert lists_in(kept, "n") == [[2**60], [7, 0], [], []]
    assert {of: str(column.feature) for of, column in kept.known.columns.items()} == {
        "x": "float64 [?] in [-1.5, 0.5]",
        "n": "int64 [?] in [0, 1.15292e+18]",
        "price": "int64 in [1, 4]",
    }
    assert [column.type for column in kept.known.columns.values()] == ["numbers", "integers", "integer"]


LISTS = {
    "plain": pa.list_(pa.int32()),
    "large": pa.large_list(pa.int16()),
    "view": pa.list_view(pa.int64()),
    "large_view": pa.large_list_view(pa.int32()),
}
ITEMS: list[Any] = [[1, 2, 3], [4, None], None, [], [5]] * 4
OF_TWO: list[Any] = [[1, 2], [None, 3], None, [4, 5], [6, 7]] * 4


def write_lists(path: Path) -> None:
    columns: dict[str, Any] = {name: pa.array(ITEMS, kind) for name, kind in LISTS.items()}
    rows = pa.table({**columns, "fixed": pa.array(OF_TWO, pa.list_(pa.float32(), 2)), "kind": ["a", "b"] * 10})
    write = pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.feather.write_feather
    write(rows, path)


@pytest.mark.parametrize("name", ["signals.parquet", "signals.feather"])
def test_lists_of_all_types_of_arrow_are_sequences(name: str, tmp_path: Path) -> None:
    write_lists(tmp_path / name)
    kept = kept_of(a_table(str(tmp_path / name), tmp_path / "kept", target={"kind": "class"}))
    for column in LISTS:
        assert kept.arrow(column).to_pylist() == [of or [] for of in ITEMS]
    assert kept.arrow("fixed").to_pylist() == [of or [] for of in OF_TWO]


@pytest.mark.parametrize("boundaries", ["[]", "[2,4]"])
def test_batches_of_lists_of_all_types_are_equal(boundaries: str, tmp_path: Path) -> None:
    write_lists(tmp_path / "signals.parquet")
    columns = ", ".join(f"{name}: {{of: {name}, steps: [{{fill: 0}}]}}" for name in (*LISTS, "fixed"))
    given = ("dataset.split=train", "dataset.eval_split=null", "load.batch_size=5", f"load.boundaries={boundaries}")
    with training_pipeline(plan_of(*words_of(tmp_path, *given, columns=columns))) as pipeline:
        batches = [inputs for inputs, _ in pipeline.dataset.as_numpy_iterator()]
    filled = [[0.0 if item is None else item for item in of or []] for of in ITEMS]
    for name in LISTS:
        rows = [row[~np.isnan(row)].tolist() for inputs in batches for row in inputs[name]]
        assert sorted(rows) == sorted(filled)
        assert all(inputs[name].shape == inputs["fixed"].shape for inputs in batches)


def test_a_function_yields_arrays_of_different_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    for n in range(5000):\n        yield {'x': np.arange(n % 3) / 2, 'n': [1] * (n % 2), 'price': n}\n"
    source: Any = open_source(plan_of(*installed(tmp_path, monkeypatch, body), "load=padded").spec.dataset)
    assert [of.tolist() for of in source.kept.take("x", np.array([4997, 4998]))] == [[0.0, 0.5], []]
    assert [of.tolist() for of in source.kept.take("n", np.array([4997, 4998]))] == [[1], []]


def test_fixed_lists_are_sequences_and_what_is_missing_in_them_is_filled(tmp_path: Path) -> None:
    fixed = pa.array([[1, 2], [3, None], [5, 6]], pa.list_(pa.int32(), 2))
    pyarrow.parquet.write_table(
        pa.table({"x": fixed, "y": [[float("nan")], [], [2.0]], "kind": ["a", "b", "a"]}), tmp_path / "signals.parquet"
    )
    whole = "dataset.split=train", "dataset.eval_split=null", "trainer.early_stopping.monitor=loss"
    words = words_of(tmp_path, *whole, "model=text", columns="x: {of: x}, y: {of: y}")
    assert refusal_of_plan(*words) == (
        "model.text: found 16 x {x: float32 [?] in [1, 6], y: float32 [?] in [2, 2]}, kind before it; expected a "
        "value of x in each row\n    -> add {fill: median} to its steps"
    )
    filled = "x: {of: x, steps: [{fill: median}, {clip: [0, null]}]}, y: {of: y, steps: [{fill: -1}]}"
    words = words_of(tmp_path, *whole, columns=filled)
    with training_pipeline(plan_of(*words, "load.shuffle_buffer=0", "load.shuffle=buffer")) as pipeline:
        ((inputs, _),) = list(pipeline.dataset.as_numpy_iterator())
    nan = np.nan
    np.testing.assert_array_equal(inputs["x"][:, :3], [[5, 6, nan], [1, 2, nan], [3, 3, nan]])
    np.testing.assert_array_equal(inputs["y"][:, :2], [[2, nan], [-1, nan], [nan, nan]])
    assert inputs["x"].shape == (3, 8)


FAULTS: dict[str, tuple[str, Any, str]] = {
    "lists of texts and numbers": (
        "a.jsonl",
        '{"x": ["a", 1], "price": 1}\n',
        (
            "a.jsonl, line 1, x: found a list of several types; expected a list whose items are of one type\n"
            "    -> repair the line"
        ),
    ),
    "lists and numbers": (
        "a.jsonl",
        '{"x": [1], "price": 1}\n{"x": null, "price": 1}\n{"x": 3, "price": 2}\n',
        "a.jsonl, line 3, x: found a number: 3; expected a list, as in line 1\n    -> repair the line",
    ),
    "an infinite number": (
        "a.parquet",
        pa.table({"x": [[1.0], [], [2.0, float("inf")]], "price": [1, 2, 3]}),
        (
            "a.parquet, row 2, x: found [2.0, inf], which is infinite as a number; expected finite numbers\n"
            "    -> repair the value, or leave it empty, which is missing"
        ),
    ),
    "a large integer beside a missing one": (
        "a.parquet",
        pa.table({"x": [[2**60], [None]], "price": [1, 2]}),
        (
            "dataset.columns.x: found missing values, and integers from 1152921504606846976 to 1152921504606846976; "
            "expected integers below 2**53 where some are missing, since these are read as floats\n"
            "    -> set 'dataset.columns={x: numbers}' for rounded floats"
        ),
    ),
}


@pytest.mark.parametrize(("name", "content", "told"), FAULTS.values(), ids=FAULTS)
def test_faults_of_lists(tmp_path: Path, name: str, content: Any, told: str) -> None:
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    else:
        pyarrow.parquet.write_table(content, tmp_path / name)
    with pytest.raises(EtlrunError) as raised:
        kept_of(a_table(str(tmp_path / name), tmp_path / "kept"))
    assert message(tmp_path, raised.value) == told
