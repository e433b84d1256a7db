"""What `check` and policies say of changes: annotations on a line that can be mended, and which rule judges."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.parsers import call
from etlrun.config.request import Request, files_digest
from etlrun.review.check import FORMATS, Checked
from etlrun.review.effects import Facts
from etlrun.review.folders import Policy, Rule, policy_of, working_tree
from etlrun.review.review import judged, review
from etlrun.review.sides import resolve
from etlrun.stages.base import DATA
from etlrun.system.errors import ConfigError, Fault
from tests.golden import Case, Golden, cases
from tests.own_configs import faults, write
from tests.present import present
from tests.pulls import transcript
from tests.repository import Repository


def commands(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a check prints for GitHub."""
    capsys.readouterr()
    with suppress(ConfigError):
        call("check", ["--config-dir", "mine", "--format", "github"])
    answer = capsys.readouterr()
    assert answer.err == ""
    return answer.out.splitlines()


def policy(folder: Path, text: str) -> Policy:
    write(folder / "etlrun-policy.yaml", text)
    return present(policy_of(working_tree("mine")))


def test_rules_have_their_place_and_label(mine: Path) -> None:
    file = "mine/etlrun-policy.yaml"
    assert policy(mine, "#\ndata: {label: ' a '}\norder: {}\ntraining:\n  label: Größe (ok)\n").rules == (
        Rule(name="data", where="data", file=file, line=2, label="a"),
        Rule(name="order", where="order", file=file, line=3),
        Rule(name="training", where="training", file=file, line=4, label="Größe (ok)"),
    )


@pytest.mark.parametrize("text", ["", "# Nothing yet.\n", "{}\n"])
def test_a_policy_may_have_no_rule(text: str, mine: Path) -> None:
    found = policy(mine, text)
    assert (found.rules, found.faults) == ((), ())


def test_a_policy_that_cannot_be_read_is_no_missing_one(mine: Path) -> None:
    (mine / "etlrun-policy.yaml").symlink_to("nowhere.yaml")
    found = present(policy_of(working_tree("mine")))
    told = "mine/etlrun-policy.yaml: found No such file or directory; expected a readable file or folder"
    assert [str(fault) for fault in found.faults] == [told] == faults()


def test_a_policy_is_no_config(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_digest(Request(overrides=[], config_dir="mine"))
    assert policy(mine, "data: {}\n").faults == ()
    call("check", ["--config-dir", "mine"])
    assert capsys.readouterr().out.endswith(" s: no fault\n")
    assert files_digest(Request(overrides=[], config_dir="mine")) == before
    assert "mine/etlrun-policy.yaml" not in working_tree("mine").files


def test_examples_that_were_read_differently_are_other_data() -> None:
    read = Facts(lines=[], is_same=False, is_ordered=False, digests={})
    now = working_tree(None)
    sides = resolve("", now, None), resolve("load.prefetch=1", now, None)
    found = review(*sides, None)
    found = replace(found, experiments=(replace(found.experiments[0], facts=read),))
    answer = present(judged(found, sides, [DATA], []).policy)
    told = "--fail-on: found perhaps a change of the data (examples that were read differ); expected none"
    assert [str(fault) for fault in answer.broken] == [told]


@pytest.mark.parametrize("case", cases("policy"))
def test_a_change_is_judged(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


@pytest.mark.parametrize("is_link_before", [False, True])
def test_a_folder_that_becomes_a_link_or_was_one_has_the_policy_that_it_had(
    repository: Repository, told: Any, *, is_link_before: bool
) -> None:
    repository.write("etlrun-policy.yaml", "data: {label: approved}\n")
    repository.commit("Policy")
    (repository.folder / "deep").mkdir()
    repository.git("mv", "mine", "deep/theirs")
    repository.configs.symlink_to("deep/../deep/theirs")
    if is_link_before:
        repository.commit("Linked")
        repository.configs.unlink()
        repository.git("mv", "deep/theirs", "mine")
    repository.write("etlrun-policy.yaml", "order: {}\n")
    repository.replace("transform/small_48.yaml", "[48, 48]", "[64, 64]")
    repository.commit("Another place")
    name = "mine" if is_link_before else "deep/theirs"
    said = told("HEAD~1", "HEAD", "--config-dir", "mine", status=4)
    assert f"\npolicy: 1 rule broken (HEAD~1:{name}/etlrun-policy.yaml)\n" in said


@pytest.mark.parametrize("case", cases("annotations"))
def test_annotations_are_printed_in_full(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


@pytest.mark.usefixtures("mine")
def test_a_fault_of_no_file_is_that_of_the_folder() -> None:
    fault = Fault(where="trainer.epochs", found="0", expected="a positive integer")
    text = "::error title=trainer.epochs::trainer.epochs: found 0; expected a positive integer\n"
    assert FORMATS["github"](Checked(folders=working_tree("mine"), faults={"": fault})) == text


@pytest.mark.parametrize(
    ("name", "file", "config"),
    [
        ("o,d:d %", "o%2Cd%3Ad %25", "o,d:d %25"),
        ("för ett", "för ett", "för ett"),
        ("'q' \"q\" <&>", "'q' \"q\" <&>", "'q' \"q\" <&>"),
    ],
)
def test_any_name_and_any_value_is_one_annotation(
    name: str, file: str, config: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = '"%\\n::error::\\e\\0"'
    write(mine / "experiment" / f"{name}.yaml", f"# @package _global_\n# Odd.\ntrainer: {{epochs: {value}}}\n")
    place, found = f"file=mine/experiment/{file}.yaml,line=3,title=trainer.epochs", "'%25\\n::error::\\x1b\\x00'"
    assert commands(capsys) == [
        f"::error {place}::trainer.epochs, in experiment={config}: found {found}; expected a positive integer"
    ]


def test_files_are_named_from_the_root_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path, "training/mine")
    repository.write("load/odd.yaml", "- a list\n")
    monkeypatch.chdir(tmp_path / "training")
    assert faults() == ["mine/load/odd.yaml:1: found a list; expected a mapping of keys to values"]
    place = "file=training/mine/load/odd.yaml,line=1"
    assert commands(capsys) == [f"::error {place},title=etlrun::found a list; expected a mapping of keys to values"]
