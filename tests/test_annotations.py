"""What `check` and policies say of changes: annotations on a line that can be mended, and which rule judges."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from etlrun import __version__
from etlrun.cli.parsers import call
from etlrun.config.request import Request, files_digest
from etlrun.review.check import FORMATS, Checked, Evidence
from etlrun.review.check import check as checked
from etlrun.review.effects import Facts
from etlrun.review.folders import Policy, Rule, policy_of, working_tree
from etlrun.review.review import judged, review
from etlrun.review.sides import Variant, resolve
from etlrun.stages.base import DATA
from etlrun.system.errors import Fault
from tests.annotations import NO_PREFETCH, SLOW, UNREAD, commands, junit, sarif
from tests.configs import CONF
from tests.golden import Case, Golden, cases
from tests.own_configs import faults, write
from tests.pulls import transcript
from tests.repository import OTHER, Repository


def policy(folder: Path, text: str) -> Policy:
    write(folder / "etlrun-policy.yaml", text)
    found = policy_of(working_tree("mine"))
    assert found is not None
    return found


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
    found = policy_of(working_tree("mine"))
    assert found is not None
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
    answer = judged(found, sides, [DATA], []).policy
    assert answer is not None
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


def test_sound_configs_are_cases_without_a_fault(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (sarif(capsys)["results"], mine.is_dir()) == ([], True)
    found = junit(capsys)
    assert ([len(case) for case in found.values()], [*found][:3]) == (
        [0] * 9,
        ["experiment=other", "experiment=small", "transform=small_48"],
    )


def test_sarif_is_valid_and_has_rules_and_places(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "experiment" / "för ett.yaml", SLOW.replace("epochs: 1", "epochs: 0"))
    write(mine / "load" / "odd.yaml", "- a list\n")
    run = sarif(capsys)
    assert run["tool"]["driver"] == {
        "name": "etlrun",
        "semanticVersion": __version__,
        "rules": [
            {"id": "file", "shortDescription": {"text": "a config file that cannot be used as it is"}},
            {"id": "value", "shortDescription": {"text": "a key or a value that no config can have"}},
        ],
    }
    assert run["results"] == [
        {
            "ruleId": rule,
            "ruleIndex": index,
            "level": "error",
            "message": {"text": text},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": f"mine/{uri}", "uriBaseId": "%SRCROOT%"},
                        "region": {"startLine": line},
                    }
                }
            ],
        }
        for rule, index, uri, line, text in (
            ("file", 0, "load/odd.yaml", 1, "found a list; expected a mapping of keys to values"),
            (
                "value",
                1,
                "experiment/f%C3%B6r%20ett.yaml",
                6,
                "trainer.epochs, in experiment=för ett: found 0; expected a positive integer",
            ),
        )
    ]


def test_junit_has_a_case_for_each_config_and_for_each_broken_file(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / "load" / "huge.yaml", "# Huge.\ndefaults: [shuffled, _self_]\nbatch_size: many\n")
    write(mine / "experiment" / "other.yaml", OTHER.replace("epochs: 3", "epochs: 0\n  learning_rate: fast"))
    write(mine / "experiment" / "slow.yaml", SLOW)
    write(mine / "experiment" / "broken.yaml", "# @package _global_\n# Broken.\nload: [}\n")
    write(mine / "transform" / "flipped.yaml", "# Flipped.\ndefaults: [augmented_224, _self_]\n")
    found, folder = junit(capsys), "mine/experiment"
    huge = "mine/load/huge.yaml:3: load.batch_size, in load=huge and 11 more: found 'many'; expected a positive integer"
    for name in ("load=huge", "load=huge model=linear"):
        (failure,) = found[name]
        assert (failure.tag, failure.attrib["message"], failure.text) == ("failure", huge, huge)
    first, second = (
        f"mine/experiment/other.yaml:{line}: trainer.{key}, in experiment=other: found {value}"
        for line, key, value in (
            (5, "epochs", "0; expected a positive integer"),
            (6, "learning_rate", "'fast'; expected a positive number"),
        )
    )
    (failure,) = found["experiment=other"]
    assert (failure.attrib["message"], failure.text) == (f"2 faults: {first}", f"{first}\n{second}")
    (slow,) = found["experiment=slow"]
    assert (slow.tag, slow.text) == (
        "system-out",
        "\n".join(f"experiment=slow: {text}" for text in (NO_PREFETCH, UNREAD)).replace("%0A", "\n"),
    )
    broken = "mine/experiment/broken.yaml:3: found no value while parsing a flow node; expected YAML"
    assert (found["experiment=other"].attrib["file"], "mine/load/huge.yaml" in found) == (f"{folder}/other.yaml", False)
    assert found["mine/experiment/broken.yaml"].attrib["file"] == f"{folder}/broken.yaml"
    (failure,) = found["mine/experiment/broken.yaml"]
    assert (failure.tag, failure.text) == ("failure", broken)
    (skipped,) = found["experiment=broken"]
    assert (skipped.tag, skipped.attrib) == ("skipped", {"message": broken})
    assert len(found["experiment=small"]) == 0
    assert found["transform=flipped"][0].tag == "skipped"


@pytest.mark.usefixtures("mine")
def test_a_fault_of_no_file_is_that_of_the_folder() -> None:
    fault = Fault(where="trainer.epochs", found="0", expected="a positive integer")
    text = "::error title=trainer.epochs::trainer.epochs: found 0; expected a positive integer\n"
    assert FORMATS["github"](Checked(folders=working_tree("mine"), faults={"": fault})) == text
    for folder, location in (("mine", {"uri": "mine", "uriBaseId": "%SRCROOT%"}), (None, {"uri": CONF.as_uri()})):
        document = json.loads(FORMATS["sarif"](Checked(folders=working_tree(folder), faults={"": fault})))
        place = {"physicalLocation": {"artifactLocation": location}}
        assert document["runs"][0]["results"][0]["locations"] == [place]
    of_one = replace(fault, configs=("experiment=small",))
    configs: dict[tuple[str, ...], Variant] = {("experiment=small",): Variant(config=None, plan=None, faults=(fault,))}
    suite = FORMATS["junit"](Checked(folders=working_tree("mine"), faults={"": of_one}, configs=configs))
    assert '<testcase classname="experiment" name="experiment=small">\n' in suite


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
    fault = f"mine/experiment/{name}.yaml:3: trainer.epochs, in experiment={name}: found "
    assert junit(capsys)[f"experiment={name}"][0].attrib["message"].startswith(fault)
    (result,) = sarif(capsys)["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert unquote(location["uri"]) == f"mine/experiment/{name}.yaml"


def test_files_are_named_from_the_root_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path, "training/mine")
    repository.write("load/odd.yaml", "- a list\n")
    monkeypatch.chdir(tmp_path / "training")
    assert faults() == ["mine/load/odd.yaml:1: found a list; expected a mapping of keys to values"]
    place = "file=training/mine/load/odd.yaml,line=1"
    assert commands(capsys) == [f"::error {place},title=etlrun::found a list; expected a mapping of keys to values"]
    (result,) = sarif(capsys)["results"]
    location = {"uri": "training/mine/load/odd.yaml", "uriBaseId": "%SRCROOT%"}
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == location
    assert "training/mine/load/odd.yaml" in junit(capsys)


def test_an_experiment_that_was_tuned_elsewhere_is_a_note(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fingerprint = checked(working_tree(str(mine))).plans["other"].fingerprint
    evidence = replace(Evidence.here(fingerprint, [], {}), cores=64, memory_gb=512, gpus=["H100"])
    write(mine / "experiment" / "other.yaml", OTHER + evidence.comment + "\n")
    machine = "experiment=other: tuned on another machine (64 cores, 512 GB, H100): its speed here is not known"
    assert commands(capsys) == [f"::notice file=mine/experiment/other.yaml,title=etlrun::{machine}"]
    (result,) = sarif(capsys)["results"]
    assert (result["level"], result["ruleId"]) == ("note", "tuned_elsewhere")
