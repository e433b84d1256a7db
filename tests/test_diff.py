import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from etlrun import record as records
from etlrun.errors import ConfigError
from etlrun.review import diff, show
from etlrun.review.folders import working_tree
from etlrun.review.review import review
from etlrun.review.sides import resolve
from tests.configs import CONF, composed
from tests.repository import OTHER, SMALL, Repository


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository.small(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    return made


def refusal(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        diff.main(list(words))
    return str(caught.value)


def test_overrides_are_compared(told: Any) -> None:
    assert told("extract=sequential", "extract=sequential load.prefetch=1 cache=none") == (
        "changes only the speed\n  load.prefetch  autotune -> 1   speed\n  cache          memory -> none  speed\n\n"
    )


def test_equal_configs_do_not_differ(told: Any) -> None:
    assert told("", "load.prefetch=autotune", "--exit-code") == "no difference\n"


@pytest.mark.parametrize(
    ("words", "status"), [("load.prefetch=1", 1), ("cache.dir=/caches", 1), ("measure.silence={}", 0)]
)
def test_the_exit_status_tells_whether_plans_differ(words: str, status: int, told: Any) -> None:
    told("", words, "--exit-code", status=status)
    told("", words)


@pytest.mark.usefixtures("repository")
def test_a_reference_to_nothing_is_refused() -> None:
    assert refusal("nothing", "cache=none") == (
        "nothing: found neither overrides, nor a file, a folder or a git revision of that name; expected overrides in "
        "one word, a config file, a run's folder, or a git revision\n"
        '    -> write overrides as "experiment=parallel load.prefetch=1"'
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"load: {batch_size: 8", "found while parsing a flow mapping"),
        (b"\xff\xfe", "found 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"defaults: [override /cache: disk, _self_]\n", "found In 'side': Could not override 'cache'."),
    ],
)
def test_a_file_that_is_no_config_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "side.yaml").write_bytes(content)
    text = refusal("", str(tmp_path / "side.yaml"))
    assert message in text
    assert text.endswith("; expected a config that Hydra can compose")


def test_a_quote_that_is_not_closed_is_refused() -> None:
    assert refusal("dataset.split='train", "") == (
        "dataset.split='train: found No closing quotation; expected a config that Hydra can compose"
    )


def test_a_composed_config_may_be_a_whole_one(told: Any, tmp_path: Path) -> None:
    config = {**composed("load.prefetch=1"), "sweep": {"repeats": 1}}
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert told("", str(tmp_path / "full.yaml")).splitlines()[0] == "changes only the speed"


def test_wrong_overrides_are_refused() -> None:
    assert refusal("", "load.batch_size=0 cache=disc") == (
        "cache: found the unknown option 'disc'; expected one of disk, memory, none\n    -> did you mean cache=disk?\n"
        "load.batch_size: found 0; expected an integer of at least 1"
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["run", "composed", "option", "primary", "overlay"])
def test_a_run_and_files_of_each_kind_are_compared(kind: str, told: Any, tmp_path: Path) -> None:
    changed = ("load.prefetch=1",)
    if kind == "run":
        records.Record.create(tmp_path / "run", composed(*changed), list(changed))
        word = tmp_path / "run"
    elif kind == "composed":
        word = write(tmp_path / "whole.yaml", yaml.safe_dump(composed(*changed)))
    elif kind == "option":
        word = write(tmp_path / "load" / "one.yaml", "defaults: [shuffled, _self_]\nprefetch: 1\n")
    elif kind == "primary":
        word = write(tmp_path / "mine.yaml", "defaults: [config, _self_]\nload: {prefetch: 1}\n")
    else:
        word = write(tmp_path / "over.yaml", "# @package _global_\nload: {prefetch: 1}\n")
    mine = ["--config-dir", str(tmp_path)] if kind == "option" else []
    assert told("", str(word), *mine).splitlines()[:2] == [
        "changes only the speed",
        "  load.prefetch  autotune -> 1  speed",
    ]


def test_revisions_are_compared_by_experiment_and_by_file(repository: Repository, told: Any) -> None:
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    repository.replace("experiment/other.yaml", "Another one", "Quite another one")
    repository.write("experiment/new.yaml", "# @package _global_\n# New.\nload: {prefetch: 1}\n")
    repository.commit("Smaller")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine", "--exit-code", status=1) == (
        "small: changes the data, from transform.resize on\n"
        "  transform.resize.size  [48, 48] -> [32, 32]  data, from transform.resize on\n\n"
        "new: is new\n\n"
        "default, a100_resnet50, cats_vs_dogs, h100_resnet50, naive, other, parallel: no difference\n"
        "mine/experiment/new.yaml: added, reaches new\n"
        "mine/experiment/other.yaml: changed, reaches other, and changes no plan\n"
        "mine/transform/small_48.yaml: changed, reaches small\n"
    )


