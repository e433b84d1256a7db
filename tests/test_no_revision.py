"""Words that name nothing to compare, where git knows no revision."""

import subprocess
from pathlib import Path

import pytest

from tests.configs import refusal_of_diff

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
