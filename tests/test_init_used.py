"""A project of `etlrun init` is used as its README says, beside an installed wheel."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Once
from tests.wheels import Environment, wheel_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed"),
]
WHO = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
VALUE = "strength: 0.5"


def by_heart(readme: str) -> Iterator[str]:
    """The commands of a README in their order; the last one is about a value that has been changed."""
    return iter(re.findall(r"^    ((?:pip|etlrun|pytest|git) ?.*)$", readme, re.MULTILINE))


def test_a_new_project_does_at_once_what_its_readme_says(once: Once, tmp_path: Path) -> None:
    environment = Environment.with_wheel(tmp_path / "venv", wheel_of(once))
    environment.check("etlrun init my-trees", tmp_path)
    project = tmp_path / "my-trees"
    said = {}
    *commands, review = by_heart((project / "README.md").read_text(encoding="utf-8"))
    for command in commands:
        said[command] = environment.check(command, project, **WHO)
    assert [command.split(" -")[0] for command in commands] == [
        "pip install",
        "etlrun",
        "etlrun plan",
        "etlrun show",
        "etlrun check",
        "pytest",
        "git init && git add . && git commit",
    ]
    assert "status    completed in " in said["etlrun --config-dir conf experiment=first"]
    (summary,) = project.glob("outputs/*/*/summary.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["epochs"][-1]["val_accuracy"] > 0.9
    assert "a. transform.my_trees_grey" in said["etlrun plan --config-dir conf experiment=first"]
    assert said["etlrun check --config-dir conf"].splitlines()[-1].endswith(": no fault")
    assert "3 passed" in said["pytest"]
    assert environment.check("git status --porcelain --ignored=no", project) == ""

    assert environment.check(review, project) == "first: no difference\n"
    experiment = project / "conf" / "experiment" / "first.yaml"
    text = experiment.read_text(encoding="utf-8")
    assert VALUE in text
    experiment.write_text(text.replace(VALUE, "strength: 0.8"), encoding="utf-8")
    assert environment.check(review, project).splitlines()[:2] == [
        "first: changes the data, from transform.my_trees_grey on",
        "  transform.my_trees_grey.strength  0.5 -> 0.8  data, from transform.my_trees_grey on",
    ]

    environment.check("etlrun init others", tmp_path)  # two projects in one environment stand beside each other
    environment.check("pip install -e .", tmp_path / "others")
    assert len(environment.check("etlrun plugins", tmp_path).splitlines()) == 1 + 4
    assert environment.check("etlrun check --config-dir conf", tmp_path / "others").endswith(": no fault\n")
