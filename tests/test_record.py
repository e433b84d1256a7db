"""The typed summary of a run: what is written is what was set, and each key has its type and meaning."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from etlrun.record.record import Record
from etlrun.record.summary import Epoch, Summary, read_summary

SCHEMA = Path(__file__).resolve().parent.parent / "docs" / "summary.schema.json"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.create(tmp_path / "run", {"load": {}}, ["load.prefetch=1"])


def written(record: Record) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((record.folder / "summary.json").read_text())
    return summary


def test_what_is_not_known_yet_is_not_written(record: Record) -> None:
    assert list(written(record)) == ["status", "overrides", "epochs", "created_s"]
    record.update(au=None, examples_per_s=math.nan)
    assert {key: written(record)[key] for key in ("au", "examples_per_s")} == {"au": None, "examples_per_s": None}


def test_a_summary_is_read_as_it_was_written(record: Record) -> None:
    record.epoch(Epoch(epoch=1, wall_s=2.0, examples=8, startup_s=1.0, startup_examples=2, loss="NaN", accuracy=0.5))
    record.update(cache={"target": "cache.disk", "at": "source", "pipelines": {"train": {"held_bytes": 3}}})
    again = read_summary(record.folder)
    assert again is not None
    assert again.written == record.summary.written == written(record)
    assert math.isnan(again.epochs[0].loss or 0.0)
    assert written(record)["epochs"][0]["loss"] == "NaN"
    assert written(record)["cache"]["pipelines"] == {"train": {"held_bytes": 3}}
    assert (again.examples, again.examples_per_s) == (8, 6.0)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"stauts": "completed"}, TypeError, "Summary has no field stauts"),
        ({"status": "done"}, ValidationError, "Input should be 'running', 'completed', 'failed'"),
        ({"au": "high"}, ValidationError, "Input should be a valid number"),
    ],
)
def test_what_is_no_field_is_not_written(
    record: Record, values: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = written(record)
    with pytest.raises(error, match=message):
        record.update(**values)
    assert written(record) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"status": "completed"}', '{"status": 1, "overrides": []}'])
def test_what_is_no_summary_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    assert read_summary(tmp_path) is None


def test_keys_of_other_versions_are_left_out() -> None:
    summary = Summary.model_validate({"status": "completed", "overrides": [], "speed": 1, "epochs": [{"mood": "good"}]})
    assert summary.written == {"status": "completed", "overrides": [], "epochs": [{}]}


def test_the_schema_in_the_docs_is_that_of_the_summary() -> None:
    assert SCHEMA.read_text() == json.dumps(Summary.model_json_schema(), indent=2) + "\n"


def test_every_key_of_the_schema_has_a_meaning() -> None:
    schema = Summary.model_json_schema()
    parts = {"Summary": schema, **schema["$defs"]}
    keys = {
        f"{name}.{key}": of
        for name, part in parts.items()
        for key, of in part["properties"].items()
        if name not in {"Apart", "Verdict", "StageRow"}  # whose docstrings are their descriptions
    }
    assert [key for key, of in keys.items() if "description" not in of] == []
