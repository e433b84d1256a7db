"""`etlrun diff --stat`: a line for each experiment that changes, and their sums."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from etlrun.cli.parsers import call
from etlrun.report.render import RENDER
from etlrun.review.caches import FIRST, REBUILT, VALID, Kept
from etlrun.review.document import of_review
from etlrun.review.folders import working_tree
from etlrun.review.review import review
from etlrun.review.sides import of_folders, resolve
from tests.repository import Repository
from tests.test_compared_runs import swept

NEW = "# @package _global_\ntrainer: {epochs: 1}\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository in which experiments have changed since its commit, one of them its name alone."""
    monkeypatch.chdir(tmp_path)
    repository = Repository.small(tmp_path)
    for name in ("gone", "same"):
        repository.write(f"experiment/{name}.yaml", NEW)
    repository.write("experiment/before.yaml", NEW.replace("1", "7"))
    repository.commit("More")
    (repository.configs / "experiment/before.yaml").rename(repository.configs / "experiment/after.yaml")
    repository.replace("transform/small_48.yaml", "[48, 48]", "[40, 40]")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 3")
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 3\nload: {prefetch: 1}")
    repository.write("experiment/more.yaml", "# @package _global_\n# More.\ntrainer: {epochs: 4}\n")
    (repository.configs / "experiment/gone.yaml").unlink()
    return repository


SUMS = "4 of 6 change: 1 the data, 1 the training, 1 the speed, 1 removed, 1 new"


def test_each_experiment_that_changes_has_a_line(mine: Repository, told: Any) -> None:
    del mine
    assert told("HEAD", "--config-dir", "mine", "--stat") == (
        "other  speed           1 difference\n"
        "small  data, training  2 differences\n"
        "gone   is removed\n"
        "after  is before under another name\n"
        "more   is new\n"
        f"{SUMS}\n"
    )
    assert told("HEAD", "HEAD", "--config-dir", "mine", "--stat") == "nothing changes\n"


def kept(state: str, size_bytes: int | None) -> Kept:
    return Kept(pipeline="train", target="cache.disk at transformed", state=state, size_bytes=size_bytes)


def test_what_is_filled_stands_beside_it(mine: Repository) -> None:
    del mine
    now = working_tree("mine")
    found = review(resolve("HEAD", now, None), of_folders("now", now, None), None)
    caches = {
        "small": (kept(REBUILT, 2_000_000), kept(FIRST, 3_000_000)),
        "other": (kept(REBUILT, 9), kept(FIRST, None)),
        "more": (kept(VALID, 7_000_000),),
    }
    experiments = tuple(dataclasses.replace(of, caches=caches.get(of.name, ())) for of in found.experiments)
    doc = of_review(dataclasses.replace(found, experiments=experiments), is_short=True)
    assert RENDER["text"](doc).splitlines()[:2] == [
        "other  speed           1 difference   fills caches of unknown size",
        "small  data, training  2 differences  fills 5 MB",
    ]


def test_faults_and_a_broken_policy_are_told_too(mine: Repository, told: Any) -> None:
    mine.replace("experiment/small.yaml", "epochs: 3", "epochs: many")
    assert told("HEAD", "--config-dir", "mine", "--stat", "--fail-on", "order", status=2) == (
        "other  speed  1 difference\n"
        "gone   is removed\n"
        "small  cannot be compared\n"
        "after  is before under another name\n"
        "more   is new\n"
        "  mine/experiment/small.yaml:8: trainer.epochs: found 'many'; expected a positive integer\n"
        "3 of 6 change: 1 the speed, 1 removed, 1 new; 1 cannot be compared\n"
        "policy: cannot judge small\n"
    )


def test_a_single_config_has_no_name(told: Any) -> None:
    words = "transform.resize.antialias=true load.prefetch=1"
    assert told("", words, "--stat") == "data, speed  2 differences\n1 of 1 change: 1 the data, 1 the speed\n"
    assert told("", "", "--stat") == "nothing changes\n"
    loose = "load.drop_remainder=true transform.deterministic=false"
    assert told(loose, f"{loose} load.prefetch=1", "--stat").splitlines()[0] == "perhaps data, speed  1 difference"


def test_it_is_no_format_beside_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call("diff", ["", "", "--stat", "--format", "json"])
    assert caught.value.code == 2
    fault = "  --format: found --stat, too; expected one of them"
    assert capsys.readouterr().err.splitlines()[1:] == [fault, "    -> see etlrun diff --help"]


def test_jobs_of_sweeps_have_the_ratio_of_their_rates(tmp_path: Path, told: Any) -> None:
    rates = {"0": 100.0, "1": 100.0}
    old = swept(tmp_path / "a", "load.prefetch=0,1", "model=emulated", rates=rates)
    new = swept(tmp_path / "b", "load.prefetch=0,2", "model=emulated", rates={"0": 150.0})
    assert told(str(old), str(new), "--stat") == (
        "load.prefetch=0  nothing  0 differences  examples/s 1.50x\n"
        f"load.prefetch=1  is in {old} alone\n"
        f"load.prefetch=2  is in {new} alone\n"
        f"2 of 3 change: 1 in {old} alone, 1 in {new} alone\n"
    )