def test_one_experiment_of_revisions_is_compared(repository: Repository, told: Any) -> None:
    repository.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    (repository.configs / "experiment" / "other.yaml").unlink()
    repository.commit("Smaller")
    base = ("--config-dir", "mine", "--experiment")
    assert told("main~1", "main", *base, "other").splitlines()[0] == "other: is gone"
    assert told("main~1", "main", *base, "small").splitlines()[0] == "small: changes the data, from transform.resize on"
    assert refusal("main~1", "main", *base, "nothing") == (
        "--experiment: found nothing, which is not in main~1 or main; expected an experiment of theirs"
    )


def test_a_revision_is_compared_with_overrides_and_with_the_working_tree(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    one = ["other: changes the training", "  trainer.epochs  3 -> 4  training"]
    assert told("HEAD", "--config-dir", "mine").splitlines()[:2] == one
    other = told("HEAD", "experiment=other", "--experiment", "other", "--config-dir", "mine").splitlines()
    assert other[:2] == [one[0].removeprefix("other: "), one[1]]


def test_reading_a_revision_leaves_the_working_tree_as_it_is(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    before = repository.git("status", "--porcelain")
    assert "no difference" in told("HEAD", "HEAD", "--config-dir", "mine")
    assert repository.git("status", "--porcelain") == before == "M mine/experiment/other.yaml"


def test_a_wrong_revision_is_told_with_its_file_and_line(repository: Repository, told: Any) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0\n  epoch: 1")
    repository.replace("experiment/small.yaml", "small_48", "small_4")
    repository.commit("Wrong")
    repository.replace("experiment/other.yaml", "epochs: 0\n  epoch: 1", "epochs: 3")
    repository.replace("experiment/small.yaml", "small_4", "small_48")
    repository.commit("Right")
    lines = told("HEAD~1", "HEAD", "--config-dir", "mine", status=2).splitlines()
    start = lines.index("small: can't be compared") + 1
    assert lines[start].startswith("  HEAD~1:mine/experiment/small.yaml:6: found Could not find 'transform/small_4'")
    start = lines.index("other: can't be compared")
    assert [line.split("; expected")[0] for line in lines[start + 1 : start + 3]] == [
        "  HEAD~1:mine/experiment/other.yaml:5: trainer.epochs: found 0",
        "  HEAD~1:mine/experiment/other.yaml:6: trainer.epoch: found an unknown key",
    ]
    assert "other: no difference" in told("HEAD~2", "HEAD", "--experiment", "other", "--config-dir", "mine")


def test_what_users_wrote_stays_text_in_a_comment(repository: Repository, told: Any) -> None:
    name = "n```\n```\n# out </details><b>[click](http://evil) @octocat"
    repository.write("experiment/small.yaml", SMALL + "dataset: " + json.dumps({"name": name, "data_dir": "a`|b\n# c"}))
    repository.write("experiment/@x <b>*.yaml", SMALL)
    repository.commit("Odd")
    text = told("HEAD~1", "HEAD", "--config-dir", "mine", "--format", "markdown", status=2)
    one_line = " ".join(name.split())
    assert f"| `dataset.name` | `etlrun_sample` | ```` {one_line} ```` | data, from the data set on |\n" in text
    assert "| `dataset.data_dir` | `null` | `` a`\\|b # c `` | speed, as long as the same files are there |\n" in text
    assert '[("n#96;#96;#96; #96;#96;#96; # out #lt;/details#gt;#lt;b#gt;[click](http://evil) @octocat<br/>' in text
    assert "\n**&#64;x &#60;b>&#42;** can't be compared.\n" in text
    assert "\n- mine/experiment/&#64;x &#60;b>&#42;.yaml: added, reaches no experiment\n" in text
    assert text.count("```mermaid\n") == text.count("\n```\n") == 1


def test_a_comment_is_no_longer_than_comments_may_be(repository: Repository, told: Any) -> None:
    for number in range(80):
        repository.write(f"experiment/{number}{'x' * 200}.yaml", f"{OTHER}  seed: {number}\n")
    repository.commit("Many")
    for number in range(80):
        repository.write(f"experiment/{number}{'x' * 200}.yaml", f"{OTHER}  seed: {number + 100}\n")
    repository.commit("Others")
    text = told("HEAD~1", "HEAD", "--config-dir", "mine", "--format", "markdown")
    assert 30_000 < len(text) < 61_000
    assert re.fullmatch(r"This is too long for a comment: [\d,]+ characters are left out.", text.splitlines()[-1])


def test_what_was_committed_is_read_whatever_is_left_out_of_archives(repository: Repository, told: Any) -> None:
    (repository.folder / ".gitattributes").write_text("mine export-ignore\nother.yaml export-ignore\n")
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    repository.commit("Longer")
    assert told("HEAD~1", "HEAD", "--config-dir", "mine").splitlines()[0] == "other: changes the training"


def test_configs_may_be_a_whole_repository(repository: Repository, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 4")
    repository.commit("Longer")
    monkeypatch.chdir(repository.configs)
    assert told("HEAD~1", "HEAD", "--config-dir", ".").splitlines()[0] == "other: changes the training"
    shutil.rmtree(repository.folder / ".git")
    whole = Repository(repository.configs, ".")
    repository.replace("experiment/other.yaml", "epochs: 4", "epochs: 5")
    whole.commit("Longer still")
    assert told("HEAD~1", "HEAD", "--config-dir", ".").splitlines()[0] == "other: changes the training"


def test_configs_that_were_not_there_yet_are_new(repository: Repository, told: Any) -> None:
    repository.git("mv", "mine", "yours")
    repository.commit("Moved")
    lines = told("HEAD~1", "HEAD", "--config-dir", "yours").splitlines()
    assert lines[:4] == ["other: is new", "", "small: is new", ""]


def test_a_revision_without_configs_is_refused(repository: Repository) -> None:
    (repository.folder / "untracked").mkdir()
    assert refusal("HEAD", "HEAD", "--config-dir", "untracked") == (
        f"HEAD: found no folder untracked or {CONF} in that revision; expected a revision that holds configs\n"
        "    -> give --config-dir the folder in which this repository keeps its configs"
    )


def test_the_configs_of_a_project_are_found_beside_its_package(tmp_path: Path) -> None:
    for folder in ("etlrun", "conf"):
        shutil.copytree(CONF.parent / folder, tmp_path / folder)
    repository = Repository(tmp_path, "conf")
    repository.replace("load/shuffled.yaml", "1024", "512")
    repository.commit("Two")
    answer = subprocess.run(
        [sys.executable, "-m", "etlrun", "diff", "HEAD~1", "HEAD", "--experiment", "parallel"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.stdout, answer.stderr) == (
        (
            "parallel: changes the order\n"
            "  load.shuffle_buffer  1024 -> 512  order\n\n"
            "conf/load/shuffled.yaml: changed, reaches parallel\n"
        ),
        "",
    )


def test_markdown_has_a_table_and_a_picture(told: Any) -> None:
    text = told("cache=none", "cache=none load.prefetch=1 transform.resize.antialias=true", "--format", "markdown")
    assert text.startswith(
        "### etlrun: `cache=none` → `cache=none load.prefetch=1 transform.resize.antialias=true`\n\n"
        "This changes the data, from transform.resize on, and the speed.\n\n"
        "| what | from | to | changes |\n| --- | --- | --- | --- |\n"
        "| `transform.resize.antialias` | `false` | `true` | data, from transform.resize on |\n"
        "| `load.prefetch` | `autotune` | `1` | speed |\n\n"
        "<details><summary>The new plan</summary>\n\n```mermaid\nflowchart LR\n"
    )
    assert text.endswith(
        "  classDef data fill:#f8c8c8,color:#000\n  classDef speed fill:#cdebd0,color:#000\n"
        "  class train_2 data\n  class train_5 speed\n  class validation_2 data\n  class validation_4 speed\n"
        "```\n\n</details>\n"
    )


@pytest.mark.parametrize(
    ("word", "nodes"),
    [
        ("dataset.split=train", ["train_0"]),
        ("extract=sequential", ["train_1", "validation_1"]),
        ("transform.num_parallel_calls=2", ["train_2", "validation_2"]),
        ("cache.dtype=uint8", ["train_3", "validation_3"]),
        ("load.shuffle_buffer=8", ["train_4"]),
        ("load.drop_remainder=true", ["train_5"]),
        ("load.batch_size=8", ["train_5", "validation_4"]),
        ("trainer.epochs=9", ["model"]),
    ],
)
def test_the_picture_marks_what_differs(word: str, nodes: list[str], told: Any) -> None:
    lines = told("", word, "--format", "markdown").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  class ")] == sorted(nodes)


def test_json_has_everything(told: Any) -> None:
    document = json.loads(told("cache=disk", "cache=disk load.prefetch=1", "--format", "json"))
    reviewed = document["experiments"][0]
    assert (document["format"], document["old"], document["new"], document["files"]) == (
        1,
        "cache=disk",
        "cache=disk load.prefetch=1",
        [],
    )
    assert (reviewed["changes"], reviewed["state"]) == (["speed"], "compared")
    assert reviewed["fingerprints"][0] == reviewed["fingerprints"][1]
    assert reviewed["differences"] == [
        {
            "path": "load.prefetch",
            "old": "autotune",
            "new": "1",
            "kind": "speed",
            "since": "",
            "pipelines": [],
            "note": "",
        }
    ]
    assert [kept["pipeline"] for kept in reviewed["caches"]] == ["train", "validation"]


@pytest.mark.parametrize(("environment", "coloured"), [({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(environment: dict[str, str], *, coloured: bool) -> None:
    now = working_tree(None)
    found = review(resolve("", now, None), resolve("load.prefetch=1", now, None), None, None)
    console = Console(force_terminal=True, _environ=environment, highlight=False)
    with console.capture() as capture:
        show.text(found, console)
    assert ("\x1b[32mchanges only the speed\x1b[0m" in capture.get()) == coloured
