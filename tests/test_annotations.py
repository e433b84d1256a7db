"""Annotations by `check`: what is wrong or slow, on a line of a file that can be mended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from etlrun import __version__
from etlrun.cli.parsers import call
from etlrun.review.annotations import ERROR, FORMATS, VALUE, Annotation
from etlrun.review.check import Checked
from etlrun.review.check import check as checked
from etlrun.review.evidence import Evidence
from etlrun.review.folders import working_tree
from etlrun.system.errors import Fault
from tests.annotations import CHOICE, NO_PREFETCH, SLOW, UNREAD, cases, commands, sarif, told
from tests.configs import CONF, TRAINER_KEYS
from tests.own_configs import faults, write
from tests.repository import OTHER, Repository


def test_sound_configs_have_no_annotation(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands(capsys) == []
    assert json.loads(told(capsys, "json")) == {
        "format": 1,
        "configs": 9,
        "experiments": ["other", "small"],
        "faults": [],
        "warnings": [],
    }
    assert (sarif(capsys)["results"], mine.is_dir()) == ([], True)
    found = cases(capsys)
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


def test_json_has_each_fault_in_its_parts(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "load" / "huge.yaml", "# Huge.\ndefaults: [shuffled, _self_]\nbatch_size: many\n")
    write(mine / "experiment" / "slow.yaml", SLOW.replace("epochs: 1", "epochs: 2"))
    flipped = "transform: {steps: [decode, resize, random_flip, scale_minus_one_one]}"
    write(mine / "experiment" / "torn.yaml", SLOW.replace("load: {prefetch: 0}", flipped))
    document = json.loads(told(capsys, "json"))
    torn = document["faults"].pop(0)
    assert [torn[name] for name in ("rule", "file", "line", "key", "remedy", "configs")] == [
        "conflict",
        "mine/experiment/torn.yaml",
        4,
        "cache.at",
        "set cache.at=resize",
        ["experiment=torn"],
    ]
    (fault,), (warning,) = document["faults"], document["warnings"]
    assert (fault["configs"][:2], len(fault.pop("configs"))) == (["load=huge", "cache=disk load=huge"], 11)
    assert fault == {
        "rule": "value",
        "file": "mine/load/huge.yaml",
        "line": 3,
        "key": "load.batch_size",
        "found": "'many'",
        "expected": "a positive integer",
        "remedy": None,
    }
    assert warning == {
        "rule": "no_prefetch",
        "file": "mine/experiment/slow.yaml",
        "line": 7,
        "key": "load.prefetch",
        "found": "load.prefetch=0: the model waits while the next batch is prepared",
        "expected": None,
        "remedy": "try load.prefetch=autotune",
        "configs": ["experiment=slow"],
    }


def test_junit_has_a_case_for_each_config_and_for_each_broken_file(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / "load" / "huge.yaml", "# Huge.\ndefaults: [shuffled, _self_]\nbatch_size: many\n")
    write(mine / "experiment" / "other.yaml", OTHER.replace("epochs: 3", "epochs: 0\n  learning_rate: fast"))
    write(mine / "experiment" / "slow.yaml", SLOW)
    write(mine / "experiment" / "broken.yaml", "# @package _global_\n# Broken.\nload: [}\n")
    found, folder = cases(capsys), "mine/experiment"
    huge = "mine/load/huge.yaml:3: load.batch_size, in load=huge and 10 more: found 'many'; expected a positive integer"
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


def test_github_shows_each_fault_and_what_is_slow_at_its_line(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "experiment" / "other.yaml", OTHER.replace("epochs: 3", "epoch: 0"))
    write(mine / "experiment" / "slow.yaml", SLOW)
    write(mine / "experiment" / "small.yaml", "# @package _global_\ndefaults: [override /transform: small_48]\n")
    write(mine / "experiment" / "left.yml", OTHER)
    file, suffix = "file=mine/experiment", "the suffix .yml; expected .yaml, the only suffix that Hydra reads"
    assert commands(capsys) == [
        (
            f"::error {file}/other.yaml,line=5,title=trainer.epoch::trainer.epoch, in experiment=other: found an "
            f"unknown key; expected one of the keys {TRAINER_KEYS}%0A    -> did you mean `trainer.epochs`?"
        ),
        f"::error {file}/left.yml,title=etlrun::found {suffix}",
        (
            f"::warning {file}/small.yaml,line=1,title=etlrun::found no comment at the top; expected a comment with "
            "the purpose, the command and the cost of the experiment%0A    -> add it below `# @package _global_`"
        ),
        f"::warning {file}/slow.yaml,line=7,title=load.prefetch::experiment=slow: {NO_PREFETCH}",
        f"::warning {file}/slow.yaml,line=4,title=cache::experiment=slow: {UNREAD}",
    ]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("experiment/slow.yaml", SLOW, "slow.yaml,line=4"),
        ("experiment/slow.yaml", SLOW.replace(CHOICE, ""), "slow.yaml"),
        ("experiment/slow.yaml", SLOW.replace(CHOICE, "") + "cache: {at: decoded}\n", "slow.yaml,line=7"),
        ("cache/quick.yaml", "# Quick.\ndefaults: [memory, _self_]\nat: decoded\n", "slow.yaml,line=4"),
    ],
)  # fmt: skip
def test_advice_on_an_option_is_where_the_option_is_chosen(
    name: str, text: str, place: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / "experiment" / "slow.yaml", SLOW.replace("memory", "quick"))
    write(mine / name, text)
    (found,) = [line for line in commands(capsys) if "cache_unread" in line]
    assert found.startswith(f"::warning file=mine/experiment/{place},title=cache::")


def test_advice_on_a_file_of_several_experiments_is_told_once(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(mine / "load" / "eager.yaml", "# Eager.\ndefaults: [shuffled, _self_]\nprefetch: 0\n")
    for name in ("one", "two"):
        text = f"# @package _global_\n# The {name}.\ndefaults: [override /load: eager, _self_]\n"
        write(mine / "experiment" / f"{name}.yaml", text)
    place = "file=mine/load/eager.yaml,line=3,title=load.prefetch"
    assert commands(capsys) == [f"::warning {place}::experiment=one, experiment=two: {NO_PREFETCH}"]


def test_silenced_advice_and_refused_options_are_no_annotations(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silence = "measure: {silence: {no_prefetch: it is a test, cache_unread: it is a test}}\n"
    write(mine / "experiment" / "slow.yaml", SLOW + silence)
    write(mine / "transform" / "flipped.yaml", "# Flipped.\ndefaults: [augmented_224, _self_]\n")
    assert commands(capsys) == []
    call("check", ["--config-dir", "mine"])
    assert "note: transform=flipped does not fit the defaults of the other groups" in capsys.readouterr().out
    assert cases(capsys)["transform=flipped"][0].tag == "skipped"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("mine.yaml", "# Mine.\ndefaults: 3\n", "Invalid defaults list in 'mine', defaults must be a list (got int)"),
        ("mine.yaml", "# Mine.\ndefaults: [mine]\n", "a cycle in the defaults lists"),
        ("load/mine.yaml", "# Mine.\ndefaults: [mine]\n", "a cycle in the defaults lists"),
    ],
)
def test_a_fault_of_a_defaults_list_has_its_line(
    name: str, text: str, found: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / name, text)
    config = "load=mine" if "/" in name else "--config-name=mine"
    place, expected = f"file=mine/{name},line=2,title=etlrun", "a config that Hydra can compose"
    assert commands(capsys) == [f"::error {place}::in {config}: found {found}; expected {expected}"]


@pytest.mark.usefixtures("mine")
def test_a_fault_of_no_file_is_that_of_the_folder() -> None:
    fault = Fault(where="trainer.epochs", found="0", expected="a positive integer")
    found = [Annotation(level=ERROR, rule=VALUE, fault=fault, text=str(fault))]
    text = "::error title=trainer.epochs::trainer.epochs: found 0; expected a positive integer\n"
    assert FORMATS["github"](found, Checked(), working_tree("mine")) == text
    for folder, location in (
        ("mine", {"uri": "mine", "uriBaseId": "%SRCROOT%"}),
        (None, {"uri": CONF.as_uri()}),
    ):
        document = json.loads(FORMATS["sarif"](found, Checked(), working_tree(folder)))
        place = {"physicalLocation": {"artifactLocation": location}}
        assert document["runs"][0]["results"][0]["locations"] == [place]


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
    assert cases(capsys)[f"experiment={name}"][0].attrib["message"].startswith(fault)
    (result,) = sarif(capsys)["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert unquote(location["uri"]) == f"mine/experiment/{name}.yaml"


@pytest.mark.parametrize(
    ("text", "fault", "place"),
    [
        (
            'trainer: {"a\\n::error::b\\e": 0}\n',
            "trainer.a\\n::error::b\\x1b, in experiment=odd: found an unknown key; expected one of the keys "
            + TRAINER_KEYS,
            "trainer.a\\n%3A%3Aerror%3A%3Ab\\x1b",
        ),
        (
            'cache: {at: "a\\n::error::b"}\n',
            (
                "cache.at, in experiment=odd: found a\\n::error::b; expected one of source, decoded, transformed, "
                "features, decode, resize\n    -> name a step of both lists that comes before the scaling"
            ),
            "cache.at",
        ),
    ],
)
def test_no_line_of_a_log_begins_with_a_text_of_a_config(
    text: str, fault: str, place: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / "experiment" / "odd.yaml", f"# @package _global_\n# Odd.\n{text}")
    assert faults() == [f"mine/experiment/odd.yaml:3: {fault}"]
    assert commands(capsys) == [
        f"::error file=mine/experiment/odd.yaml,line=3,title={place}::{fault}".replace("\n", "%0A")
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
    (result,) = sarif(capsys)["results"]
    location = {"uri": "training/mine/load/odd.yaml", "uriBaseId": "%SRCROOT%"}
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == location
    assert "training/mine/load/odd.yaml" in cases(capsys)


def test_golden_plans_that_are_written_are_told_beside_the_format(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(mine / "experiment" / "slow.yaml", SLOW.replace("epochs: 1", "epochs: 2"))
    (line,) = commands(capsys)
    capsys.readouterr()
    call("check", ["--config-dir", "mine", "--golden", "golden", "--update", "--format", "github"])
    answer = capsys.readouterr()
    updated = "".join(f"updated golden/{name}.txt\n" for name in ("other", "slow", "small"))
    assert (answer.out, answer.err) == (f"{line}\n", updated)


def test_an_experiment_that_was_tuned_elsewhere_is_a_note(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fingerprint = checked(working_tree(str(mine))).plans["other"].fingerprint
    evidence = replace(Evidence.here(fingerprint, [], {}), cores=64, memory_gb=512, gpus=["H100"])
    write(mine / "experiment" / "other.yaml", OTHER + evidence.comment + "\n")
    machine = "experiment=other: tuned on another machine (64 cores, 512 GB, H100): its speed here is not known"
    assert commands(capsys) == [f"::notice file=mine/experiment/other.yaml,title=etlrun::{machine}"]
    (result,) = sarif(capsys)["results"]
    assert (result["level"], result["ruleId"]) == ("note", "tuned_elsewhere")


def test_what_an_option_of_the_project_sets_is_where_it_is_chosen(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "# @package _global_\n# Slow.\ndefaults:\n  - override /load: plain\n"
    write(mine / "experiment" / "slow.yaml", f"{head}  - _self_\n")
    place = "file=mine/experiment/slow.yaml,line=4"
    assert commands(capsys) == [f"::warning {place},title=load.prefetch::experiment=slow: {NO_PREFETCH}"]
    steps = "steps: [decode, resize, random_flip, scale_minus_one_one]"
    text = f"{head}  - override /cache: memory\n  - _self_\ntransform: {{{steps}}}\n"
    write(mine / "experiment" / "slow.yaml", text)
    assert faults() == [
        (
            "mine/experiment/slow.yaml:5: cache.at, in experiment=slow: found transformed; expected a "
            "point before transform.random_flip, whose first result all later epochs would repeat\n"
            "    -> set cache.at=resize"
        )
    ]
