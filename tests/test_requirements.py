"""What pyproject.toml requires: each package with a lower and an upper bound, and a reason."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import etlrun

ROOT = Path(__file__).parents[1]
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


def test_what_lacks_a_bound_or_a_reason_is_named() -> None:
    unbound = PYPROJECT.replace('"rich>=14,<16", #', '"rich>=14", #').replace('"wandb>=0.22,<1"] #', '"wandb"] #')
    assert [*faults(unbound)] == [
        "rich>=14 of dependencies: no lower and upper bound, such as >=1,<2",
        "wandb of wandb: no lower and upper bound, such as >=1,<2",
        "wandb of wandb: no reason in a comment on its line",
    ]
    silent = re.sub(r'("(?:psutil|jax)>=[^#\n]*)#.*', r"\1", PYPROJECT)
    assert [*faults(silent)] == [
        "psutil<8,>=7 of dependencies: no reason in a comment on its line",
        "jax<0.13,>=0.7 of jax: no reason in a comment on its line",
    ]


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
