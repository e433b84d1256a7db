"""Rules of a policy's file: how they are read, and how costs and rates are held against them."""

from dataclasses import replace
from pathlib import Path

import pytest

from etlrun.cli import check
from etlrun.config.request import Request, files_digest
from etlrun.review.cost import Cost, Estimate, Refill
from etlrun.review.facts import Facts
from etlrun.review.folders import working_tree
from etlrun.review.judge import judged
from etlrun.review.policy import Judgement, Policy, Rule, policy_of
from etlrun.review.review import review
from etlrun.review.sides import resolve
from etlrun.stages.base import DATA
from tests.own_configs import faults, write

KNOWN = "expected one of the rules data, training, order, new, removed, cost, au_min"
LABEL = "expected the name of a label, without commas"
EVERYWHERE = "expected a value that is the same on every machine\n    -> write the value"
NUMBER = "expected a number from 0 on"
SHARE = "expected a number above 0, and at most 1"
LIMITS = "expected limits such as {refill_gb: 100, minutes: 30}, with or without a label"


def policy(folder: Path, text: str) -> Policy:
    write(folder / "etlrun-policy.yaml", text)
    found = policy_of(working_tree("mine"))
    assert found is not None
    return found


def test_rules_have_their_place_limit_and_label(mine: Path) -> None:
    text = "#\ndata: {label: ' a '}\norder: {}\ncost:\n  refill_gb: 100\n  minutes: 0\n  label: Größe (ok)\nau_min: 1\n"
    file = "mine/etlrun-policy.yaml"
    assert policy(mine, text).rules == (
        Rule(name="data", where="data", file=file, line=2, label="a"),
        Rule(name="order", where="order", file=file, line=3),
        Rule(name="cost.refill_gb", where="cost.refill_gb", file=file, line=5, limit=100, label="Größe (ok)"),
        Rule(name="cost.minutes", where="cost.minutes", file=file, line=6, limit=0, label="Größe (ok)"),
        Rule(name="au_min", where="au_min", file=file, line=8, limit=1),
    )
    found = policy(mine, "au_min:\n  at_least: 0.8\n  label: slow\n").rules
    assert found == (Rule(name="au_min", where="au_min", file=file, line=1, limit=0.8, label="slow"),)


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
            "au_min: ${oc.env:HOME}\n",
            [f"1: au_min: found the resolver oc.env; {EVERYWHERE}"],
        ),
        ("cost: {label: x}\n", [f"1: cost: found no limit; {LIMITS}"]),
        ("cost: 100\n", [f"1: cost: found 100; {LIMITS}"]),
        (
            "cost:\n  refill_gb: -1\n  minutes: '30'\n  hours: 1\n",
            [
                "4: cost.hours: found an unknown key; expected one of the keys refill_gb, minutes, label",
                f"2: cost.refill_gb: found -1; {NUMBER}",
                f"3: cost.minutes: found '30'; {NUMBER}",
            ],
        ),
        ("cost: {minutes: .nan}\n", [f"1: cost.minutes: found nan; {NUMBER}"]),
        ("cost: {refill_gb: .inf}\n", [f"1: cost.refill_gb: found inf; {NUMBER}"]),
        ("au_min: 80\n", [f"1: au_min: found 80; {SHARE}"]),
        ("au_min: 0\n", [f"1: au_min: found 0; {SHARE}"]),
        ("au_min: true\n", [f"1: au_min: found true; {SHARE}"]),
        ("au_min: {label: slow}\n", [f"1: au_min: found no limit; {SHARE}"]),
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
    check.main(["--config-dir", "mine"])
    assert capsys.readouterr().out.endswith(" s: no fault\n")
    assert files_digest(Request(overrides=[], config_dir="mine")) == before
    assert "mine/etlrun-policy.yaml" not in working_tree("mine").files


def estimate(value: float) -> Estimate:
    return Estimate(value=value, low=value / 2, high=value * 2, runs=3)


def cost(*refills: tuple[str, int | None, float | None]) -> Cost:
    """That of an experiment which fills caches: each with its key, size and seconds."""
    made = [
        Refill(key=key, pipeline="train", size_bytes=size, duration_s=None if seconds is None else estimate(seconds))
        for key, size, seconds in refills
    ]
    return Cost(refills=tuple(made))


