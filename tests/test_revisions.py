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
from tests.repository import OTHER, SMALL, Repository

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


@pytest.mark.usefixtures("repository")
def test_a_reference_to_nothing_is_refused() -> None:
    assert refusal_of_diff("nothing", "cache=none") == (
        "nothing: found neither overrides, nor a file, a folder or a git revision of that name; expected overrides in "
        "one argument, a config file, the folder of a run or of a sweep, or a git revision\n"
        '    -> quote overrides as one argument: "experiment=parallel load.prefetch=1"'
    )


def test_revisions_are_compared_by_experiment_and_by_file(repository: Repository, told: Any) -> None:
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    repository.replace("experiment/other.yaml", "Another one", "Quite another one")
    repository.write("experiment/new.yaml", "# @package _global_\n# New.\nload: {prefetch: 1}\n")
    repository.commit("Smaller")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine", "--exit-code", status=1) == (
        "small: changes the data, from transform.resize on\n"
        "  transform.resize.size  [48, 48] -> [32, 32]  data, from transform.resize on\n\n"
        "new: is new\n"
        "other: no difference\n"
        "mine/experiment/new.yaml: added, reaches new\n"
        "mine/experiment/other.yaml: changed, reaches other, and changes no plan\n"
        "mine/transform/small_48.yaml: changed, reaches small\n"
    )


PETS = "defaults: [folder, _self_]\ndir: photos\n"


def test_options_that_no_own_experiment_uses_are_compared_with_the_defaults(repository: Repository, told: Any) -> None:
    repository.write("dataset/pets.yaml", PETS)
    repository.write("model/small.yaml", "defaults: [mobilenet_v2_small, _self_]\nalpha: 0.5\n")
    repository.write("transform/flipped.yaml", "defaults: [small_64, _self_]\nsteps: [decode, resize, random_flip]\n")
    repository.commit("Options")
    repository.write("dataset/pets.yaml", PETS.replace("photos", "pictures"))
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    repository.replace("transform/flipped.yaml", ", random_flip", "")
    (repository.configs / "model" / "small.yaml").unlink()
    repository.commit("Others")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine") == (
        "small: changes the data, from transform.resize on\n"
        "  transform.resize.size  [48, 48] -> [32, 32]  data, from transform.resize on\n\n"
        "dataset=pets: changes the data, from the dataset on\n"
        "  dataset.dir  photos -> pictures  data, from the dataset on\n"
        "  cache of train and validation: cache.memory at transformed is filled by each run (12,360 bytes per example; "
        "the dataset is not prepared here)\n\n"
        "model=small: is removed\n"
        "other: no difference\n"
        "mine/dataset/pets.yaml: changed, reaches dataset=pets\n"
        "mine/model/small.yaml: removed, reaches model=small\n"
        "mine/transform/flipped.yaml: changed, reaches no experiment\n"
        "mine/transform/small_48.yaml: changed, reaches small\n"
    )


def test_a_fault_of_both_sides_is_told_once(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0")
    assert told("HEAD", "--config-dir", "mine", "--experiment", "other", status=2).count("trainer.epochs") == 1
    repository.commit("Wrong")
    assert told("HEAD", "HEAD", "--config-dir", "mine", status=2) == (
        "other: cannot be compared\n"
        "  HEAD:mine/experiment/other.yaml:5: trainer.epochs: found 0; expected a positive integer\n\n"
        "small: no difference\n"
    )


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


def test_one_experiment_of_revisions_is_compared(repository: Repository, told: Any) -> None:
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    (repository.configs / "experiment" / "other.yaml").unlink()
    repository.commit("Smaller")
    base = ("--config-dir", "mine", "--experiment")
    assert told("main~1", "main", *base, "other").splitlines()[0] == "other: is removed"
    assert told("main~1", "main", *base, "small").splitlines()[0] == "small: changes the data, from transform.resize on"
    assert told("main~1", "main", *base, "small").splitlines()[-2:] == [
        "mine/experiment/other.yaml: removed, does not reach small",
        "mine/transform/small_48.yaml: changed, reaches small",
    ]
    assert refusal_of_diff("main~1", "main", *base, "nothing") == (
        "--experiment: found nothing, which is not in main~1 or main; expected an existing experiment"
    )


def test_a_revision_is_compared_with_overrides_and_with_the_working_tree(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    one = ["other: changes the training", "  trainer.epochs  3 -> 4  training"]
    assert told("HEAD", "--config-dir", "mine").splitlines()[:2] == one
    other = told("HEAD", "experiment=other", "--experiment", "other", "--config-dir", "mine").splitlines()
    assert other[:2] == [one[0].removeprefix("other: "), one[1]]


def test_reading_a_revision_leaves_the_working_tree_as_it_is(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    before = repository.git("status", "--porcelain")
    assert "no difference" in told("HEAD", "HEAD", "--config-dir", "mine")
    assert repository.git("status", "--porcelain") == before == "M mine/experiment/other.yaml"


def test_a_wrong_revision_is_told_with_its_file_and_line(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0\n  epoch: 1")
    repository.replace("experiment/small.yaml", "small_48", "small_4")
    repository.commit("Wrong")
    repository.replace("experiment/other.yaml", "epochs: 0\n  epoch: 1", "epochs: 3")
    repository.replace("experiment/small.yaml", "small_4", "small_48")
    repository.commit("Right")
    lines = told("HEAD~1", "HEAD", "--config-dir", "mine", status=2).splitlines()
    start = lines.index("small: cannot be compared") + 1
    assert lines[start].startswith("  HEAD~1:mine/experiment/small.yaml:6: found Could not find 'transform/small_4'")
    start = lines.index("other: cannot be compared")
    assert [line.split("; expected")[0] for line in lines[start + 1 : start + 3]] == [
        "  HEAD~1:mine/experiment/other.yaml:5: trainer.epochs: found 0",
        "  HEAD~1:mine/experiment/other.yaml:6: trainer.epoch: found an unknown key",
    ]
    assert "other: no difference" in told("HEAD~2", "HEAD", "--experiment", "other", "--config-dir", "mine")


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


def test_an_experiment_named_as_the_run_without_one_is_refused(repository: Repository) -> None:
    repository.write("experiment/default.yaml", OTHER)
    repository.commit("Named so")
    assert refusal_of_diff("HEAD~1", "HEAD", "--config-dir", "mine") == (
        "HEAD:mine/experiment/default.yaml: found default; expected another name: this one is reserved for the run "
        "without an experiment"
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


@pytest.mark.usefixtures("repository")
def test_a_folder_that_holds_no_configs_of_groups_is_refused() -> None:
    assert refusal_of_diff("HEAD", "HEAD", "--config-dir", "mine/experiment", "--fail-on", "data") == (
        "--config-dir: found no experiment and no option of a group in HEAD or HEAD; expected a folder of configs, "
        "such as experiment/NAME.yaml in it\n    -> name the folder that holds the folders of groups"
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
