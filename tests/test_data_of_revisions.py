"""Data files of a repository that differ between the revisions that `diff` compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etlrun.sources.base import open_source
from etlrun.system.errors import EtlrunError
from tests.configs import plan_of
from tests.golden import Case, Golden, cases
from tests.own import PETS, image, prepared, records, write_photos
from tests.pulls import transcript
from tests.repository import Repository
from tests.runs import run_here, summary_of


def message_of(*words: str) -> str:
    with pytest.raises(EtlrunError) as error:
        open_source(plan_of("dataset=tfds", "dataset.download=false", *words).spec.dataset)
    return str(error.value)


def test_another_version_than_that_which_is_prepared_is_told(tmp_path: Path) -> None:
    for version in ("1.0.0", "1.10.0", "1.9.0"):
        prepared(write_photos(tmp_path / "photos", 4), tmp_path / "data", "--version", version)
    words = ("dataset.name=own", f"dataset.data_dir={tmp_path / 'data'}")
    assert message_of(*words, "dataset.version=3.*.*") == (
        f"dataset.version: found 3.*.*, which is not in {tmp_path}/data/own; expected a version that is prepared: "
        "1.0.0, 1.9.0, 1.10.0\n    -> set dataset.version=1.10.0, or null for the newest"
    )


def test_a_name_is_compared_with_those_of_prepared_datasets(tmp_path: Path) -> None:
    prepared(write_photos(tmp_path / "photos", 4), tmp_path / "data", "--name", "wild_roses")
    found = message_of("dataset.name=wild_rose", f"dataset.data_dir={tmp_path / 'data'}")
    assert found.endswith(
        "; expected a dataset known to TFDS, or its files in dataset.data_dir\n    -> did you mean wild_roses?"
    )


REST = "or start a new run without trainer.resume (if the examples are known to be the same, remove `digest` from"


@pytest.mark.parametrize("kind", ["folder", "tfrecord"])
def test_a_resumed_run_on_changed_files_is_told_to_restore_them(kind: str, folder: Path, tmp_path: Path) -> None:
    words = ["dataset=folder", f"dataset.dir='{folder}'"]
    remedy = "restore the images, or set dataset.dir to a copy of those"
    if kind == "tfrecord":
        records(tmp_path, "a.tfrecord", range(20))
        words = ["dataset=tfrecord", f"dataset.files='{tmp_path}/*.tfrecord'", "dataset.num_classes=2"]
        remedy = "restore the files, or set dataset.files to a copy of those"
    words += ["model=emulated", "model.step_ms=0", "model.eval_step_ms=0", "cache=none", "load.batch_size=4",
              "transform.resize.size=[8,8]"]  # fmt: skip
    first = tmp_path / "first"
    assert run_here(first, [*words, "trainer.epochs=1"])[0] == 0
    for number in range(40):
        (folder / PETS[number % 2] / f"no {number}.jpg").write_bytes(image(50 + number))
    records(tmp_path, "a.tfrecord", range(50, 70))
    assert run_here(tmp_path / "second", [*words, "trainer.epochs=2", f"trainer.resume={first}"])[0] == 1
    error = summary_of(tmp_path / "second")["error"]
    assert error.splitlines()[1] == f"    -> {remedy}, {REST} {first / 'summary.json'})"


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


@pytest.mark.parametrize("case", cases("data_of_revisions"))
def test_other_data_is_told_in_full(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


@pytest.mark.parametrize(
    ("link", "end", "named"),
    [
        pytest.param("both/data", "../data", "both/data/*.csv", id="above"),
        pytest.param("both/a.csv", "../data/a.csv", "both/*.csv", id="inside"),
        pytest.param("both/in/data", "../../data", "both/**/a.csv", id="at any depth"),
    ],
)
def test_what_links_lead_to_is_compared_and_read(
    repository: Repository, told: Any, link: str, end: str, named: str
) -> None:
    repository.replace("experiment/ship.yaml", "data/*.csv", named)
    repository.replace("experiment/pets.yaml", "photos", "both")
    place = repository.folder / link
    place.parent.mkdir(parents=True)
    place.symlink_to(end)
    repository.commit("A link")
    assert told("HEAD", "--config-dir", "conf") == "pets, ship: no difference\n"
    repository.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    repository.commit("Fewer rows")
    listed = told("HEAD~1", "HEAD", "--config-dir", "conf")
    assert "  dataset.rows   20 of train -> 10 of train" in listed
    assert f"\n  dataset.files  {named} -> {named}" in listed
    assert "\n  dataset.dir  both -> both  data" in listed


def test_a_link_above_that_leads_elsewhere_is_a_difference(repository: Repository, told: Any) -> None:
    repository.replace("experiment/pets.yaml", "photos", "latest/cats")
    for version in ("v1", "v2"):
        repository.write(f"../{version}/cats/cat/1.jpg", version)
    latest = repository.folder / "latest"
    latest.symlink_to("v1")
    repository.commit("The first version")
    latest.unlink()
    latest.symlink_to("v2")
    repository.commit("The second version")
    line = "  dataset.dir  latest/cats -> latest/cats  data, from the dataset on, differs between HEAD~1 and HEAD"
    assert line in told("HEAD~1", "HEAD", "--config-dir", "conf")


def test_links_that_lead_to_each_other_come_to_an_end(repository: Repository, told: Any) -> None:
    for link, end in (("a", "b/c"), ("b", "a/d"), ("photos/all", "..")):
        (repository.folder / link).symlink_to(end)
    repository.commit("Links")
    repository.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    assert "  dataset.dir  photos -> photos  data" in told("HEAD", "--config-dir", "conf")


def test_another_commit_of_a_submodule_is_a_difference(repository: Repository, told: Any) -> None:
    repository.replace("experiment/pets.yaml", "photos", "inner/photos")
    (repository.folder / "inner").mkdir()
    inner = Repository(repository.folder / "inner", "conf")
    inner.write("../photos/cat/1.jpg", "1")
    inner.commit("Photos")
    repository.write("../.gitmodules", '[submodule "inner"]\npath = inner\nurl = ./inner\nignore = all\n')
    repository.commit("A submodule")
    inner.write("../photos/cat/1.jpg", "2")
    inner.commit("Other photos")
    assert "  dataset.dir  inner/photos -> inner/photos  data" in told("HEAD", "--config-dir", "conf")
