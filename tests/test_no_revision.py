"""Words that name nothing to compare, where git knows no revision."""

import subprocess
from pathlib import Path

import pytest

from tests.configs import refusal_of_diff
from tests.repository import Repository

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


@pytest.mark.parametrize(
    ("word", "both"),
    [
        ("main~1..main", "main~1 main"),
        ("main~1..", "main~1 HEAD"),
        ("..main", "HEAD main"),
        ("main~1...main", "$(git merge-base main~1 main) main"),
    ],
)
def test_a_range_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, both: str) -> None:
    Repository.small(tmp_path).commit("Another")
    monkeypatch.chdir(tmp_path)
    assert refusal_of_diff(word) == (
        f"{word}: found a range of revisions; expected overrides in one argument, a config file, the folder of a run "
        f"or of a sweep, or a git revision\n    -> give both revisions: {both}"
    )
    assert refusal_of_diff("main..none").endswith(f"    -> {QUOTE}")


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
