"""Data files of a repository that differ between the revisions that `diff` compares."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.repository import Repository

TABLE = """\
# @package _global_
# Passengers.
defaults: [override /dataset: table, override /transform: columns, override /model: tabular, _self_]
dataset: {files: "data/*.csv", target: {survived: class}}
"""
PHOTOS = """\
# @package _global_
# Photos.
defaults: [override /dataset: folder, _self_]
dataset: {dir: photos}
"""
HEAD, ROWS = "survived,age\n", "yes,1\nno,2\n"
OWN = "; each side reads its own"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path, "conf")
    monkeypatch.chdir(tmp_path)
    made.write("experiment/ship.yaml", TABLE)
    made.write("experiment/pets.yaml", PHOTOS)
    made.write("../data/a.csv", f"{HEAD}{ROWS * 10}")
    made.write("../photos/cat/1.jpg", "1")
    made.commit("Data")
    return made


def test_a_file_that_differs_between_revisions_is_read_as_each_has_it(repository: Repository, told: Any) -> None:
    repository.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    repository.commit("Fewer rows")
    sides = ("HEAD~1", "HEAD", "--config-dir", "conf")
    assert told(*sides) == (
        "ship: changes the data, from the dataset on\n"
        "  dataset.rows   20 of train -> 10 of train  data, from the dataset on\n"
        "  dataset.files  data/*.csv -> data/*.csv    data, from the dataset on, "
        f"differs between HEAD~1 and HEAD{OWN}\n\npets: no difference\n"
    )
    broken = "--fail-on: found a change of the data in ship by dataset.rows, dataset.files; expected none"
    assert told(*sides, "--fail-on", "data", status=4).splitlines()[-2:] == ["policy: 1 rule broken", f"  {broken}"]
    found = json.loads(told(*sides, "--format", "json"))
    assert (found["kinds"], [of["kinds"] for of in found["matrix"]["include"]]) == (["data"], [["data"]])
    assert told(*sides, "--experiment", "pets") == "pets: no difference\n"


def test_a_folder_that_differs_from_the_working_tree_is_named(repository: Repository, told: Any) -> None:
    assert told("HEAD", "--config-dir", "conf") == "pets, ship: no difference\n"
    repository.write("../photos/cat/1.jpg", "2")
    assert told("HEAD", "--config-dir", "conf").splitlines()[:2] == [
        "pets: changes the data, from the dataset on",
        f"  dataset.dir  photos -> photos  data, from the dataset on, differs between HEAD and the working tree{OWN}",
    ]


def test_data_outside_of_the_repository_is_read_where_it_is(repository: Repository, told: Any) -> None:
    repository.write("../.gitignore", "kept/\n")
    repository.write("../kept/b.csv", f"{HEAD}{ROWS * 10}")
    repository.replace("experiment/ship.yaml", '"data/*.csv"', '["data/*.csv", kept/b.csv]')
    repository.commit("Both")
    repository.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    assert "  dataset.rows   40 of train -> 30 of train  data" in told("HEAD", "--config-dir", "conf")


def test_data_that_a_config_newly_names_is_one_difference(repository: Repository, told: Any) -> None:
    repository.replace("experiment/pets.yaml", "photos", "pictures")
    repository.write("../pictures/cat/1.jpg", "2")
    repository.commit("Pictures")
    assert "differs between" not in told("HEAD~1", "HEAD", "--config-dir", "conf")
