"""Policies of a repository, which judge its changes: what breaks them, what waives them, and which one judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etlrun.cli import main as cli
from etlrun.cli.parsers import call
from etlrun.config.request import Request, files_digest
from etlrun.review.facts import Facts
from etlrun.review.folders import working_tree
from etlrun.review.policy import Policy, Rule, policy_of
from etlrun.review.review import judged, review
from etlrun.review.sides import resolve
from etlrun.stages.base import DATA
from tests.own_configs import faults, write
from tests.repository import SMALL, Repository


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


Told = tuple[int, list[str], str]
Diff = Callable[..., Told]
BASE = "HEAD~1:mine/etlrun-policy.yaml"
NEW = "HEAD:mine/etlrun-policy.yaml"
OF_DATA = "a change of the data in small by transform.resize.size"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


@pytest.fixture
def diff(capsys: pytest.CaptureFixture[str]) -> Diff:
    """`etlrun diff`: its exit status, what it says of policies, and its errors."""

    def told(*words: str) -> Told:
        status = 0
        try:
            cli.main(["diff", *(words or ("HEAD~1", "HEAD")), "--config-dir", "mine"])
        except SystemExit as end:
            status = int(end.code or 0)
        output, errors = capsys.readouterr()
        start = output.find("policy: ")
        return status, output[start:].splitlines() if start >= 0 else [], errors

    return told


def smaller(repository: Repository, policy: str = "data: {label: approved}\n") -> None:
    """Another size of images, below a policy."""
    repository.write("etlrun-policy.yaml", policy)
    repository.commit("Policy")
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    repository.commit("Smaller")


def test_a_broken_rule_ends_with_its_status_and_says_once_what_breaks_and_what_waives_it(
    repository: Repository, diff: Diff
) -> None:
    smaller(repository)
    rule = f"{BASE}:1: data: found {OF_DATA}; expected none without the label approved"
    assert diff() == (
        4,
        [f"policy: 1 rule broken ({BASE})", f"  {rule}", "    -> give it the label approved"],
        "",
    )


@pytest.mark.parametrize("words", [("--label", "other, approved"), ("--label", "a", "--label", "approved")])
def test_a_label_waives_its_rule(words: tuple[str, ...], repository: Repository, diff: Diff) -> None:
    smaller(repository)
    waived = f"  {BASE}:1: data: found {OF_DATA}, which the label approved waives"
    assert diff("HEAD~1", "HEAD", *words) == (0, [f"policy: passed ({BASE})", waived], "")


def test_no_label_waives_a_rule_without_one_or_what_fail_on_names(repository: Repository, diff: Diff) -> None:
    smaller(repository, "data: {}\n")
    assert diff("HEAD~1", "HEAD", "--label", "data", "--label", "")[0] == 4
    repository.write("etlrun-policy.yaml", "data: {label: approved}\n")
    status, lines, _ = diff("HEAD~2", "--label", "approved", "--fail-on", "data", "--fail-on", "order")
    assert (status, lines[1]) == (4, f"  --fail-on: found {OF_DATA}; expected none")


def test_speed_alone_passes_every_rule_of_kinds(repository: Repository, diff: Diff) -> None:
    repository.write("etlrun-policy.yaml", "data: {}\norder: {}\ntraining: {}\n")
    repository.commit("Policy")
    repository.write("experiment/small.yaml", f"{SMALL}load: {{prefetch: 1}}\n")
    repository.commit("Faster")
    assert diff("HEAD~1", "HEAD", "--exit-code") == (1, [f"policy: passed ({BASE})"], "")


def test_speed_alone_passes_where_it_decides_how_many_examples_are_read(repository: Repository, diff: Diff) -> None:
    timed = SMALL.replace("trainer: {epochs: 2}", "trainer: {seconds: 60}").replace(
        "  - _self_", "  - override /trainer: drain\n  - _self_"
    )
    repository.write("experiment/small.yaml", timed)
    smaller(repository)
    repository.write("experiment/small.yaml", f"{timed}load: {{prefetch: 1}}\n")
    assert diff("HEAD") == (0, [f"policy: passed ({NEW})"], "")
    repository.write("experiment/small.yaml", f"{timed}load: {{batch_size: 8}}\n")
    status, lines, _ = diff("HEAD")
    assert (status, "found perhaps a change of the data in small (trainer.seconds=60" in lines[1]) == (4, True)


def test_weaker_kinds_of_a_change_count(repository: Repository, diff: Diff) -> None:
    repository.write("etlrun-policy.yaml", "order: {}\n")
    repository.commit("Policy")
    repository.write("experiment/small.yaml", f"{SMALL}load: {{batch_size: 8}}\n")
    repository.commit("Smaller batches")
    assert diff()[1][1] == f"  {BASE}:1: order: found a change of the order in small by load.batch_size; expected none"


def test_what_perhaps_changes_the_data_breaks_the_rule_as_what_does(repository: Repository, diff: Diff) -> None:
    flips = "transform: {steps: [decode, resize, random_flip, scale_minus_one_one]}\n"
    repository.write("experiment/small.yaml", SMALL + flips)
    repository.write("etlrun-policy.yaml", "data: {label: approved}\n")
    repository.commit("Policy")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 2, seed: 1")
    repository.commit("Another seed")
    assert diff()[1][1] == (
        f"  {BASE}:1: data: found a change of the data in small by trainer.seed; expected none without the label "
        "approved"
    )
    repository.replace("experiment/small.yaml", "epochs: 2, seed: 1", "epochs: 2, seed: 1, steps_per_epoch: 2")
    repository.commit("A part of the data")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 3")
    repository.commit("Longer")
    doubt = "trainer.steps_per_epoch=2: if training ends after a different step, it drops different examples"
    assert diff()[1][1] == (
        f"  {BASE}:1: data: found perhaps a change of the data in small ({doubt}); expected none without the label "
        "approved"
    )


def test_no_change_loosens_the_rules_that_judge_it(repository: Repository, diff: Diff) -> None:
    smaller(repository)
    repository.write("etlrun-policy.yaml", "data: {label: other}\n")
    repository.commit("Looser")
    status, lines, _ = diff("HEAD~2", "HEAD", "--label", "other")
    assert (status, lines[-1]) == (4, f"  {NEW}: changed; this change is judged by the one of HEAD~2")
    (repository.configs / "etlrun-policy.yaml").unlink()
    status, lines, _ = diff("HEAD~2")
    assert (status, lines[-1]) == (
        4,
        "  HEAD~2:mine/etlrun-policy.yaml: removed; this change is judged by the one of HEAD~2",
    )


@pytest.mark.parametrize("is_link_before", [False, True])
def test_a_folder_that_becomes_a_link_or_was_one_has_the_policy_that_it_had(
    repository: Repository, diff: Diff, *, is_link_before: bool
) -> None:
    smaller(repository)
    (repository.folder / "deep").mkdir()
    repository.git("mv", "mine", "deep/theirs")
    repository.configs.symlink_to("deep/../deep/theirs")
    if is_link_before:
        repository.commit("Linked")
        repository.configs.unlink()
        repository.git("mv", "deep/theirs", "mine")
    repository.write("etlrun-policy.yaml", "order: {}\n")
    repository.replace("transform/small_48.yaml", "[32, 32]", "[64, 64]")
    repository.commit("Another place")
    status, lines, _ = diff()
    name = "mine" if is_link_before else "deep/theirs"
    assert (status, lines[0]) == (4, f"policy: 1 rule broken (HEAD~1:{name}/etlrun-policy.yaml)")


def test_the_first_policy_judges_the_change_that_adds_it(repository: Repository, diff: Diff) -> None:
    smaller(repository)
    status, lines, _ = diff("HEAD~2", "HEAD")
    assert (status, lines[0], lines[-1]) == (
        4,
        f"policy: 1 rule broken ({NEW})",
        f"  {NEW}: added; this change is judged by the one of HEAD",
    )
    assert diff("HEAD~2", "HEAD~2") == (0, [], "")


def test_a_policy_with_faults_judges_nothing_and_its_mending_passes(
    repository: Repository, diff: Diff, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller(repository, "dat: {}\n")
    fault = f"{NEW}:1: dat: found an unknown rule; expected one of the rules data, training, order, new, removed"
    lines = ["policy: cannot be applied", f"  {fault}", "    -> did you mean `data`?"]
    assert diff() == (2, lines, "")
    with pytest.raises(SystemExit):
        cli.main(["diff", "HEAD~1", "HEAD", "--config-dir", "mine", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["failed"] is True
    repository.write("etlrun-policy.yaml", "order: {}\n")
    repository.commit("Mended")
    note = f"  {NEW}: changed; HEAD~1 has one with faults; this change is judged by the one of HEAD"
    assert diff() == (0, [f"policy: passed ({NEW})", note], "")
    repository.write("etlrun-policy.yaml", "orders: {}\n")
    note = "  mine/etlrun-policy.yaml: changed, and has faults; this change is judged by the one of HEAD"
    assert diff("HEAD") == (0, [f"policy: passed ({NEW})", note], "")


def test_a_side_that_cannot_be_composed_has_its_own_status(repository: Repository, diff: Diff) -> None:
    smaller(repository)
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0")
    status, lines, _ = diff("HEAD~1")
    assert (status, lines[0]) == (2, f"policy: 1 rule broken ({BASE})")


@pytest.mark.parametrize("name", ["other", "another"])
def test_what_cannot_be_compared_with_its_old_config_breaks_rules_unless_labels_waive_them(
    name: str, repository: Repository, diff: Diff
) -> None:
    repository.write("etlrun-policy.yaml", "data: {label: approved}\ntraining: {}\n")
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 3\n  gone_since: 1")
    repository.commit("A key that the code does not have any more")
    repository.replace("experiment/other.yaml", "  gone_since: 1\n", "")
    (repository.configs / "experiment/other.yaml").rename(repository.configs / f"experiment/{name}.yaml")
    repository.commit("Mended")
    perhaps = f"in {name} (its old config cannot be composed with the code that is installed here)"
    keep = "keep what the old configs need beside what the new ones need, or remove them in a change of its own"
    assert diff("HEAD~1", "HEAD", "--label", "approved")[:2] == (
        2,
        [
            f"policy: 1 rule broken ({BASE})",
            f"  {BASE}:2: training: found perhaps a change of the training {perhaps}; expected none",
            f"    -> {keep}",
            f"  {BASE}:1: data: found perhaps a change of the data {perhaps}, which the label approved waives",
            f"  cannot judge {name}",
        ],
    )
    assert diff()[1][2] == f"    -> {keep}, or give it the label approved"
    repository.git("checkout", "--quiet", "HEAD~1")
    (repository.configs / "experiment/other.yaml").unlink()
    assert diff("HEAD")[1] == [f"policy: cannot judge other ({NEW})"]


def test_new_and_removed_experiments_change_no_data(repository: Repository, diff: Diff) -> None:
    repository.write("etlrun-policy.yaml", "data: {}\ntraining: {}\n")
    repository.commit("Policy")
    repository.write("experiment/new.yaml", SMALL)
    (repository.configs / "experiment" / "other.yaml").unlink()
    repository.commit("New")
    assert diff() == (0, [f"policy: passed ({BASE})"], "")


def test_an_option_that_no_experiment_uses_changes_the_data(repository: Repository, diff: Diff) -> None:
    repository.write("etlrun-policy.yaml", "data: {}\n")
    repository.write("dataset/pets.yaml", "defaults: [folder, _self_]\ndir: photos\n")
    repository.commit("Pets")
    repository.replace("dataset/pets.yaml", "photos", "pictures")
    found = "a change of the data in dataset=pets by dataset.dir"
    status, lines, _ = diff("HEAD")
    assert (status, lines[1:]) == (4, [f"  {NEW}:1: data: found {found}; expected none"])


def test_experiments_that_are_new_or_removed_have_rules_of_their_own(repository: Repository, diff: Diff) -> None:
    repository.write("etlrun-policy.yaml", "data: {}\nnew: {label: approved}\n")
    repository.commit("Policy")
    (repository.configs / "experiment" / "other.yaml").unlink()
    steep = "# @package _global_\n# Steep.\ndefaults: [override /dataset: sample, _self_]\nload: {batch_size: 2}\n"
    for name in ("steep", "twin"):
        repository.write(f"experiment/{name}.yaml", steep)
    repository.write("load/lone.yaml", "defaults: [shuffled, _self_]\n")  # an option is no experiment
    repository.commit("Steep")
    new = "found 2 new experiments: steep, twin"
    status, lines, _ = diff("HEAD~1", "HEAD", "--fail-on", "removed,data")
    assert (status, lines) == (
        4,
        [
            f"policy: 2 rules broken ({BASE})",
            "  --fail-on: found 1 removed experiment: other; expected none",
            f"  {BASE}:2: new: {new}; expected none without the label approved",
            "    -> give it the label approved",
        ],
    )
    waived = f"  {BASE}:2: new: {new}, which the label approved waives"
    assert diff("HEAD~1", "HEAD", "--label", "approved") == (0, [f"policy: passed ({BASE})", waived], "")


def test_overrides_are_judged_by_fail_on_and_beside_a_revision_by_its_policy(
    repository: Repository, diff: Diff
) -> None:
    smaller(repository)
    assert diff("", "trainer.epochs=9") == (0, [], "")
    status, lines, _ = diff("", "trainer.epochs=9", "--fail-on", "training")
    assert (status, lines) == (
        4,
        ["policy: 1 rule broken", "  --fail-on: found a change of the training by trainer.epochs; expected none"],
    )
    assert diff("experiment=other", "HEAD", "--experiment", "other") == (0, [f"policy: passed ({NEW})"], "")
    status, lines, _ = diff("HEAD", "experiment=small transform.resize.antialias=true", "--experiment", "small")
    assert (status, lines[0]) == (4, f"policy: 1 rule broken ({NEW})")


def test_a_kind_that_never_fails_is_refused(diff: Diff) -> None:
    status, _, errors = diff("", "", "--fail-on", "data,speed")
    assert (status, errors.splitlines()[-1]) == (
        2,
        "  --fail-on: found 'speed'; expected some of data, training, order, new, removed",
    )


def test_comments_and_documents_have_the_policy(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    smaller(repository)
    words = ["diff", "HEAD~1", "HEAD", "--config-dir", "mine", "--format"]
    with pytest.raises(SystemExit):
        cli.main([*words, "markdown"])
    base = BASE.replace("~", "&#126;")
    assert capsys.readouterr().out.startswith(
        f"### etlrun: HEAD&#126;1 → HEAD\n\n**1 of 2 change: 1 the data**\n\n#### policy: 1 rule broken ({base})\n\n"
        f"- {base}:1: data: found {OF_DATA}; expected none without the label approved -> give it "
        "the label approved\n\n#### small: changes the data"
    )
    cli.main([*words, "json", "--label", "approved"])
    assert json.loads(capsys.readouterr().out)["policy"] == {
        "broken": [],
        "waived": [f"{BASE}:1: data: found {OF_DATA}, which the label approved waives"],
        "file": BASE,
        "note": "",
        "faults": [],
        "unjudged": "",
    }
