"""Rules of a policy's file: how they are read."""

from dataclasses import replace
from pathlib import Path

import pytest

from etlrun.cli.parsers import call
from etlrun.config.request import Request, files_digest
from etlrun.review.facts import Facts
from etlrun.review.folders import working_tree
from etlrun.review.policy import Policy, Rule, policy_of
from etlrun.review.review import judged, review
from etlrun.review.sides import resolve
from etlrun.stages.base import DATA
from tests.own_configs import faults, write

KNOWN = "expected one of the rules data, training, order, new, removed"
LABEL = "expected the name of a label, without commas"
EVERYWHERE = "expected a value that is the same on every machine\n    -> write the value"


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data: {x: y}\n", ["1: data.x: found an unknown key; expected the key label"]),
        ("data:\n", ["1: data: found null; expected {label: NAME}, or {} if no label waives it"]),
        ("order: ok\n", ["1: order: found 'ok'; expected {label: NAME}, or {} if no label waives it"]),
        ("data:\n  label: a,b\n", [f"2: data.label: found 'a,b'; {LABEL}"]),
        (
            "data: {label: 3}\norder: {label: ' '}\n",
            [f"1: data.label: found 3; {LABEL}", f"2: order.label: found ' '; {LABEL}"],
        ),
        (
            "order: ${oc.env:HOME}\n",
            [f"1: order: found the resolver oc.env; {EVERYWHERE}"],
        ),
        (
            "cost: {refill_gb: 100, minutes: 30, label: big}\nau_min: 0.8\n",
            [
                (f"1: cost: found an unknown rule; {KNOWN}\n"
                "    -> leave it out: reviews say what is filled again, and hold it against no limit"),
                (f"2: au_min: found an unknown rule; {KNOWN}\n"
                "    -> leave it out: measure.au_min=0.8 holds a run against it"),
            ],
        ),
        (
            "speed: {}\nhydra: []\n",
            [
                f"1: speed: found an unknown rule; {KNOWN}\n    -> leave it out: nothing is needed for another speed",
                f"1: hydra: found an unknown rule; {KNOWN}",
            ],
        ),
    ],
)  # fmt: skip
def test_all_faults_of_a_policy_are_told_with_their_lines(text: str, told: list[str], mine: Path) -> None:
    expected = [f"mine/etlrun-policy.yaml:{fault}" for fault in told]
    assert [str(fault) for fault in policy(mine, text).faults] == expected
    assert faults() == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- data\n", ":1: found a list; expected a mapping of keys to values"),
        ("data: {}\ndata: {}\n", ":2: found duplicate key data; expected YAML"),
        ("data: {label: x\n", ":1: found no ',' or '}' while parsing a flow mapping; expected YAML"),
    ],
)
def test_a_file_that_is_no_policy_is_told_with_its_line(text: str, told: str, mine: Path) -> None:
    assert [str(fault) for fault in policy(mine, text).faults] == [f"mine/etlrun-policy.yaml{told}"] == faults()


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
