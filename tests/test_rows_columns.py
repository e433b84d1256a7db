"""Columns of rows: how plans show them, what auto chooses, their faults, and their differences."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import yaml
from jsonschema import Draft7Validator

from etlrun.datasets.examine.compare import of_sheet
from etlrun.datasets.examine.show import as_text, collect, points
from etlrun.measure.assessment import step_costs_ms
from etlrun.planning.render import text
from etlrun.planning.schema import schema
from etlrun.report.render import html
from etlrun.review.difference import compare
from etlrun.stages import STAGES
from etlrun.stages.column_categories import Bucketize, Cross, Hash, Identity, Lookup, OneHot, Quantiles
from etlrun.stages.column_numbers import Clip, ColumnStep, Fill, Log1p, Missing, Part, Standardize
from etlrun.stages.flow import MISSING, MISSING_TIME
from etlrun.stages.rows import Rows
from tests.configs import composed, plan_of, refusal_of_plan
from tests.golden import Case, Golden, Says, cases
from tests.pipelines import training_pipeline
from tests.tables import houses, words_of


def columns_of(columns: Mapping[str, Any]) -> str:
    """The argument that sets `transform.columns` to these."""
    written = yaml.safe_dump(dict(columns), default_flow_style=True, sort_keys=False, width=float("inf"))
    return f"transform.columns={written.strip()}"


def lines_of(folder: Path, columns: Mapping[str, Any], *words: str) -> dict[str, str]:
    """What a plan shows of each output."""
    planned = plan_of(*words_of(folder, *words), columns_of(columns))
    return dict(planned.spec.transform.steps[0].lines)  # type: ignore[attr-defined]


def test_a_plan_shows_each_output_in_a_line(table: Path, says: Says) -> None:
    columns = {
        "area": {"steps": [{"fill": {"value": "mean", "indicator": True}}, "standardize"]},
        "size": {"of": "area", "steps": [{"fill": 0}, {"quantiles": 4}, "embed"]},
        "few": {"of": "rooms", "steps": [{"lookup": {"top": 2}}, "one_hot"]},
        "both": {"of": ["kind", "size"], "steps": [{"cross": 20}, {"embed": 3}]},
        "garden": {},
    }
    says(lines_of(table, columns))


@pytest.mark.smoke
def test_what_auto_chose_can_be_pasted(table: Path, says: Says) -> None:
    words = words_of(table, "dataset.inputs=null")
    shown = text(chosen := plan_of(*words))
    pasted = yaml.safe_load(shown.partition("as a config has it\n")[2].partition("\n\n")[0])
    says(pasted["transform"]["columns"]["area"]["steps"])
    again = plan_of(*words, columns_of(pasted["transform"]["columns"]))
    assert again.fingerprint == chosen.fingerprint
    assert "as a config has it" not in text(again)


def test_auto_leaves_out_what_tells_nothing(tmp_path: Path, says: Says) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "id": np.arange(90),
        "name": [f"name {number}" for number in range(90)],
        "number": rng.permutation(90) * 7 + 1_000,
        "same": ["x"] * 90,
        "tail": rng.lognormal(0, 2, 90),
        "town": rng.choice([f"town {number}" for number in range(12)], 90),
        "price": rng.random(90),
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "houses.parquet")
    planned = plan_of(*words_of(tmp_path, "dataset.inputs=null"))
    steps = {of.name: [step.name for step in of.steps] for of in planned.spec.transform.steps[0].chosen}  # type: ignore[attr-defined]
    assert steps == {"tail": ["log1p", "standardize"], "town": ["lookup", "embed"]}
    says([of for of in planned.remarks if "is not used" in of])


@pytest.mark.parametrize("case", cases("columns"))
def test_all_faults_of_columns_are_told_at_once(table: Path, tmp_path: Path, case: Case, golden: Golden) -> None:
    vocabularies = {"kinds": ["flat", "house"], "twice": ["a", "b", "a"], "many": map(str, range(1_000_001))}
    for name, values in vocabularies.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(values))
    columns = columns_of(case["columns"]).replace("DIR", str(tmp_path))
    golden(case, refusal_of_plan(*words_of(table), columns).replace(str(tmp_path), "DIR"))


def test_a_diff_has_a_line_for_each_output_that_changed(table: Path, says: Says) -> None:
    kind = {"kind": {"steps": [{"hash": 5}]}}
    columns = {"area": {"steps": [{"fill": 50}, {"clip": [0, 200]}]}, "garden": {}, **kind}
    flat = {"flat": {"of": "kind", "steps": [{"hash": 3}]}}
    changed = {"area": {"steps": [{"fill": 60}, {"clip": [0, 200]}]}, **kind, **flat}
    sides = [words_of(table, columns_of(of)) for of in (columns, changed)]
    plans, configs = [plan_of(*words) for words in sides], [composed(*words) for words in sides]
    found = compare(plans[0], plans[1], (configs[0], configs[1]))
    assert found.headline == "changes the data, from transform.columns on"
    says([(of.path, of.old, of.new, str(of.kind)) for of in found.differences])


COLUMNS: dict[str, tuple[Any, bool]] = {
    "all forms": ({"a": {"of": ["b", "c"], "steps": [{"cross": 5}, "embed"]}, "d": "drop", "e": {}}, True),
    "parameters": ({"a": {"steps": [{"fill": {"value": "mean", "indicator": True}}, {"clip": [0, None]}]}}, True),
    "auto": ("auto", True),
    "another word": ("automatic", False),
    "an unknown step": ({"a": {"steps": ["standardise"]}}, False),
    "a step without its parameter": ({"a": {"steps": ["clip"]}}, False),
    "an unknown parameter": ({"a": {"steps": [{"lookup": {"most": 5}}]}}, False),
    "a value of another type": ({"a": {"steps": [{"hash": "many"}]}}, False),
    "an unknown key": ({"a": {"step": []}}, False),
}


@pytest.mark.parametrize(("columns", "is_valid"), COLUMNS.values(), ids=COLUMNS)
def test_the_schema_knows_columns(columns: Any, is_valid: bool) -> None:  # noqa: FBT001 - what a test expects
    whole = schema(STAGES)
    of_transforms = Draft7Validator({"$ref": "#/definitions/transform", "definitions": whole["definitions"]})
    assert of_transforms.is_valid({"columns": columns}) is is_valid


def write_table(folder: Path, columns: Mapping[str, Any]) -> None:
    """Write a table of 100 rows in the place of that of houses."""
    price = np.random.default_rng(0).random(100)
    pyarrow.parquet.write_table(pa.table({**columns, "price": price}), folder / "houses.parquet")


def test_a_training_split_without_values_or_with_one_alone_is_refused(tmp_path: Path, says: Says) -> None:
    validation = np.random.default_rng(0).permutation(100)[80:]
    late = [1.0 if row in validation else None for row in range(100)]
    write_table(
        tmp_path, {"late": pa.array(late), "same": np.full(100, 2), "text": ["x"] * 100, "more": np.arange(100)}
    )
    columns = {
        "late": {"steps": [{"fill": "median"}]},
        "mode": {"of": "late", "steps": [{"fill": "most_frequent"}]},
        "same": {"steps": ["standardize"]},
        "ranks": {"of": "same", "steps": [{"quantiles": 4}]},
    }
    says(refusal_of_plan(*words_of(tmp_path, "dataset.inputs=null"), columns_of(columns)))


NUMBERS = np.array([-1.5, 0.0, 1.0, 2.0, 2.5, 7.25])
COUNTS = np.array([3, 1, 2, 9, -4, 1])
WORDS = np.array([b"good", b"ideal", b"fair", b"poor", b"", b"good"], object)
LAYERS: list[tuple[ColumnStep, Any, Any]] = [
    (Standardize(mean=1.5, std=2.0), keras.layers.Normalization(mean=1.5, variance=4.0), NUMBERS),
    (Bucketize(boundaries=(0.0, 1.0, 2.5)), keras.layers.Discretization(bin_boundaries=[0.0, 1.0, 2.5]), NUMBERS),
    (Lookup(values=(1, 2, 3)), keras.layers.IntegerLookup(vocabulary=[1, 2, 3]), COUNTS),
    (Lookup(values=(1, 2), oov=3), keras.layers.IntegerLookup(vocabulary=[1, 2], num_oov_indices=3), COUNTS),
    (Lookup(values=("fair", "good")), keras.layers.StringLookup(vocabulary=["fair", "good"]), WORDS),
    (Lookup(values=("fair",), oov=3), keras.layers.StringLookup(vocabulary=["fair"], num_oov_indices=3), WORDS),
    (Hash(bins=7), keras.layers.Hashing(num_bins=7), WORDS),
    (Hash(bins=7), keras.layers.Hashing(num_bins=7), COUNTS),
    (Cross(bins=11), keras.layers.HashedCrossing(num_bins=11), (WORDS, COUNTS)),
    (OneHot(categories=5), keras.layers.CategoryEncoding(5, output_mode="one_hot"), np.array([0, 4, 2, 1])),
]


@pytest.mark.parametrize(("step", "layer", "values"), LAYERS, ids=[f"{of[0].name}{at}" for at, of in enumerate(LAYERS)])
def test_outputs_equal_those_of_the_layers_of_keras(step: ColumnStep, layer: Any, values: Any) -> None:
    given = tuple(map(tf.constant, values)) if isinstance(values, tuple) else tf.constant(values)
    expected, found = layer(given), step.op(given, **step.arguments)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    first = tuple(of[0] for of in given) if isinstance(given, tuple) else given[0]
    np.testing.assert_array_equal(step.op(first, **step.arguments).numpy(), found.numpy()[0])


NAN = float("nan")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VALUES: dict[str, tuple[ColumnStep, Any, Any]] = {
    "a number in the place of missing ones": (Fill(value=2.5, filled=2.5), [NAN, 1.0], [2.5, 1.0]),
    "a text in the place of missing ones": (Fill(value="x", filled="x"), [MISSING, b"a"], [b"x", b"a"]),
    "nothing is missing": (Fill(value=2, filled=2), [3, 4], [3, 4]),
    "missing numbers": (Missing(), [NAN, 1.0], [1, 0]),
    "missing texts": (Missing(), [MISSING, b"a"], [1, 0]),
    "log1p": (Log1p(), [0.0, 1.0], [0.0, np.log(2)]),
    "clip": (Clip(range=(0.0, 1.0)), [-1.0, 0.5, 2.0], [0.0, 0.5, 1.0]),
    "clip below alone": (Clip(range=(0.0, None)), [-1.0, 2.0], [0.0, 2.0]),
    "quantiles": (Quantiles(count=3, boundaries=(1.0, 2.0)), [0.0, 1.0, 3.0], [0, 1, 2]),
    "identity": (Identity(categories=3), [2.0, 0.0], [2, 0]),
    "numbers that are integers": (Lookup(values=(1, 2)), [2.0, 1.5, NAN, 1.0], [2, 0, 0, 1]),
}


@pytest.mark.parametrize(("step", "values", "expected"), VALUES.values(), ids=VALUES)
def test_steps_compute(step: ColumnStep, values: Any, expected: Any) -> None:
    found = step.op(tf.constant(values), **step.arguments).numpy()
    if isinstance(expected[0], bytes):
        assert found.tolist() == expected
    else:
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_parts_of_times_are_those_of_the_calendar() -> None:
    times = [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2000, 2, 29, 0, 5, tzinfo=UTC)]
    times += [datetime(2023, 3, 1, 13, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]
    values = tf.constant([*((of - _EPOCH) // timedelta(microseconds=1) for of in times), MISSING_TIME])
    for part in ("year", "month", "day", "hour", "minute"):
        found = Part.op(values, part=part).numpy()
        assert found[:-1].tolist() == [getattr(of, part) for of in times]
        assert np.isnan(found[-1])
    assert Part.op(values, part="weekday").numpy()[:-1].tolist() == [of.weekday() for of in times]


def test_a_value_that_is_no_category_ends_the_run() -> None:
    for step, values in ((Identity(categories=3), [3]), (Lookup(values=(1,), oov="error"), [2])):
        with pytest.raises(tf.errors.InvalidArgumentError):
            step.op(tf.constant(values), **step.arguments)


@pytest.mark.parametrize("target", ["{price: number}", "{band: class}", "{rooms: class}"])
def test_steps_of_rows_are_timed_one_by_one_whatever_the_target_is_before_them(table: Path, target: str) -> None:
    inputs = "dataset.inputs=[area,kind]"
    with training_pipeline(plan_of(*words_of(table, inputs, target=target))) as pipeline:
        costs = step_costs_ms(pipeline, "transform.map", seconds=0.03)
    assert [*costs] == ["transform.parse", "transform.columns"]


def test_rows_are_shown_after_each_step_of_their_columns(table: Path, says: Says) -> None:
    columns = (
        "{area: {of: area, steps: [{fill: median}, log1p, standardize]}, "
        "day: {of: sold, steps: [{part: weekday}, {identity: 7}]}, "
        "size: {of: area, steps: [{fill: 0}, standardize]}, both: {of: [rooms, day], steps: [{cross: 5}, one_hot]}}"
    )
    words = words_of(table, "dataset.inputs=null", f"transform.columns={columns}", "dataset.order=file")
    plan = plan_of(*words)
    says([(point.path, [*point.features]) for point in points(plan, "train")])
    sheet = collect(plan, "train", 28)
    areas = houses()["area"].to_numpy()[:28]
    shown = {view.path: [cell["area"] for cell in view.cells] for view in sheet.views}
    filled = np.where(np.isnan(areas), np.nanmedian(houses()["area"].to_numpy()[:160]), areas)
    np.testing.assert_allclose(shown["transform.parse"], areas)
    np.testing.assert_allclose(shown["transform.columns after step 1"], filled, rtol=1e-6)
    np.testing.assert_allclose(shown["transform.columns after step 2"], np.log1p(filled), rtol=1e-6)
    parsed = sheet.views[0]
    missing = int(np.isnan(areas).sum())
    assert parsed.shown("area") == f"{np.nanmin(areas):.4g} to {np.nanmax(areas):.4g}, {missing} of 28 missing"
    first = int(np.flatnonzero(np.isnan(areas))[0])
    assert "<p>area missing</p>" in html(of_sheet(sheet, "etlrun show"))
    assert as_text(parsed.cells[first]["area"], parsed.features["area"]) == "missing"
    times = [str(day)[:10] for day in houses()["sold"].to_pylist()[:28]]
    assert parsed.shown("sold") == f"{min(times)} to {max(times)}"
    assert as_text(parsed.cells[0]["sold"], parsed.features["sold"]) == times[0]


def test_what_rows_have_is_derived_as_often_for_many_columns_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived, derive = list[Rows](), Rows.examples.func  # type: ignore[attr-defined]

    def examples(rows: Rows) -> Any:
        derived.append(rows)
        return derive(rows)

    counted = cached_property(examples)
    counted.__set_name__(Rows, "examples")
    monkeypatch.setattr(Rows, "examples", counted)
    counts = []
    for number in (4, 40):
        table = pa.table({f"c{place}": np.arange(20.0) for place in range(number)} | {"price": np.arange(20.0)})
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet")
        files, kept = f"dataset.files={tmp_path / f'{number}.parquet'}", f"dataset.dir={tmp_path / f'kept_{number}'}"
        derived.clear()
        plan_of("experiment=table", files, kept, "dataset.target={price: number}")
        counts.append(len(derived))
    assert counts[0] == counts[1] < 40
