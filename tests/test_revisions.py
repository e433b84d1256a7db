"""Revisions of a repository of real commits, compared: configs and data files, and what stands in a comment."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etlrun.sources.base import open_source
from etlrun.system.errors import EtlrunError
from tests.configs import CONF, plan_of, raised, refusal_of_diff
from tests.golden import Case, Golden, Says, cases
from tests.own import PETS, image, prepared, records, write_photos
from tests.pulls import GOLDEN, PULLS, of, the_same_everywhere, transcript
from tests.repository import OTHER, SMALL, Repository
from tests.runs import run_here, summary_of


def message_of(*words: str) -> str:
    return raised(EtlrunError, open_source, plan_of("dataset=tfds", "dataset.download=false", *words).spec.dataset)


def test_another_version_than_that_which_is_prepared_is_told(tmp_path: Path, says: Says) -> None:
    for version in ("1.0.0", "1.10.0", "1.9.0"):
        prepared(write_photos(tmp_path / "photos", 4), tmp_path / "data", "--version", version)
    words = ("dataset.name=own", f"dataset.data_dir={tmp_path / 'data'}")
    says(message_of(*words, "dataset.version=3.*.*"))


REST = "or start a new run without trainer.resume (if the examples are known to be the same, remove `digest` from"


@pytest.mark.parametrize("kind", ["folder", "tfrecord"])
def test_a_resumed_run_on_changed_files_is_told_to_restore_them(kind: str, folder: Path, tmp_path: Path) -> None:
    words = ["dataset=folder", f"dataset.dir='{folder}'"]
    remedy = "restore the files, or set dataset.dir to a copy of those"
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
def of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path, "conf")
    monkeypatch.chdir(tmp_path)
    made.write("experiment/ship.yaml", TABLE)
    made.write("experiment/pets.yaml", PHOTOS)
    made.write("../data/a.csv", f"{HEAD}{ROWS * 10}")
    made.write("../photos/cat/1.jpg", "1")
    made.commit("Data")
    return made


@pytest.mark.parametrize("case", cases("data_of_revisions"))
def test_other_data_is_told_in_full(case: Case, golden: Golden, of_data: Repository) -> None:
    golden(case, transcript(case, of_data))


@pytest.mark.parametrize(
    ("link", "end", "named"),
    [
        pytest.param("both/data", "../data", "both/data/*.csv", id="above"),
        pytest.param("both/a.csv", "../data/a.csv", "both/*.csv", id="inside"),
        pytest.param("both/in/data", "../../data", "both/**/a.csv", id="at any depth"),
    ],
)
def test_what_links_lead_to_is_compared_and_read(
    of_data: Repository, told: Any, link: str, end: str, named: str
) -> None:
    of_data.replace("experiment/ship.yaml", "data/*.csv", named)
    of_data.replace("experiment/pets.yaml", "photos", "both")
    place = of_data.folder / link
    place.parent.mkdir(parents=True)
    place.symlink_to(end)
    of_data.commit("A link")
    assert told("HEAD", "--config-dir", "conf") == "pets, ship: no difference\n"
    of_data.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    of_data.commit("Fewer rows")
    listed = told("HEAD~1", "HEAD", "--config-dir", "conf")
    assert "  dataset.rows   20 of train -> 10 of train" in listed
    assert f"\n  dataset.files  {named} -> {named}" in listed
    assert "\n  dataset.dir  both -> both  data" in listed


def test_a_link_above_that_leads_elsewhere_is_a_difference(of_data: Repository, told: Any) -> None:
    of_data.replace("experiment/pets.yaml", "photos", "latest/cats")
    for version in ("v1", "v2"):
        of_data.write(f"../{version}/cats/cat/1.jpg", version)
    latest = of_data.folder / "latest"
    latest.symlink_to("v1")
    of_data.commit("The first version")
    latest.unlink()
    latest.symlink_to("v2")
    of_data.commit("The second version")
    line = "  dataset.dir  latest/cats -> latest/cats  data, from the dataset on, differs between HEAD~1 and HEAD"
    assert line in told("HEAD~1", "HEAD", "--config-dir", "conf")


def test_links_that_lead_to_each_other_come_to_an_end(of_data: Repository, told: Any) -> None:
    for link, end in (("a", "b/c"), ("b", "a/d"), ("photos/all", "..")):
        (of_data.folder / link).symlink_to(end)
    of_data.commit("Links")
    of_data.write("../data/a.csv", f"{HEAD}{ROWS * 5}")
    assert "  dataset.dir  photos -> photos  data" in told("HEAD", "--config-dir", "conf")


def test_another_commit_of_a_submodule_is_a_difference(of_data: Repository, told: Any) -> None:
    of_data.replace("experiment/pets.yaml", "photos", "inner/photos")
    (of_data.folder / "inner").mkdir()
    inner = Repository(of_data.folder / "inner", "conf")
    inner.write("../photos/cat/1.jpg", "1")
    inner.commit("Photos")
    of_data.write("../.gitmodules", '[submodule "inner"]\npath = inner\nurl = ./inner\nignore = all\n')
    of_data.commit("A submodule")
    inner.write("../photos/cat/1.jpg", "2")
    inner.commit("Other photos")
    assert "  dataset.dir  inner/photos -> inner/photos  data" in told("HEAD", "--config-dir", "conf")


@pytest.mark.parametrize("case", cases("revisions"))
def test_changes_are_told_in_full(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


@pytest.mark.slow
@pytest.mark.parametrize("pull", PULLS, ids=lambda pull: pull["name"])
def test_a_pull_request_gets_what_its_golden_file_shows(pull: dict[str, Any], tmp_path: Path, golden: Golden) -> None:
    with the_same_everywhere():
        golden(GOLDEN / f"{pull['name']}.md", of(pull, tmp_path))


OWN_PETS = "defaults: [folder, _self_]\ndir: photos\n"


def test_the_first_own_configs_are_new(tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    (tmp_path / "repository").mkdir()
    repository = Repository(tmp_path / "repository", "mine")
    monkeypatch.chdir(repository.folder)
    repository.write("dataset/pets.yaml", OWN_PETS)
    repository.commit("Pets")
    says(told("HEAD~1", "HEAD", "--config-dir", "mine"))
    says(told("HEAD", "HEAD", "--config-dir", "mine", "--format", "markdown").splitlines()[-1])


def test_reading_a_revision_leaves_the_working_tree_as_it_is(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    before = repository.git("status", "--porcelain")
    assert "no difference" in told("HEAD", "HEAD", "--config-dir", "mine")
    assert repository.git("status", "--porcelain") == before == "M mine/experiment/other.yaml"


def test_what_users_wrote_stays_text_in_a_comment(repository: Repository, told: Any) -> None:
    name = "n```\n```\n# out </details><b>[click](http://evil) @octocat"
    repository.write("experiment/small.yaml", SMALL + "dataset: " + json.dumps({"name": name, "data_dir": "a`|b\n# c"}))
    repository.write("experiment/@x <b>*.yaml", SMALL.replace("epochs: 2", "epochs: 0"))
    repository.commit("Odd")
    text = told("HEAD~1", "HEAD", "--config-dir", "mine", "--format", "markdown", status=2)
    one_line = " ".join(name.split())
    assert f"| `dataset.name` | `etlrun_sample` | ```` {one_line} ```` | data, from the dataset on |\n" in text
    assert "| `dataset.data_dir` | `null` | `` a`\\|b # c `` | speed, if it holds the same files |\n" in text
    assert "\n#### &#64;x &#60;b>&#42;: cannot be compared\n" in text
    assert "\n- mine/experiment/&#64;x &#60;b>&#42;.yaml: added, reaches &#64;x &#60;b>&#42;\n" in text


def test_a_comment_is_no_longer_than_comments_may_be(repository: Repository, told: Any) -> None:
    for change, letter in (("Many", "x"), ("Others", "y")):
        for number in range(8):
            long = "".join(f"  {key}: n{number}{letter * 3_000}\n" for key in ("name", "data_dir"))
            repository.write(f"experiment/{number}.yaml", f"{OTHER}dataset:\n{long}")
        repository.commit(change)
    text = told("HEAD~1", "HEAD", "--config-dir", "mine", "--format", "markdown")
    assert 30_000 < len(text) < 61_000
    assert re.fullmatch(r"Too long for a comment: [\d,]+ characters are omitted.", text.splitlines()[-1])


def test_many_experiments_that_stay_as_they_were_are_counted(repository: Repository, told: Any) -> None:
    for number in range(20):
        repository.write(f"experiment/e{number:02}.yaml", SMALL)
    repository.commit("Many")
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    repository.replace("transform/small_48.yaml", "size: [48, 48]", "size: [48, 48]  # pixels")
    repository.commit("Longer")
    *_, same, of_other, of_transform = told("HEAD~1", "HEAD", "--config-dir", "mine").splitlines()
    assert same == "21 experiments: no difference"
    assert of_other == "mine/experiment/other.yaml: changed, reaches other"
    names = ", ".join(f"e{number:02}" for number in range(20))
    assert of_transform == f"mine/transform/small_48.yaml: changed, reaches {names} and 1 more, and changes no plan"


def test_what_was_committed_is_read_whatever_is_left_out_of_archives(repository: Repository, told: Any) -> None:
    (repository.folder / ".gitattributes").write_text("mine export-ignore\nother.yaml export-ignore\n")
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    repository.commit("Longer")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine").splitlines()[0] == "other: changes the training"


def test_links_are_followed(repository: Repository, told: Any) -> None:
    other = repository.configs / "experiment" / "other.yaml"
    other.rename(repository.folder / "kept.yaml")
    other.symlink_to("../../kept.yaml")
    repository.commit("Linked")
    assert "other: " not in told("HEAD~1", "HEAD", "--config-dir", "mine").replace("mine/experiment/", "")
    (repository.folder / "kept.yaml").write_text(OTHER.replace("epochs: 3", "epochs: 4"))
    repository.commit("Longer")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine").splitlines()[0] == "other: changes the training"


def test_folders_to_which_links_lead_are_read_as_they_were(repository: Repository, told: Any) -> None:
    shared = repository.folder / "shared"
    (repository.configs / "transform").rename(repository.folder / "kept")
    shared.symlink_to("kept")
    (repository.configs / "transform").symlink_to("../shared/../shared")
    (repository.folder / "kept" / "back").symlink_to("../mine")
    (repository.folder / "kept" / "loop.yaml").symlink_to("loop.yaml")
    (repository.folder / "kept" / "gone.yaml").symlink_to("nowhere/gone.yaml")
    repository.commit("Linked")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine").startswith("other, small: no difference")
    assert told("HEAD", "--config-dir", "mine").startswith("other, small: no difference")
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    changed = "small: changes the data, from transform.resize on"
    assert told("HEAD", "--config-dir", "mine").splitlines()[0] == changed
    repository.commit("Smaller")
    answer = told("HEAD~1", "HEAD", "--config-dir", "mine").splitlines()
    assert (answer[0], answer[-1]) == (changed, "mine/transform/small_48.yaml: changed, reaches small")


@pytest.mark.parametrize("target", ["../../elsewhere", "/elsewhere/configs"])
def test_a_link_that_leaves_the_repository_is_refused(repository: Repository, target: str, says: Says) -> None:
    (repository.configs / "load").symlink_to(target)
    repository.commit("Linked")
    says(refusal_of_diff("HEAD", "--config-dir", "mine"))


def test_submodules_and_odd_names_are_in_nobodys_way(repository: Repository, told: Any, says: Says) -> None:
    head = repository.git("rev-parse", "HEAD")
    repository.write("experiment/a\nb\t.yaml", SMALL)
    repository.write("experiment/.hidden.yaml", "wrong: [")
    repository.git("add", "--all")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{head},mine/experiment/module.yaml")
    repository.git("commit", "--quiet", "--message", "Odd")
    says(told("HEAD~1", "HEAD", "--config-dir", "mine"))


def test_configs_may_be_a_whole_repository(repository: Repository, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    repository.commit("Longer")
    monkeypatch.chdir(repository.configs)
    assert told("HEAD~1", "HEAD", "--config-dir", ".").splitlines()[0] == "other: changes the training"
    shutil.rmtree(repository.folder / ".git")
    whole = Repository(repository.configs, ".")
    repository.replace("experiment/other.yaml", "epochs: 4", "epochs: 5")
    whole.commit("Longer still")
    assert told("HEAD~1", "HEAD", "--config-dir", ".").splitlines()[0] == "other: changes the training"


def test_configs_that_were_not_there_yet_are_new(repository: Repository, told: Any) -> None:
    repository.git("mv", "mine", "yours")
    repository.commit("Moved")
    lines = told("HEAD~1", "HEAD", "--config-dir", "yours").splitlines()
    assert lines[:2] == ["other: is new", "small: is new"]


def test_a_revision_without_configs_is_refused(repository: Repository, says: Says) -> None:
    (repository.folder / "untracked").mkdir()
    says(refusal_of_diff("HEAD", "HEAD", "--config-dir", "untracked"))
    says(refusal_of_diff("HEAD"))


def test_the_configs_of_a_project_are_found_beside_its_package(tmp_path: Path, says: Says) -> None:
    for folder in ("etlrun", "conf"):
        shutil.copytree(CONF.parent / folder, tmp_path / folder)
    repository = Repository(tmp_path, "conf")
    repository.replace("load/shuffled.yaml", "1024", "512")
    repository.commit("Two")
    answer = subprocess.run(
        [sys.executable, "-m", "etlrun", "diff", "HEAD~1", "HEAD", "--experiment", "cats_vs_dogs"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    says((answer.stdout, answer.stderr))
