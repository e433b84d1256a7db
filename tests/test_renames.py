"""Experiments and options that a change gives another name."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.repository import OTHER, Repository

MINE = ("HEAD~1", "HEAD", "--config-dir", "mine")
TWIN = "# @package _global_\n# A twin.\nload: {prefetch: 1}\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


def rename(repository: Repository, old: str, new: str, text: str) -> None:
    (repository.configs / f"{old}.yaml").unlink()
    repository.write(f"{new}.yaml", text)
    repository.commit("Renamed")


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if " is " in line or "no difference" in line]


def test_an_experiment_with_another_name_and_other_values_is_compared(repository: Repository, told: Any) -> None:
    text = OTHER.replace("experiment=other", "experiment=long").replace("epochs: 3", "epochs: 30")
    rename(repository, "experiment/other", "experiment/long", text)
    assert told(*MINE).splitlines()[:2] == [
        "long: is other under another name, and changes the training",
        "  trainer.epochs  3 -> 30  training",
    ]
    found = json.loads(told(*MINE, "--format", "json"))
    assert [of["kinds"] for of in found["matrix"]["include"]] == [["training"]]


def test_a_file_of_another_form_is_the_same_by_its_values(repository: Repository, told: Any) -> None:
    defaults = "defaults:\n  - override /cache: none\n  - _self_\n"
    block = f"# @package _global_\n# A.\n{defaults}trainer:\n  epochs: 2\n  seed: 3\n"
    repository.write("experiment/one.yaml", block)
    repository.commit("One")
    flow = "# @package _global_\n# B.\ndefaults: [override /cache: none, _self_]\ntrainer: {seed: 3, epochs: 4}\n"
    rename(repository, "experiment/one", "experiment/two", flow)
    assert heads(told(*MINE)) == [
        "two: is one under another name, and changes the training",
        "other, small: no difference",
    ]


def test_a_rule_that_a_change_breaks_is_broken_under_another_name(repository: Repository, told: Any) -> None:
    rename(repository, "experiment/other", "experiment/long", OTHER.replace("epochs: 3", "epochs: 30"))
    broken = "--fail-on: found a change of the training in long by trainer.epochs; expected none"
    assert broken in told(*MINE, "--fail-on", "training", status=4)


def test_experiments_that_have_little_in_common_are_new_and_removed(repository: Repository, told: Any) -> None:
    repository.write("experiment/gone.yaml", "# @package _global_\ndefaults:\n  - _self_\ntrainer: {epochs: 9}\n")
    repository.commit("Gone")
    (repository.configs / "experiment" / "gone.yaml").unlink()
    rename(repository, "experiment/other", "experiment/new", "# @package _global_\ndefaults:\n  - _self_\n" + TWIN)
    assert heads(told(*MINE)) == ["gone: is removed", "other: is removed", "new: is new", "small: no difference"]


def test_each_experiment_that_is_gone_is_found_once(repository: Repository, told: Any) -> None:
    repository.write("experiment/twin.yaml", TWIN)
    repository.commit("Twin")
    repository.write("experiment/one.yaml", TWIN)
    rename(repository, "experiment/twin", "experiment/two", TWIN)
    assert heads(told(*MINE)) == ["one: is twin under another name", "two: is new", "other, small: no difference"]


def test_the_same_plan_counts_more_than_the_same_lines(repository: Repository, told: Any) -> None:
    repository.write("experiment/twin.yaml", TWIN)
    repository.commit("Twin")
    (repository.configs / "experiment" / "other.yaml").unlink()
    same = "# @package _global_\n# Quite another text.\n# And one more.\nload:\n  prefetch: 1\n"
    rename(repository, "experiment/twin", "experiment/new", same)
    assert heads(told(*MINE)) == ["other: is removed", "new: is twin under another name", "small: no difference"]


def test_an_option_is_renamed_within_its_group(repository: Repository, told: Any) -> None:
    text = "defaults: [{}, _self_]\n{}\n"
    repository.write("load/one.yaml", text.format("shuffled", "batch_size: 8"))
    repository.commit("Option")
    repository.write("model/one.yaml", text.format("mobilenet_v2_small", "alpha: 0.5"))
    rename(repository, "load/one", "load/eight", text.format("shuffled", "batch_size: 8"))
    assert heads(told(*MINE)) == [
        "load=eight: is load=one under another name",
        "model=one: is new",
        "other, small: no difference",
    ]


def test_what_cannot_be_composed_is_no_new_name(repository: Repository, told: Any) -> None:
    rename(repository, "experiment/other", "experiment/new", OTHER.replace("epochs: 3", "epochs: 0"))
    said = told(*MINE, status=2)
    assert "other: is removed\n" in said
    assert "new: cannot be compared\n" in said
