"""What a workflow reads of a comparison: the experiments that change as a matrix, and the kinds of change."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import etlrun
from etlrun.review.document import matrix
from etlrun.review.review import Review, Reviewed
from tests.configs import plan_of
from tests.repository import Repository

MINE = ("--config-dir", "mine", "--format", "json")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


def test_the_matrix_has_each_experiment_that_changes_or_is_new(repository: Repository, told: Any) -> None:
    repository.write("experiment/old.yaml", "# @package _global_\n# Old.\nload: {prefetch: 1}\n")
    repository.write("load/one.yaml", "defaults: [shuffled, _self_]\nprefetch: 1\n")
    repository.commit("Others")
    (repository.configs / "experiment" / "old.yaml").unlink()
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 5")
    repository.replace("load/one.yaml", "prefetch: 1", "prefetch: 2")
    repository.write("experiment/new.yaml", "# @package _global_\n# New.\nload: {prefetch: 3}\n")
    repository.commit("Smaller")
    found = json.loads(told("HEAD~1", "HEAD", *MINE))
    small = {"experiment": "small", "overrides": "experiment=small", "state": "compared", "kinds": ["data", "training"]}
    new: dict[str, Any] = {
        "experiment": "new",
        "overrides": "experiment=new",
        "state": "added",
        "kinds": [],
        "since": None,
    }
    assert found["matrix"] == {"include": [{**small, "since": "transform.resize"}, new]}
    assert (found["kinds"], found["changed"], found["failed"]) == (["data", "training", "speed"], True, False)


def test_an_odd_name_is_chosen_by_a_quoted_override(repository: Repository, told: Any) -> None:
    repository.write("experiment/größe, $(x) 1.yaml", "# @package _global_\n# Odd.\nload: {prefetch: 1}\n")
    repository.commit("Odd")
    (odd,) = json.loads(told("HEAD~1", "HEAD", *MINE))["matrix"]["include"]
    assert odd["experiment"] == "größe, $(x) 1"
    side = shlex.quote(odd["overrides"])
    assert json.loads(told(side, f"{side} load.prefetch=2", *MINE))["kinds"] == ["speed"]


def test_what_cannot_be_composed_has_failed_and_is_not_to_be_run(repository: Repository, told: Any) -> None:
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 0")
    found = json.loads(told("HEAD", *MINE, status=2))
    assert (found["matrix"], found["kinds"], found["changed"], found["failed"]) == ({"include": []}, [], True, True)


@pytest.mark.usefixtures("repository")
def test_nothing_is_to_be_run_without_a_change(told: Any) -> None:
    found = json.loads(told("HEAD", *MINE))
    assert (found["matrix"], found["kinds"], found["changed"], found["failed"]) == ({"include": []}, [], False, False)


def test_single_configs_are_no_experiments_of_a_matrix(told: Any) -> None:
    found = json.loads(told("", "load.prefetch=1", "--format", "json"))
    assert (found["matrix"], found["kinds"], found["changed"], found["failed"]) == (
        {"include": []},
        ["speed"],
        True,
        False,
    )


def test_the_run_without_an_experiment_is_chosen_by_no_override() -> None:
    reviewed = Reviewed(name="default", old=None, new=plan_of(), state="added")
    review = Review(old="HEAD", new="the working tree", experiments=(reviewed,), files=())
    assert matrix(review)["include"] == [
        {"experiment": "default", "overrides": "", "state": "added", "kinds": [], "since": None}
    ]


def test_what_perhaps_changes_the_data_does_so_in_all_forms(repository: Repository, told: Any) -> None:
    repository.replace("experiment/small.yaml", "epochs: 2}", "epochs: 2, steps_per_epoch: 2}")
    repository.commit("A part of the data")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 3")
    headline = "changes perhaps the data, from load.batch on, and the training"
    found = json.loads(told("HEAD", *MINE))
    (small,) = (of for of in found["experiments"] if of["name"] == "small")
    assert (found["kinds"], found["matrix"]["include"][0]["kinds"], small["changes"]) == (3 * (["data", "training"],))
    assert (found["matrix"]["include"][0]["since"], small["headline"]) == ("load.batch", headline)
    both = "HEAD", "--config-dir", "mine"
    assert f"\n#### small: {headline}\n" in told(*both, "--format", "markdown")
    assert told(*both).startswith(f"small: {headline}\n")
    stat = told(*both, "--stat").splitlines()
    assert stat[0].startswith("small  perhaps data, training  1 difference")
    assert stat[1] == "1 of 2 change: 1 the data, 1 the training"
    changed = etlrun.diff("HEAD", config_dir="mine")
    assert (changed.changes_data, changed.changes_training, changed.changes_order) == (True, True, False)
    assert "found perhaps a change of the data in small" in told(*both, "--fail-on", "data", status=4)
