"""`etlrun verify` of revisions: which experiments are read, and of which none of the data is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.random_configs import random_pairs
from etlrun.cli.reviews import with_facts
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.review.difference import compare
from etlrun.review.review import Review, Reviewed, contradictions
from etlrun.stages import STAGES
from tests.configs import composed
from tests.repository import Repository
from tests.runs import emulated
from tests.test_installed import GREY, WORDS, installed, told
from tests.test_verify import HERE, facts, plain


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


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
def test_each_experiment_that_changes_or_is_new_is_read(verified: Any, tiny: Path, repository: Repository) -> None:
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
    assert plain(printed) == [
        "read: 38 examples of train, the same in the same order",
        "read: 10 examples of validation, the same in the same order",
        "read: 38 examples of train",
        "read: 10 examples of validation",
    ]


def test_data_that_a_run_is_given_are_not_looked_for(verified: Any, repository: Repository) -> None:
    pets = "# @package _global_\n# Pets.\ndefaults: [override /dataset: folder, _self_]\nload: {prefetch: 1}\n"
    repository.write("experiment/pets.yaml", pets)
    repository.commit("Pets")
    repository.replace("experiment/pets.yaml", "prefetch: 1", "prefetch: 2")
    assert verified("HEAD", "--config-dir", "mine").splitlines()[:3] == [
        "pets: changes only the speed",
        "  load.prefetch  1 -> 2  speed",
        "  not read: train and validation, since dataset.dir: found ???, which a run is given",
    ]


def test_a_side_that_cannot_be_composed_is_not_read_and_the_others_are(
    verified: Any, tiny: Path, repository: Repository
) -> None:
    repository.write("experiment/first.yaml", EXPERIMENT.format(name="first", tiny=tiny, side=16, prefetch=1))
    repository.commit("First")
    repository.replace("experiment/first.yaml", "prefetch: 1", "prefetch: 2")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 0")
    text = verified("HEAD", "--config-dir", "mine", status=2)
    assert "mine/experiment/small.yaml:8: trainer.epochs: found 0; expected a positive integer" in text
    assert plain(text) == [
        "read: 38 examples of train, the same in the same order",
        "read: 10 examples of validation, the same in the same order",
    ]
    assert len(facts(text)) == 2


RANDOM = GREY.replace("strength * (", "tf.random.uniform(()) * strength * (")
BROKEN = GREY.replace("return image + ", "raise KeyError('no such thing')\n        return image + ")


@pytest.mark.slow
def test_a_step_that_is_random_beyond_its_seed_is_no_contradiction(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *WORDS, "load.drop_remainder=false")
    sides = [" ".join(f"'{word}'" for word in [*words, f"load.prefetch={count}"]) for count in (1, 2)]
    lines = told(installed(tmp_path, RANDOM), "verify", *sides).splitlines()
    why = "a second pass over the same config has read others: a step is random beyond its seed"
    assert lines[2:] == [f"  not compared: train and validation, since {why}", ""]


@pytest.mark.slow
def test_a_step_that_raises_is_named_and_ends_nothing(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, *WORDS, "load.drop_remainder=false")
    sides = [" ".join(f"'{word}'" for word in [*words, f"load.prefetch={count}"]) for count in (1, 2)]
    lines = told(installed(tmp_path, BROKEN), "verify", *sides).splitlines()
    assert lines[2:] == ["  not read: train and validation, since KeyError: 'no such thing'", ""]


@pytest.mark.slow
def test_no_comparison_of_random_configs_is_contradicted(tiny: Path) -> None:
    words = ("dataset=tfds", "dataset.name=tiny_pictures", f"dataset.data_dir={tiny}", "dataset.download=false")
    base = composed(*words, "transform.resize.size=[32,32]", "trainer=drain")
    experiments = []
    for number, configs in enumerate(random_pairs(base, 5, 40)):
        old, new = (plan(parse(config, STAGES)) for config in configs)
        said = compare(old, new, configs)
        experiments.append(Reviewed(name=str(number), old=old, new=new, state="compared", comparison=said))
    review = with_facts(Review(old="one", new="other", experiments=tuple(experiments), files=()), HERE, HERE, 24)
    found = [reviewed.facts for reviewed in review.experiments if reviewed.facts is not None]
    assert contradictions(review) == []
    assert [line for of in found for line in of.lines if line.startswith("not compared")] == []
    assert sum(of.is_same is True for of in found) > 8
    assert sum(of.is_same is False for of in found) > 8
