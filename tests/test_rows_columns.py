"""Columns of rows: how plans show them, what auto chooses, their faults, and their differences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from jsonschema import Draft7Validator

from etlrun.planning.render import text
from etlrun.planning.schema import schema
from etlrun.review.difference import compare
from etlrun.sources.base import open_source
from etlrun.stages import STAGES
from etlrun.stages.base import DATA
from etlrun.stages.flow import MISSING
from tests.configs import composed, plan_of, refusal_of_plan
from tests.tables import words_of


def columns_of(columns: Mapping[str, Any]) -> str:
    """The argument that sets `transform.columns` to these."""
    written = yaml.safe_dump(dict(columns), default_flow_style=True, sort_keys=False, width=float("inf"))
    return f"transform.columns={written.strip()}"


def lines_of(folder: Path, columns: Mapping[str, Any], *words: str) -> dict[str, str]:
    """What a plan shows of each output."""
    planned = plan_of(*words_of(folder, *words), columns_of(columns))
    return dict(planned.spec.transform.steps[0].lines)  # type: ignore[attr-defined]


def test_a_plan_shows_each_output_in_a_line(table: Path) -> None:
    columns = {
        "area": {"steps": [{"fill": {"value": "mean", "indicator": True}}, "robust"]},
        "size": {"of": "area", "steps": [{"fill": 0}, {"quantiles": 4}, "embed"]},
        "few": {"of": "rooms", "steps": [{"lookup": {"top": 2}}, "one_hot"]},
        "both": {"of": ["kind", "size"], "steps": [{"cross": 20}, {"embed": 3}]},
        "garden": {},
    }
    source = open_source(plan_of(*words_of(table)).spec.dataset)
    splits = {name: source.split(name, "").rows for name in ("train[:80%]", "train[80%:]")}  # type: ignore[attr-defined]
    areas, rooms, kinds = (
        {name: source.kept.take(of, rows) for name, rows in splits.items()}  # type: ignore[attr-defined]
        for of in ("area", "rooms", "kind")
    )
    area, price = areas["train[:80%]"], source.kept.take("price", splits["train[:80%]"])  # type: ignore[attr-defined]
    low, median, high = np.quantile(np.where(np.isnan(area), np.nanmean(area), area), [0.25, 0.5, 0.75])
    bounds = ", ".join(f"{of:.4g}" for of in np.quantile(np.nan_to_num(area), [0.25, 0.5, 0.75]))
    robust = f"robust (median {median:.4g}, range {high - low:.4g})"
    missing = shares("missing", {name: np.isnan(values) for name, values in areas.items()})
    unknown = shares("unknown", {name: ~np.isin(values, [3, 1]) for name, values in rooms.items()})
    both = shares("missing", {name: np.isnan(areas[name]) | (kinds[name] == MISSING) for name in splits})
    assert lines_of(table, columns) == {
        "area": f"<- area: fill mean ({np.nanmean(area):.4g}), {robust}; {missing}",
        "area_missing": "<- area: missing",
        "size": f"<- area: fill 0, quantiles 4 (boundaries [{bounds}]), embed; {missing}",
        "few": f"<- rooms: lookup [3, 1], one_hot (3); {unknown}",
        "both": f"<- kind, size: cross 20, embed 3; {both}",
        "garden": "<- garden",
        "price": f"<- price: number (mean {price.mean():,.0f}, std {price.std():,.0f}, least {price.min():,.0f})",
    }


def shares(kind: str, masks: Mapping[str, Any]) -> str:
    """What a plan says of a share of each split."""
    return f"{kind} {' and '.join(f'{mask.mean():.1%} of {name}' for name, mask in masks.items())}"


def test_what_auto_chose_can_be_pasted(table: Path) -> None:
    words = words_of(table, "dataset.inputs=null")
    shown = text(chosen := plan_of(*words))
    pasted = yaml.safe_load(shown.partition("as a config has it\n")[2].partition("\n\n")[0])
    assert pasted["transform"]["columns"]["area"]["steps"] == [
        {"fill": {"value": "median", "indicator": True}},
        "standardize",
    ]
    again = plan_of(*words, columns_of(pasted["transform"]["columns"]))
    assert again.fingerprint == chosen.fingerprint
    assert "as a config has it" not in text(again)


def test_auto_leaves_out_what_tells_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "id": np.arange(90),
        "name": [f"name {number}" for number in range(90)],
        "same": ["x"] * 90,
        "tail": rng.lognormal(0, 2, 90),
        "town": rng.choice([f"town {number}" for number in range(12)], 90),
        "price": rng.random(90),
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "houses.parquet")
    planned = plan_of(*words_of(tmp_path, "dataset.inputs=null"))
    steps = {of.name: [step.name for step in of.steps] for of in planned.spec.transform.steps[0].chosen}  # type: ignore[attr-defined]
    assert steps == {"tail": ["log1p", "standardize"], "town": ["lookup", "embed"]}
    use = "name it in transform.columns to use it"
    assert [of for of in planned.remarks if "is no input" in of] == [
        f"id is no input, since its values are numbers of rows: {use}",
        f"name is no input, since nearly each row has another value: {use}",
        f"same is no input, since all rows have the same value: {use}",
    ]


def test_all_faults_of_columns_are_told_at_once(table: Path) -> None:
    columns = {"aera": {"steps": ["log1p"]}, "price": {"steps": ["log1p"]}, "dear": {"of": "price"}, "hall": "drop"}
    assert refusal_of_plan(*words_of(table), columns_of(columns)) == FAULTS_OF_NAMES


def test_all_faults_of_steps_are_told_at_once(table: Path, tmp_path: Path) -> None:
    (tmp_path / "kinds.txt").write_text("flat\nhouse\n")
    columns = {
        "area": {"steps": ["standardize"]},
        "kind": {"steps": ["log1p"]},
        "rooms": {"steps": [{"identity": 4}]},
        "garden": {"steps": [{"clip": [2, 3]}, "minmax"]},
        "known": {
            "of": "kind",
            "steps": [{"fill": "flat"}, {"lookup": {"file": f"{tmp_path}/kinds.txt", "oov": "error"}}],
        },
        "rare": {"of": "kind", "steps": [{"lookup": {"min_count": 1000}}]},
        "size": {"of": "area", "steps": [{"fill": 0}, "one_hot"]},
        "ratio": {"of": "area", "steps": ["lookup"]},
    }
    assert refusal_of_plan(*words_of(table), columns_of(columns)) == FAULTS_OF_STEPS


def test_a_diff_has_a_line_for_each_output_that_changed(table: Path) -> None:
    kind = {"kind": {"steps": [{"hash": 5}]}}
    columns = {"area": {"steps": [{"fill": 50}, {"clip": [0, 200]}]}, "garden": {}, **kind}
    flat = {"flat": {"of": "kind", "steps": [{"hash": 3}]}}
    changed = {"area": {"steps": [{"fill": 60}, {"clip": [0, 200]}]}, **kind, **flat}
    sides = [words_of(table, columns_of(of)) for of in (columns, changed)]
    plans, configs = [plan_of(*words) for words in sides], [composed(*words) for words in sides]
    found = compare(plans[0], plans[1], (configs[0], configs[1]))
    assert found.headline == "changes the data, from transform.columns on"
    assert [(of.path, of.old, of.new, of.kind) for of in found.differences] == [
        ("transform.columns.area", "area: fill 50, clip [0, 200]", "area: fill 60, clip [0, 200]", DATA),
        ("transform.columns.garden", "garden", None, DATA),
        ("transform.columns.flat", None, "kind: hash 3", DATA),
    ]


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


FAULTS_OF_NAMES = """\
transform.columns.aera.of: found aera; expected one of the columns area, rooms, kind, garden, or an output above it
    -> did you mean `area`?
