"""Revisions of a repository of real commits, compared, and what of them stands in a comment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.configs import CONF, refusal_of_diff
from tests.golden import Case, Golden, cases
from tests.pulls import GOLDEN, PULLS, of, the_same_everywhere, transcript
from tests.repository import OTHER, SMALL, Repository


@pytest.mark.parametrize("case", cases("revisions"))
def test_changes_are_told_in_full(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


@pytest.mark.slow
@pytest.mark.parametrize("name", PULLS)
def test_a_pull_request_gets_what_its_golden_file_shows(name: str, tmp_path: Path, golden: Golden) -> None:
    with the_same_everywhere():
        golden(GOLDEN / f"{name}.md", of(PULLS[name], tmp_path))


def test_each_pull_request_has_a_golden_file() -> None:
    assert sorted(PULLS) == sorted(path.stem for path in GOLDEN.iterdir())


PETS = "defaults: [folder, _self_]\ndir: photos\n"


def test_the_first_own_configs_are_new(tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repository").mkdir()
    repository = Repository(tmp_path / "repository", "mine")
    monkeypatch.chdir(repository.folder)
    repository.write("dataset/pets.yaml", PETS)
    repository.commit("Pets")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine") == (
        "dataset=pets: is new\nmine/dataset/pets.yaml: added, reaches dataset=pets\n"
    )
    assert told("HEAD", "HEAD", "--config-dir", "mine", "--format", "markdown").splitlines()[-1] == (
        "- dataset=pets: no difference"
    )


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
    assert '[("n#96;#96;#96; #96;#96;#96; # out #lt;/details#gt;#lt;b#gt;[click](http://evil) @octocat<br/>' in text
    assert "\n#### &#64;x &#60;b>&#42;: cannot be compared\n" in text
    assert "\n- mine/experiment/&#64;x &#60;b>&#42;.yaml: added, reaches &#64;x &#60;b>&#42;\n" in text
    assert text.count("```mermaid\n") == text.count("\n```\n") == 1


def test_a_comment_is_no_longer_than_comments_may_be(repository: Repository, told: Any) -> None:
    for change, letter in (("Many", "x"), ("Others", "y")):
        for number in range(8):
            long = "".join(f"  {key}: n{number}{letter * 3_000}\n" for key in ("name", "data_dir"))
            repository.write(f"experiment/{number}.yaml", f"{OTHER}dataset:\n{long}")
        repository.commit(change)
    text = told("HEAD~1", "HEAD", "--config-dir", "mine", "--format", "markdown")
    assert 30_000 < len(text) < 61_000
    assert re.fullmatch(r"Too long for a comment: [\d,]+ characters are omitted.", text.splitlines()[-1])


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
def test_a_link_that_leaves_the_repository_is_refused(repository: Repository, target: str) -> None:
    (repository.configs / "load").symlink_to(target)
    repository.commit("Linked")
    assert refusal_of_diff("HEAD", "--config-dir", "mine") == (
        f"HEAD:mine/load: found a link to {target}, which leaves the repository; expected a link within the "
        "revision\n    -> commit the target files, and link to these"
    )


def test_submodules_and_odd_names_are_in_nobodys_way(repository: Repository, told: Any) -> None:
    head = repository.git("rev-parse", "HEAD")
    repository.write("experiment/a\nb\t.yaml", SMALL)
    repository.write("experiment/.hidden.yaml", "wrong: [")
    repository.git("add", "--all")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{head},mine/experiment/module.yaml")
    repository.git("commit", "--quiet", "--message", "Odd")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine") == (
        "other, small: no difference\nmine/experiment/a\\nb\\t.yaml: added, reaches no experiment\n"
    )


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


def test_a_revision_without_configs_is_refused(repository: Repository) -> None:
    (repository.folder / "untracked").mkdir()
    assert refusal_of_diff("HEAD", "HEAD", "--config-dir", "untracked") == (
        "HEAD: found no folder untracked in that revision; expected a revision that holds configs\n"
        "    -> commit it first, or set --config-dir to another config folder of this repository"
    )
    assert refusal_of_diff("HEAD") == (
        "HEAD: found no configs in that revision; expected a revision that holds configs\n"
        "    -> set --config-dir to the config folder of this repository"
    )


def test_the_configs_of_a_project_are_found_beside_its_package(tmp_path: Path) -> None:
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
    assert (answer.stdout, answer.stderr) == (
        (
            "cats_vs_dogs: changes the order\n"
            "  load.shuffle_buffer  1024 -> 512  order\n\n"
            "conf/load/shuffled.yaml: changed, reaches cats_vs_dogs\n"
        ),
        "",
    )
