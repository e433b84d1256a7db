"""A project of `etlrun init`: the scripts of its workflows, as GitHub runs them, and its hook, on real commits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from etlrun.cli import upkeep
from tests.actions import evaluated
from tests.golden import Says
from tests.projects import Project

INSTALLS = 'pip install "etlrun @ git+https://github.com/etlrun/etlrun" '
GREY = ("experiment/first.yaml", "strength: 0.5")
EPOCHS = ("experiment/first.yaml", "epochs: 6")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def steps(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Script and environment of each step of a workflow behind those that check out and install."""
    (job,) = yaml.safe_load((upkeep.TEMPLATE / ".github" / "workflows" / name).read_text())["jobs"].values()
    scripts = [step for step in job["steps"] if "run" in step]
    assert scripts[0]["run"].startswith(INSTALLS)
    for step in scripts[1:]:
        yield step["run"], step.get("env", {})


def run(project: Project, workflow: str, *labels: str) -> tuple[list[int], str]:
    """Exit statuses of the steps, and the summary that they write."""
    event = {"pull_request": {"labels": [{"name": name} for name in labels]}}
    summary, done = project.scratch / "summary.md", []
    for script, environment in steps(workflow):
        known: dict[str, Any] = {"github": {"event": event}}
        given = {name: evaluated(text, known) for name, text in environment.items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        runner = {**os.environ, **given, "GITHUB_STEP_SUMMARY": str(summary)}
        done.append(subprocess.run(command, cwd=project.folder, env=runner, check=False).returncode)
    text = summary.read_text(encoding="utf-8") if summary.exists() else ""
    summary.unlink(missing_ok=True)
    return done, text


def test_a_pull_request_that_changes_the_data_needs_the_label_of_the_policy(project: Project, says: Says) -> None:
    project.repository.git("checkout", "--quiet", "main")
    project.repository.replace(*GREY, "strength: 0.75")
    project.repository.pull_request("Greyer")
    statuses, summary = run(project, "review.yml", "help wanted")
    assert statuses == [4]
    says(summary.splitlines()[1:], HEAD=project.repository.git("rev-parse", "--short", "HEAD"))
    statuses, summary = run(project, "review.yml", "help wanted", "data-approved")
    assert (statuses, "#### policy: passed" in summary) == ([0], True)
    project.repository.git("checkout", "--quiet", "main")
    project.repository.replace(*EPOCHS, "epochs: 7")
    project.repository.pull_request("Longer")
    assert run(project, "review.yml")[0] == [0]


@pytest.mark.slow
def test_configs_are_checked_and_the_tests_pass(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(project, "tests.yml") == ([0, 0], "")
    assert "2 passed" in capfd.readouterr().out


@pytest.mark.needs("pre-commit")
@pytest.mark.slow
def test_its_hook_refuses_the_commit_of_a_broken_config(project: Project) -> None:
    subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=project.folder, check=True)
    project.repository.replace(*EPOCHS, "epochs: 7")
    made = project.repository.commit("Longer")
    project.repository.replace(EPOCHS[0], "epochs: 7", "epochs: 0")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        project.repository.commit("Wrong")
    fault = "conf/experiment/first.yaml:19: trainer.epochs, in experiment=first: found 0; expected a positive integer"
    assert fault in refused.value.stderr
    assert project.repository.git("rev-parse", "HEAD") == made
