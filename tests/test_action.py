"""The steps of the GitHub Action and of the pre-commit hook, run as a shell runs them, on real commits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.configs import CONF
from tests.repository import Repository

pytestmark = pytest.mark.slow

ROOT = CONF.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
TOKEN = "of the workflow"  # noqa: S105 - of no one
GH = """\
#!/usr/bin/env bash
# Stands in for GitHub: keeps what it is told, and knows the comments of a file.
if [ "$2" = "--paginate" ]; then cat "$COMMENTS"; exit 0; fi
printf '%s\\n' "$*" >> "$CALLS"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository.small(tmp_path / "repository")
    made.replace("transform/small_48.yaml", "[48, 48]", "[32, 32]")
    made.commit("Smaller")
    return made


def run(name: str, folder: Path, scratch: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The step of that name, with what GitHub would put in."""
    step = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
    values = {f"inputs.{key}": inputs.get(key, given["default"]) for key, given in ACTION["inputs"].items()}
    values |= {"runner.temp": str(scratch), "github.repository": "me/mine", "github.event.pull_request.number": "7"}
    environment = {
        key: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values[match[1]], value) for key, value in step["env"].items()
    }
    programs = scratch / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "gh").write_text(GH, encoding="utf-8")
    (programs / "gh").chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    mine = {"PATH": path, "PYTHONPATH": str(ROOT)}
    for key, file in (("GITHUB_STEP_SUMMARY", "summary.md"), ("CALLS", "calls"), ("COMMENTS", "comments")):
        (scratch / file).touch()
        mine[key] = str(scratch / file)
    # As GitHub runs `shell: bash`.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **mine, **environment}, capture_output=True, text=True, check=False
    )


def test_the_action_comments_what_a_pull_request_changes_and_checks_it(repository: Repository, tmp_path: Path) -> None:
    inputs = {"config-dir": "mine", "token": TOKEN}
    answers = [run(name, repository.folder, tmp_path, **inputs) for name in ("Diff", "Comment", "Check")]
    assert [(answer.returncode, answer.stderr) for answer in answers] == [(0, "")] * 3
    comment = (tmp_path / "etlrun-diff.md").read_text(encoding="utf-8")
    assert comment.startswith(
        "<!-- etlrun -->\n### etlrun: `HEAD^1` → `HEAD`\n\n**small** changes the data, from transform.resize on.\n"
    )
    assert comment == (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "calls").read_text() == (
        f"api --method POST repos/me/mine/issues/7/comments --field body=@{tmp_path}/etlrun-diff.md --silent\n"
    )
    assert re.fullmatch(r"checked 9 configs of 2 experiments and of options in [\d.]+ s: no fault\n", answers[2].stdout)


def test_an_ordinary_option_of_ones_own_passes_the_action(repository: Repository, tmp_path: Path) -> None:
    repository.write("dataset/pets.yaml", "defaults: [folder, _self_]\ndir: photos\n")
    repository.write("experiment/pets.yaml", "# @package _global_\ndefaults: [override /dataset: pets]\n")
    repository.commit("Pets")
    inputs = {"config-dir": "mine", "token": TOKEN}
    answers = [run(name, repository.folder, tmp_path, **inputs) for name in ("Diff", "Check")]
    assert [(answer.returncode, answer.stderr) for answer in answers] == [(0, "")] * 2
    comment = (tmp_path / "etlrun-diff.md").read_text(encoding="utf-8").splitlines()
    assert (comment[3], comment[-4:]) == (
        "**pets** is new.",
        [
            "No difference in other, small.",
            "",
            "- mine/dataset/pets.yaml: added, reaches pets",
            "- mine/experiment/pets.yaml: added, reaches pets",
        ],
    )


def test_the_action_writes_its_comment_anew(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "comments").write_text("12\n13\n")
    assert run("Comment", repository.folder, tmp_path, token=TOKEN).returncode == 0
    assert (tmp_path / "calls").read_text() == (
        f"api --method PATCH repos/me/mine/issues/comments/12 --field body=@{tmp_path}/etlrun-diff.md --silent\n"
    )


def test_without_a_token_there_is_no_comment(repository: Repository, tmp_path: Path) -> None:
    assert run("Comment", repository.folder, tmp_path, token="").returncode == 0
    assert (tmp_path / "calls").read_text() == ""


def test_a_wrong_config_is_commented_and_fails_the_check(repository: Repository, tmp_path: Path) -> None:
    repository.replace("experiment/other.yaml", "epochs: 3", "epochs: 0")
    repository.commit("Wrong")
    assert run("Diff", repository.folder, tmp_path, **{"config-dir": "mine"}).returncode == 0
    assert "mine/experiment/other.yaml:5: trainer.epochs: found 0" in (tmp_path / "etlrun-diff.md").read_text()
    answer = run("Check", repository.folder, tmp_path, **{"config-dir": "mine"})
    assert (answer.returncode, answer.stderr) == (
        2,
        (
            "etlrun: 1 fault\n  mine/experiment/other.yaml:5: trainer.epochs, in experiment=other: found 0; "
            "expected a positive integer\n"
        ),
    )


def test_a_base_that_is_not_there_fails_the_step(repository: Repository, tmp_path: Path) -> None:
    answer = run("Diff", repository.folder, tmp_path, base="HEAD~9", **{"config-dir": "mine"})
    assert answer.returncode == 1
    assert "HEAD~9: found neither overrides" in answer.stderr


def test_the_hook_checks_the_configs(repository: Repository) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    words = [*hook["entry"].replace("python", sys.executable).split(), "--config-dir", "mine"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for epochs, status in (("3", 0), ("0", 2)):
        repository.replace("experiment/other.yaml", "epochs: 3", f"epochs: {epochs}")
        answer = subprocess.run(words, cwd=repository.folder, env=environment, capture_output=True, check=False)
        assert answer.returncode == status
    assert re.search(hook["files"], "mine/experiment/other.yaml")
    assert hook["pass_filenames"] is False
