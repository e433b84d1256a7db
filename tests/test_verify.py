"""`etlrun verify`: what a short pass of both sides reads, beside what the comparison of their plans says."""

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmarks.random_configs import random_pairs
from etlrun.cli import reviews
from etlrun.cli.parsers import parsed
from etlrun.cli.reviews import with_facts
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.report.doc import Doc
from etlrun.report.render import text
from etlrun.review.difference import Comparison, compare
from etlrun.review.document import of_review
from etlrun.review.effects import ABSENT, ReadExamples, repeatable
from etlrun.review.review import Review, Reviewed, contradictions
from etlrun.review.sides import Side, Variant
from etlrun.stages import STAGES
from tests.commands import complaint
from tests.configs import composed, plan_of
from tests.golden import Case, Golden, Says, cases
from tests.pictures import damaged, truncate
from tests.present import present
from tests.pulls import told as answered
from tests.repository import Repository
from tests.runs import emulated
from tests.tables import words_of as table_words
from tests.tables import write_houses
from tests.test_installed import GREY, WORDS, installed, told

HERE = Side(word="", variants={})
ALL = ("load.drop_remainder=false", "load.batch_size=8")


def sides(tiny: Path, *overrides: str) -> list[str]:
    """The arguments for a run on the tiny dataset and the same with these overrides."""
    words = emulated(tiny, *ALL)
    return [" ".join(words), " ".join(emulated(tiny, *ALL, *overrides))]


_FACTS = ("  read", "  not read", "  nothing is confirmed", "  contradiction")


def facts(text: str) -> list[str]:
    """The facts among the printed lines; `plain` without their digests."""
    return [line.strip() for line in text.splitlines() if line.startswith(_FACTS)]


def plain(text: str) -> list[str]:
    return [re.sub(r" \(\d+:.*…\)", "", line) for line in facts(text)]


def test_examples_that_differ_are_counted_with_the_digests_of_both_sides(verified: Any, tiny: Path) -> None:
    words = (*sides(tiny, "transform.resize.method=area"), "--format", "json")
    found = json.loads(verified(*words))["experiments"][0]["facts"]
    old, new = found["digests"]["train"]
    short = [f"{digest[:19]}…" for digest in (old, new)]
    assert old != new
    assert found["lines"][0] == (
        f"read: 38 examples of train, all of which differ from transform.resize on ({short[0]} -> {short[1]})"
    )
    assert {key: found[key] for key in ("is_same", "is_ordered", "contradicts")} == {
        "is_same": False,
        "is_ordered": False,
        "contradicts": False,
    }


@pytest.mark.parametrize("case", cases("verified"))
def test_what_both_sides_have_read_is_told(
    case: Case, golden: Golden, verified: Any, tiny: Path, tmp_path: Path
) -> None:
    both = (*ALL, *case.get("both", ()))
    first = emulated(tiny, *both, *case.get("first", ()))
    other = emulated(tiny, *both, *(word.replace("DIR", str(tmp_path)) for word in case["other"]))
    text = verified(shlex.join(first), shlex.join(other), *case.get("options", ()))
    golden(case, "\n".join(plain(text)).replace(str(tmp_path), "DIR"))
    assert not (tmp_path / "none").exists()  # nothing is prepared


def test_other_rows_of_the_training_reach_the_validation_by_what_columns_have_learned(
    verified: Any, tmp_path: Path
) -> None:
    write_houses(tmp_path)
    words = table_words(tmp_path)
    both = [shlex.join([*words, f"dataset.split='train[{part}]'"]) for part in (":80%", ":60%")]
    assert plain(verified(*both, "--examples", "8"))[1] == (
        "read: 8 of 40 examples of validation, all of which differ from transform.columns on"
    )


@pytest.mark.smoke
def test_a_damaged_file_is_named(tiny: Path, tmp_path: Path) -> None:
    shard = damaged(tiny, tmp_path / "damaged", truncate)
    both = sides(tiny, f"dataset.data_dir={tmp_path / 'damaged'}")
    text, errors, status = answered("verify", *both)
    assert f"not read: train after the change, since {shard}, record " in text
    assert (status, f"verify: found data that can't be read: {shard}, record " in errors) == (1, True)
    assert answered("verify", *both, "--fail-on", "data")[2] == 4