transform.columns.price: found price, which is the target; expected inputs alone
    -> leave it out; dataset.target says what is made of it
transform.columns.dear.of: found price, which is the target; expected inputs alone
    -> leave it out; dataset.target says what is made of it
transform.columns.hall: found hall; expected one of the columns area, rooms, kind, garden"""
FAULTS_OF_STEPS = """\
transform.columns.area.steps[0]: found float64 in [20.4929, 199.498] of which some are missing; expected a value in \
each row
    -> put {fill: median} before it
transform.columns.kind.steps[0]: found text; expected numbers
    -> leave it out, or use a step such as hash
transform.columns.rooms.steps[0]: found int64 in [1, 5]; expected integers from 0 to 3
    -> write {identity: 6}
transform.columns.garden.steps[1]: found a range from 2 to 2; expected values that differ in the training split
    -> leave the column out
transform.columns.known.steps[1]: found 'loft' in 13 of 160 rows of train[:80%], of kind; expected a value of the \
vocabulary: [flat, house]
    -> add the value to `values`, or set `oov` to 1
transform.columns.known.steps[1]: found 'loft' in 2 of 40 rows of train[80%:], of kind; expected a value of the \
vocabulary: [flat, house]
    -> add the value to `values`, or set `oov` to 1
transform.columns.rare.steps[0]: found no value in 1000 rows of the training split; expected at least one value of \
the vocabulary
    -> lower `min_count`; the most frequent value is in 88
