""""""

import dataclasses
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import etlrun
from etlrun.planning import render
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record import record as records
from etlrun.report.render import RENDER
from etlrun.review.document import matrix, of_review
from etlrun.review.effects import FIRST, REBUILT, VALID, CacheChange
from etlrun.review.folders import working_tree
from etlrun.review.review import Review, Reviewed, review
from etlrun.review.sides import Variant, of_folders, resolve
from etlrun.stages import STAGES
from etlrun.system.terminal import say, say_note, tell
from tests.configs import composed, plan_of, refusal_of_diff
from tests.golden import Case, Golden, Says, cases
from tests.pulls import transcript
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


def test_each_experiment_that_changes_has_a_line(mine: Repository, told: Any, says: Says) -> None:
    del mine
    says(told("HEAD", "--config-dir", "mine", "--stat"))
    assert told("HEAD", "HEAD", "--config-dir", "mine", "--stat") == "nothing changes\n"


def kept(state: str, size_bytes: int | None) -> CacheChange:
    return CacheChange(pipeline="train", target="cache.disk at transformed", state=state, size_bytes=size_bytes)


def test_what_is_filled_stands_beside_it(mine: Repository, says: Says) -> None:
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
    says(RENDER["text"](doc).splitlines()[:2])


def test_faults_and_a_broken_policy_are_told_too(mine: Repository, told: Any, says: Says) -> None:
    mine.replace("experiment/small.yaml", "epochs: 3", "epochs: many")
    says(told("HEAD", "--config-dir", "mine", "--stat", "--fail-on", "order", status=2))


def test_jobs_of_sweeps_have_the_ratio_of_their_rates(tmp_path: Path, told: Any, says: Says) -> None:
    rates = {"0": 100.0, "1": 100.0}
    old = swept(tmp_path / "a", "load.prefetch=0,1", "model=emulated", rates=rates)
    new = swept(tmp_path / "b", "load.prefetch=0,2", "model=emulated", rates={"0": 150.0})
    says(told(str(old), str(new), "--stat"))


QUOTE = 'quote overrides as one argument: "experiment=parallel load.prefetch=1"'


def refusal(why: str, remedy: str) -> str:
    return (
        f"HEAD: found neither overrides, nor a file, a folder or a git revision of that name, since {why}; expected "
        "overrides in one argument, a config file, the folder of a run or of a sweep, or a git revision\n"
        f"    -> {remedy}; {QUOTE}"
    )


def test_there_is_no_repository_and_then_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    remedy = "run it in a repository (`git status` says why this is none)"
    assert refusal_of_diff("HEAD", "cache=none") == refusal("git reads no repository here", remedy)
    subprocess.run(["git", "init", "--quiet"], check=True)
    assert refusal_of_diff("HEAD", "cache=none") == refusal("the repository has no commit", "commit the configs first")


def test_there_is_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal_of_diff("HEAD", "cache=none") == refusal("git is not installed", "install git")


@pytest.mark.parametrize("word", ["HEAD^1", "HEAD~1", "main~3"])
def test_a_clone_is_shallow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    Repository.small(tmp_path / "whole").commit("Another")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{tmp_path}/whole", "clone"], check=True)
    monkeypatch.chdir("clone")
    remedy = "fetch more commits, such as with git fetch --deepen 1"
    assert refusal_of_diff(word, "HEAD") == (
        refusal("the clone is shallow", remedy).replace("HEAD", word, 1).removesuffix(f"; {QUOTE}")
    )
    assert refusal_of_diff("none~1", "HEAD").endswith(f"    -> {QUOTE}")


MINE = ("--config-dir", "mine", "--format", "json")


@pytest.mark.parametrize("case", cases("diff"))
def test_a_comparison_is_told_in_full(case: Case, golden: Golden, repository: Repository) -> None:
    golden(case, transcript(case, repository))


def test_an_odd_name_is_chosen_by_a_quoted_override(repository: Repository, told: Any) -> None:
    repository.write("experiment/größe, $(x) 1.yaml", "# @package _global_\n# Odd.\nload: {prefetch: 1}\n")
    repository.commit("Odd")
    (odd,) = json.loads(told("HEAD~1", "HEAD", *MINE))["matrix"]["include"]
    assert odd["experiment"] == "größe, $(x) 1"
    side = shlex.quote(odd["overrides"])
    assert json.loads(told(side, f"{side} load.prefetch=2", *MINE))["kinds"] == ["speed"]


