"""What `etlrun diff` says in short, of sides that can't be had, and in all of its forms."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import etlrun
from etlrun.planning import render
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record import record as records
from etlrun.review.document import matrix
from etlrun.review.review import Review, Reviewed
from etlrun.review.sides import Variant
from etlrun.stages import STAGES
from etlrun.system.terminal import say, say_note, tell
from tests.configs import composed, plan_of, refusal_of_diff
from tests.golden import Case, Golden, Says, cases
from tests.pulls import transcript
from tests.repository import Repository

MINE = ("--config-dir", "mine", "--format", "json")


@pytest.mark.parametrize("case", cases("diff"))
def test_a_comparison_is_told_in_full(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


def test_an_odd_name_is_chosen_by_a_quoted_override(repository: Repository, told: Any) -> None:
    repository.write("experiment/größe, $(x) 1.yaml", "# @package _global_\n# Odd.\nload: {prefetch: 1}\n")
    repository.commit("Odd")
    (odd,) = json.loads(told("HEAD~1", "HEAD", *MINE))["matrix"]["include"]
    assert odd["experiment"] == "größe, $(x) 1"
    side = shlex.quote(odd["overrides"])
    assert json.loads(told(side, f"{side} load.prefetch=2", *MINE))["kinds"] == ["speed"]


def test_the_run_without_an_experiment_is_chosen_by_no_override() -> None:
    reviewed = Reviewed(name="default", sides=(None, Variant(config=None, plan=plan_of())))
    review = Review(old="HEAD", new="the working tree", experiments=(reviewed,), files=())
    assert matrix(review)["include"] == [
        {"experiment": "default", "overrides": "", "state": "added", "kinds": [], "since": None}
    ]


def test_what_perhaps_changes_the_data_does_so_in_all_forms(repository: Repository, told: Any) -> None:
    repository.replace("experiment/small.yaml", "epochs: 2}", "epochs: 2, steps_per_epoch: 2}")
    repository.commit("A part of the data")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 3")
    headline = "changes perhaps the data, from load.batch on, and the training"
    (small,) = (of for of in json.loads(told("HEAD", *MINE))["experiments"] if of["name"] == "small")
    assert (small["changes"], small["headline"]) == (["data", "training"], headline)
    assert f"\n#### small: {headline}\n" in told("HEAD", "--config-dir", "mine", "--format", "markdown")
    changed = etlrun.diff("HEAD", config_dir="mine")
    assert (changed.changes_data, changed.changes_training, changed.changes_order) == (True, True, False)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    side = tmp_path / "side.yaml"
    side.write_bytes(b"load:\n  batch_size: \xff8")
    assert refusal_of_diff("", str(side)) == f"{side}:2: found the byte 0xff, which is not UTF-8; expected YAML"


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["run", "composed", "whole"])
def test_a_run_and_composed_configs_are_compared(kind: str, told: Any, tmp_path: Path) -> None:
    config, word = composed("load.prefetch=1"), tmp_path / "side.yaml"
    if kind == "run":
        word = records.Record.create(tmp_path / "run", config, ["load.prefetch=1"]).folder
    else:
        of = {**config, "sweep": {"repeats": 1}} if kind == "whole" else config
        word.write_text(yaml.safe_dump(of), encoding="utf-8")
    lines = ["changes only the speed", "  load.prefetch  autotune -> 1  speed"]
    assert told("", str(word)).splitlines()[:2] == lines


LINES = "b\n::error::from a config\x1b[31m\u202e"
ESCAPED = "b\\n::error::from a config\\x1b[31m\\u202e"


def test_a_value_of_several_lines_stays_in_its_line_in_all_forms(tmp_path: Path, told: Any, says: Says) -> None:
    config = composed("logger=mlflow", "model=emulated")
    files = []
    for name, value in (("a", "a"), ("b", LINES)):
        config["logger"]["experiment_name"] = value
        config["dataset"]["data_dir"] = f"/data/{value}"
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump(config))
    says(told(*map(str, files)).splitlines()[:3])
    comment = told(*map(str, files), "--format", "markdown")
    assert f"| `logger.experiment_name` | `a` | `{ESCAPED.replace(chr(92) + 'n', ' ')}` | speed |\n" in comment
    for text in (
        comment,
        str(etlrun.diff(*files)),
        render.text(planned := plan(parse(config, STAGES))),
    ):
        assert not re.search(r"^::error|[\x1b\u202e]", text, re.MULTILINE)
    assert ESCAPED in render.text(planned)


@pytest.mark.parametrize("printed", [say, tell, say_note])
def test_a_line_is_printed_as_one(printed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    printed(LINES)
    assert "".join(capsys.readouterr()).removeprefix("note  ") == f"{ESCAPED}\n"


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(
    environment: dict[str, str], told: Any, monkeypatch: pytest.MonkeyPatch, *, coloured: bool
) -> None:
    for name, value in ({"FORCE_COLOR": "1"} | environment).items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[32mchanges only the speed\x1b[0m" in told("", "load.prefetch=1")) == coloured