def test_without_data_nothing_is_confirmed_which_fails_where_that_is_asked_for(tiny: Path, tmp_path: Path) -> None:
    both = [f"{side} dataset.data_dir={tmp_path}" for side in sides(tiny, "load.prefetch=1")]
    text, _, status = answered("verify", *both)
    assert (plain(text)[-1], status) == ("nothing is confirmed", 0)
    text, _, status = answered("verify", *both, "--fail-on", "data")
    assert ("perhaps a change of the data (nothing is confirmed)" in text, status) == (True, 4)


ONE, OTHER = ReadExamples(hashes=(b"1",)), ReadExamples(hashes=(b"2",))


def test_a_pipeline_that_one_side_lacks_needs_no_second_pass() -> None:
    alone = {"validation": (ONE, ABSENT)}
    assert repeatable(alone, {"validation": (OTHER, ABSENT)}) == alone


def test_only_sides_that_both_repeat_themselves_are_compared() -> None:
    """One alone may do so by chance, where a step is random."""
    for again in ((OTHER, OTHER), (OTHER, ONE), (ONE, OTHER)):
        assert all(of.reason for of in repeatable({"train": (ONE, ONE)}, {"train": again})["train"])
    read = {"train": (ONE, OTHER)}
    assert repeatable(read, read) == read


def plans(tiny: Path, *overrides: str) -> tuple[Plan, Plan]:
    return plan_of(*emulated(tiny, *ALL)), plan_of(*emulated(tiny, *ALL, *overrides))


def read(tiny: Path, said: Comparison, other: str) -> Review:
    """What a pass over both sides reads, beside what the comparison of other plans says."""
    old, new = plans(tiny, other)
    sides = Variant(config=None, plan=old), Variant(config=None, plan=new)
    reviewed = Reviewed(name="small", sides=sides, comparison=said)
    return with_facts(Review(old="one", new="other", experiments=(reviewed,), files=()), HERE, HERE, 2000)


@pytest.mark.parametrize("other", ["transform.resize.method=area", "extract=sequential"])
def test_a_fact_that_the_comparison_denies_ends_the_command(
    other: str, tiny: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """With the comparison of other plans, since no comparison is known to be wrong."""
    said = compare(*plans(tiny, "load.prefetch=1"))
    monkeypatch.setattr(reviews, "review", lambda *_: read(tiny, said, other))
    said_by, _, error = reviews.compare(parsed("diff", ["", "load.prefetch=1"]))
    assert isinstance(said_by, Doc)
    assert error is not None
    assert error.status == 1
    says(str(error))
    says(facts(text(said_by))[2:])


def test_a_contradiction_is_red_on_a_terminal(tiny: Path) -> None:
    found = read(tiny, compare(*plans(tiny, "load.prefetch=1")), "extract=sequential")
    line = "contradiction: the order of train differs, though the comparison says it does not"
    assert f"  \x1b[1;31m{line}\x1b[0m\n" in text(of_review(found), is_coloured=True)


def test_data_that_differ_in_the_other_pipeline_are_denied_too_and_doubts_are_no_denial(tiny: Path) -> None:
    said = compare(*plans(tiny, "dataset.split=train"))
    facts = present(read(tiny, said, "transform.resize.method=area").experiments[0].facts)
    assert facts.lines[2:] == [
        "contradiction: the examples of validation differ, though the comparison says they do not"
    ]
    unsure = dataclasses.replace(compare(*plans(tiny, "load.prefetch=1")), doubts=("It depends.",))
    facts = present(read(tiny, unsure, "transform.resize.method=area").experiments[0].facts)
    assert not facts.contradicts


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "²"])
def test_a_wrong_number_of_examples_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = f"  --examples: found {value}; expected a positive integer"
    told = complaint(capsys, "verify", "HEAD", f"--examples={value}", status=2)
    assert told.splitlines()[1:] == [message, "    -> see etlrun verify --help"]


@pytest.mark.slow
def test_images_are_shown_beside_the_facts(verified: Any, tiny: Path, tmp_path: Path) -> None:
    text = verified(*sides(tiny, "transform.resize.method=area"), "--show", str(tmp_path))
    assert text.splitlines()[-1] == (f"  images: 4 examples of train before and after, {tmp_path}/diff.html")
    assert len(facts(text)) == 2


EXPERIMENT = """\
# @package _global_
# {name}. Costs a second.
defaults:
  - override /dataset: tfds
  - override /model: emulated
dataset: {{name: tiny_pictures, data_dir: {tiny}, download: false}}
transform: {{resize: {{size: [{side}, {side}]}}}}
load: {{prefetch: {prefetch}}}
"""