transform.columns.size.steps[1]: found float64 in [0, 199.498]; expected the index of a category
    -> put `lookup`, `bucketize` or `hash` before it
transform.columns.ratio.steps[0]: found float64 in [20.4929, 199.498]; expected text or integers
    -> put `bucketize` or `quantiles` in its place"""


def write_table(folder: Path, columns: Mapping[str, Any]) -> None:
    """Write a table of 100 rows in the place of that of houses."""
    price = np.random.default_rng(0).random(100)
    pyarrow.parquet.write_table(pa.table({**columns, "price": price}), folder / "houses.parquet")


def test_a_training_split_without_values_or_with_one_alone_is_refused(tmp_path: Path) -> None:
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
        "half": {"of": "more", "steps": [{"clip": [0, 10]}, "robust"]},
    }
    words = words_of(tmp_path, "dataset.inputs=null")
    nothing = "found no value in the 80 rows of the training split; expected at least one value to learn from"
    give, differ = "leave the column out, or give the values in the config", "values that differ in the training split"
    assert (
        refusal_of_plan(*words, columns_of(columns))
        == f"""\
transform.columns.late.steps[0]: {nothing}
    -> {give}
transform.columns.mode.steps[0]: {nothing}
    -> {give}
transform.columns.same.steps[0]: found 2 in each row of the training split; expected {differ}
    -> leave the column out
transform.columns.ranks.steps[0]: found 2 in each row of the training split; expected {differ}
    -> leave the column out
transform.columns.half.steps[1]: found 10 in half of the rows of the training split or more; expected {differ}
    -> leave the column out, or standardize"""
    )


def test_a_vocabulary_of_more_than_a_million_values_is_refused(table: Path, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("".join(f"{number}\n" for number in range(1_000_001)))
    (tmp_path / "twice.txt").write_text("a\nb\na\n")
    files = {"kind": "many.txt", "garden": "twice.txt", "area": "none.txt"}
    columns = {name: {"steps": [{"lookup": {"file": f"{tmp_path}/{file}"}}]} for name, file in files.items()}
    assert (
        refusal_of_plan(*words_of(table), columns_of(columns))
        == f"""\
transform.columns.kind.steps[0]: found 1,000,001 different values; expected at most 1,000,000 values of a vocabulary
    -> set `top` to fewer, or use {{hash: 100000}} in its place
transform.columns.garden.steps[0]: found 'a' in lines 1 and 3 of {tmp_path}/twice.txt; expected each value in one line
    -> write it again
transform.columns.area.steps[0]: found {tmp_path}/none.txt: No such file or directory; \
expected a text file with a value in each line
    -> correct the path; relative ones start in the folder of the command"""
    )