def test_the_run_without_an_experiment_is_chosen_by_no_override() -> None:
    reviewed = Reviewed(name="default", sides=(None, Variant(config=None, plan=plan_of())))
    review = Review(old="HEAD", new="the working tree", experiments=(reviewed,), files=())
    assert matrix(review)["include"] == [
        {"experiment": "default", "overrides": "", "state": "added", "kinds": [], "since": None}
    ]


def test_what_perhaps_changes_the_data_does_so_in_all_forms(repository: Repository, told: Any) -> None:
    repository.replace("experiment/small.yaml", "epochs: 2}", "epochs: 2, steps_per_epoch: 2}")
    repository.commit("A part of the data")
    repository.replace("experiment/small.yaml", "epochs: 2", "epochs: 3")
    headline = "changes perhaps the data, from load.batch on, and the training"
    (small,) = (of for of in json.loads(told("HEAD", *MINE))["experiments"] if of["name"] == "small")
    assert (small["changes"], small["headline"]) == (["data", "training"], headline)
    assert f"\n#### small: {headline}\n" in told("HEAD", "--config-dir", "mine", "--format", "markdown")
    changed = etlrun.diff("HEAD", config_dir="mine")
    assert (changed.changes_data, changed.changes_training, changed.changes_order) == (True, True, False)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    side = tmp_path / "side.yaml"
    side.write_bytes(b"load:\n  batch_size: \xff8")
    assert refusal_of_diff("", str(side)) == f"{side}:2: found the byte 0xff, which is not UTF-8; expected YAML"


@pytest.mark.parametrize("kind", ["run", "composed", "whole"])
def test_a_run_and_composed_configs_are_compared(kind: str, told: Any, tmp_path: Path) -> None:
    config, word = composed("load.prefetch=1"), tmp_path / "side.yaml"
    if kind == "run":
        word = records.Record.create(tmp_path / "run", config, ["load.prefetch=1"]).folder
    else:
        of = {**config, "sweep": {"repeats": 1}} if kind == "whole" else config
        word.write_text(yaml.safe_dump(of), encoding="utf-8")
    lines = ["changes only the speed", "  load.prefetch  autotune -> 1  speed"]
    assert told("", str(word)).splitlines()[:2] == lines


LINES = "b\n::error::from a config\x1b[31m\u202e"
ESCAPED = "b\\n::error::from a config\\x1b[31m\\u202e"


def test_a_value_of_several_lines_stays_in_its_line_in_all_forms(tmp_path: Path, told: Any, says: Says) -> None:
    config = composed("logger=mlflow", "model=emulated")
    files = []
    for name, value in (("a", "a"), ("b", LINES)):
        config["logger"]["experiment_name"] = value
        config["dataset"]["data_dir"] = f"/data/{value}"
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump(config))
    says(told(*map(str, files)).splitlines()[:3])
    comment = told(*map(str, files), "--format", "markdown")
    assert f"| `logger.experiment_name` | `a` | `{ESCAPED.replace(chr(92) + 'n', ' ')}` | speed |\n" in comment
    for text in (
        comment,
        str(etlrun.diff(*files)),
        render.text(planned := plan(parse(config, STAGES))),
        render.mermaid(planned),
    ):
        assert not re.search(r"^::error|[\x1b\u202e]", text, re.MULTILINE)
    assert ESCAPED in render.text(planned)


@pytest.mark.parametrize("printed", [say, tell, say_note])
def test_a_line_is_printed_as_one(printed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    printed(LINES)
    assert "".join(capsys.readouterr()).removeprefix("note  ") == f"{ESCAPED}\n"


@pytest.mark.parametrize(
    ("word", "nodes"),
    [
        ("dataset.split=train", ["train_0"]),
        ("extract=sequential", ["train_1", "validation_1"]),
        ("transform.num_parallel_calls=2", ["train_2", "train_3", "validation_2", "validation_3"]),
        ("cache.dtype=uint8", ["train_4", "validation_4"]),
        ("load.shuffle_buffer=8", ["train_5"]),
        ("load.drop_remainder=true", ["train_6"]),
        ("load.prefetch=0", []),
        ("transform.steps=[decode,resize,scale_minus_one_one]", []),
        ("load.batch_size=8", ["train_6", "validation_5"]),
        ("trainer.epochs=9", ["model"]),
    ],
)
def test_the_picture_marks_what_differs(word: str, nodes: list[str], told: Any) -> None:
    lines = told("", word, "--format", "markdown").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  class ")] == sorted(nodes)


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(
    environment: dict[str, str], told: Any, monkeypatch: pytest.MonkeyPatch, *, coloured: bool
) -> None:
    for name, value in ({"FORCE_COLOR": "1"} | environment).items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[32mchanges only the speed\x1b[0m" in told("", "load.prefetch=1")) == coloured