def judgement(rules: str, *costs: Cost | None, folder: Path) -> Judgement:
    """What a policy says of experiments a, b, … that cost so much."""
    now = working_tree("mine")
    sides = [replace(resolve(word, now, None), policy=policy(folder, rules)) for word in ("", "load.prefetch=1")]
    found = review(sides[0], sides[1], None, None)
    named = [replace(found.experiments[0], name=name, cost=cost) for name, cost in zip("abc", costs, strict=False)]
    answer = judged(replace(found, experiments=tuple(named)), (sides[0], sides[1]), [], {"ok"}).policy
    assert answer is not None
    return answer


def test_examples_that_were_read_differently_are_other_data() -> None:
    read = Facts(lines=[], is_same=False, is_ordered=False, digests={})
    now = working_tree(None)
    sides = resolve("", now, None), resolve("load.prefetch=1", now, None)
    found = review(*sides, None, None)
    found = replace(found, experiments=(replace(found.experiments[0], facts=read),))
    answer = judged(found, sides, [DATA], []).policy
    assert answer is not None
    told = "--fail-on: found perhaps a change of the data (examples that were read differ); expected none"
    assert [str(fault) for fault in answer.broken] == [told]


WHERE = "mine/etlrun-policy.yaml:1"
SIZE, TIME = "size of caches to refill", "time of refilling caches"
MEASURE = "    -> run it, and commit the file that etlrun costs --write writes"


@pytest.mark.parametrize(
    ("rules", "costs", "told"),
    [
        ("cost: {refill_gb: 2}\n", [cost(("a", 10**9, None)), cost(("b", 10**9, None)), Cost()], []),
        ("cost: {refill_gb: 2}\n", [cost(("a", 2 * 10**9, None)), cost(("a", 2 * 10**9, None))], []),
        (
            "cost: {refill_gb: 2}\n",
            [cost(("a", 10**9, None), ("b", 10**9, None)), cost(("c", 500_000_000, None))],
            [f"{WHERE}: cost.refill_gb: found 2.5 GB of caches to refill in a, b; expected at most 2 GB"],
        ),
        (
            "cost: {refill_gb: 2}\n",
            [cost(("a", 10**9, None)), cost(("b", None, None)), None],
            [f"{WHERE}: cost.refill_gb: found an unknown {SIZE} in b, c; expected at most 2 GB\n{MEASURE}"],
        ),
        (
            "cost: {refill_gb: 2, label: big}\n",
            [cost(("a", 3 * 10**9, None)), cost(("b", None, None))],
            [
                (
                    f"{WHERE}: cost.refill_gb: found 3 GB of caches to refill in a, b and an unknown {SIZE} in b; "
                    f"expected at most 2 GB without the label big\n{MEASURE}, or give it the label big"
                ),
            ],
        ),
        ("cost: {minutes: 1}\n", [Cost(), cost(("a", None, 60))], []),
        ("cost: {minutes: 1}\n", [cost(("a", 5, 40)), cost(("a", 5, None))], []),
        (
            "cost: {minutes: 1}\n",
            [cost(("a", 5, 60)), cost(("b", 5, 1.5))],
            [f"{WHERE}: cost.minutes: found 1.025 min of refilling caches in a, b; expected at most 1 min"],
        ),
        (
            "cost: {minutes: 1}\n",
            [cost(("a", 5, None)), cost(("b", None, 6))],
            [f"{WHERE}: cost.minutes: found an unknown {TIME} in a; expected at most 1 min\n{MEASURE}"],
        ),
        ("au_min: 0.8\n", [Cost(au=(None, estimate(0.8)))], []),
        (
            "au_min: 0.8\n",
            [Cost(au=(estimate(0.9), estimate(0.62))), Cost(au=(estimate(0.9), None)), None],
            [f"{WHERE}: au_min: found an AU of 0.62 in a and an unknown AU in b, c; expected at least 0.8\n{MEASURE}"],
        ),
        ("cost: {refill_gb: 0, label: ok}\nau_min: {at_least: 1, label: ok}\n", [None], []),
    ],
)  # fmt: skip
def test_what_is_above_a_limit_or_unknown_breaks_it(
    rules: str, costs: list[Cost | None], told: list[str], mine: Path
) -> None:
    assert [str(fault) for fault in judgement(rules, *costs, folder=mine).broken] == told
