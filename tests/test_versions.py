"""The versions that pyproject.toml allows are those of the table that `.ci/versions` writes."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]
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