@pytest.mark.slow
def test_each_experiment_that_changes_or_is_new_is_read(
    verified: Any, tiny: Path, repository: Repository, says: Says
) -> None:
    def write(name: str, side: int, prefetch: int) -> None:
        text = EXPERIMENT.format(name=name, tiny=tiny, side=side, prefetch=prefetch)
        repository.write(f"experiment/{name}.yaml", text)

    for name in ("first", "second", "same"):
        write(name, 24, 1)
    repository.write("experiment/gone.yaml", "# @package _global_\n# Gone.\nload: {prefetch: 1}\n")
    repository.commit("Four")
    for name in ("first", "second"):
        write(name, 24, 2)
    write("new", 16, 1)
    (repository.configs / "experiment" / "gone.yaml").unlink()
    repository.commit("Others")
    text = verified("HEAD~1", "HEAD", "--config-dir", "mine", "--format", "json")
    found = {of["name"]: of["facts"] and of["facts"]["digests"] for of in json.loads(text)["experiments"]}
    train, validation = (digests[0] for digests in found["first"].values())
    assert found["first"] == found["second"] == {"train": [train] * 2, "validation": [validation] * 2}
    assert [digests[0] for digests in found["new"].values()] == ["", ""]
    assert all(found[name] is None for name in ("same", "gone", "small", "other"))
    printed = verified("HEAD~1", "HEAD", "--config-dir", "mine")
    assert "first, second: changes only the speed\n" in printed
    says(plain(printed))


def test_data_that_a_run_is_given_are_not_looked_for(verified: Any, repository: Repository, says: Says) -> None:
    pets = "# @package _global_\n# Pets.\ndefaults: [override /dataset: folder, _self_]\nload: {prefetch: 1}\n"
    repository.write("experiment/pets.yaml", pets)
    repository.commit("Pets")
    repository.replace("experiment/pets.yaml", "prefetch: 1", "prefetch: 2")
    says(verified("HEAD", "--config-dir", "mine").splitlines()[:3])


def test_a_side_that_cannot_be_composed_is_not_read_and_the_others_are(
    verified: Any, tiny: Path, repository: Repository, says: Says
) -> None:
    repository.write("experiment/first.yaml", EXPERIMENT.format(name="first", tiny=tiny, side=16, prefetch=1))
    repository.commit("First")
    repository.replace("experiment/first.yaml", "prefetch: 1", "prefetch: 2")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 0")
    text = verified("HEAD", "--config-dir", "mine", status=2)
    assert "mine/experiment/small.yaml:8: trainer.epochs: found 0; expected a positive integer" in text
    says(plain(text))


RANDOM = GREY.replace("strength * (", "tf.random.uniform(()) * strength * (")
BROKEN = GREY.replace("return image + ", "raise KeyError('no such thing')\n        return image + ")
OTHERS = "a second pass over the same config has read others: a step is random beyond its seed"


@pytest.mark.slow
def test_a_step_that_no_pass_can_be_compared_of_is_no_contradiction(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *WORDS, "load.drop_remainder=false")
    sides = [" ".join(f"'{word}'" for word in [*words, f"load.prefetch={count}"]) for count in (1, 2)]
    found = told(installed(tmp_path / "random", RANDOM), "verify", *sides).splitlines()[2:]
    assert found == [f"  not compared: train and validation, since {OTHERS}", "  nothing is confirmed"]
    found = told(installed(tmp_path / "broken", BROKEN), "verify", *sides, status=1).splitlines()[2:]
    assert found == ["  not read: train and validation, since KeyError: 'no such thing'", "  nothing is confirmed"]


@pytest.mark.slow
def test_no_comparison_of_random_configs_is_contradicted(tiny: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    base = composed(*words, "transform.resize.size=[32,32]", "trainer=drain")
    experiments = []
    for number, configs in enumerate(random_pairs(base, 5, 40)):
        old, new = (plan(parse(config, STAGES)) for config in configs)
        said = compare(old, new, configs)
        sides = Variant(config=None, plan=old), Variant(config=None, plan=new)
        experiments.append(Reviewed(name=str(number), sides=sides, comparison=said))
    review = with_facts(Review(old="one", new="other", experiments=tuple(experiments), files=()), HERE, HERE, 24)
    found = [reviewed.facts for reviewed in review.experiments if reviewed.facts is not None]
    assert contradictions(review) == []
    assert [line for of in found for line in of.lines if line.startswith("not compared")] == []
    assert sum(of.is_same is True for of in found) > 8
    assert sum(of.is_same is False for of in found) > 8
