"""SARIF, JUnit and JSON by `check`, as their readers expect them."""

import json
from pathlib import Path

import pytest

from etlrun import __version__
from tests.annotations import NO_PREFETCH, SLOW, UNREAD, cases, commands, sarif, told
from tests.own_configs import write
from tests.repository import OTHER


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
