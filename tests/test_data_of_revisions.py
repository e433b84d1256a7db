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
BOTH = "; both sides read that of the working tree"


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


def test_a_file_that_differs_between_revisions_is_noted(repository: Repository, told: Any) -> None:
    repository.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    repository.commit("Fewer rows")
    note = f"data/*.csv differs between HEAD~1 and HEAD{BOTH}"
    sides = ("HEAD~1", "HEAD", "--config-dir", "conf")
    assert told(*sides, "--fail-on", "data") == f"pets, ship: no difference\nnote: {note}\npolicy: passed\n"
    assert told(*sides, "--stat") == f"nothing changes\nnote: {note}\n"
    assert told(*sides, "--format", "markdown").endswith(f"\n\n- {note.replace('~', '&#126;').replace('*', '&#42;')}\n")
    assert json.loads(told(*sides, "--format", "json"))["notes"] == [note]
    assert told(*sides, "--experiment", "pets") == "pets: no difference\n"


def test_a_folder_that_differs_from_the_working_tree_is_noted(repository: Repository, told: Any) -> None:
    assert told("HEAD", "--config-dir", "conf") == "pets, ship: no difference\n"
    repository.write("../photos/cat/1.jpg", "2")
    assert told("HEAD", "--config-dir", "conf") == (
        f"pets, ship: no difference\nnote: photos differs between HEAD and the working tree{BOTH}\n"
    )


def test_data_that_a_config_newly_names_is_a_difference_and_no_note(repository: Repository, told: Any) -> None:
    repository.replace("experiment/pets.yaml", "photos", "pictures")
    repository.write("../pictures/cat/1.jpg", "2")
    repository.commit("Pictures")
    assert "note" not in told("HEAD~1", "HEAD", "--config-dir", "conf")
