"""Licences of what `pip install etlrun` installs: each is known, allowed and listed in docs/licences.md."""

from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.licences import installed, is_allowed, licence_of, licences

ROOT = Path(__file__).parents[1]


def refused(found: dict[str, str]) -> list[str]:
    return [f"{name}: {licence}" for name, licence in found.items() if not is_allowed(licence)]


def test_each_package_has_an_allowed_licence() -> None:
    found = licences()
    assert not refused(found)
    assert {"tensorflow", "keras", "hydra-core", "omegaconf", "antlr4-python3-runtime", "namex"} <= {*found}
    assert "pytest" not in found  # of an extra


def test_another_licence_is_refused_by_the_name_of_its_package() -> None:
    assert refused({"free": "GPL-3.0-only", "unsaid": "unknown", "fine": "MIT"}) == [
        "free: GPL-3.0-only",
        "unsaid: unknown",
    ]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("MIT AND GPL-2.0-only", False),
        ("(MIT AND Zlib) OR (Apache-2.0)", True),
        ("", False),
        ("MIT AND (GPL-3.0-only OR BSD-3-Clause)", False),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", False),
    ],
)
def test_an_expression_is_allowed_if_one_of_its_alternatives_is(expression: str, allowed: bool) -> None:  # noqa: FBT001
    assert is_allowed(expression) is allowed


@pytest.mark.parametrize(
    ("said", "classifiers", "licence"),
    [
        (
            {"License-Expression": "MIT AND Zlib", "License": "GPL"},
            ["License :: OSI Approved :: BSD License"],
            "MIT AND Zlib",
        ),
        ({"License": "all of its text"}, ["License :: OSI Approved :: BSD License"], "BSD"),
        ({"License": "Apache License 2.0"}, [], "Apache-2.0"),
        ({"License": "MIT License\n\nCopyright (c) 2020"}, [], "MIT"),
        ({"License": "MPL-2.0 AND MIT"}, [], "MPL-2.0 AND MIT"),
        ({"License": "GNU General Public License"}, ["License :: OSI Approved :: GNU GPL v3"], "unknown"),
        ({}, [], "unknown"),
    ],
)
def test_a_licence_is_read_from_an_expression_a_classifier_or_a_text(
    said: dict[str, str], classifiers: list[str], licence: str
) -> None:
    assert licence_of("some", said.get("License-Expression"), said.get("License"), classifiers) == licence


def test_extras_of_requirements_are_followed() -> None:
    plain, more = ({*installed([Requirement(of)])} for of in ("fsspec", "fsspec[http]"))
    assert plain == {"fsspec"}
    assert {"aiohttp", "yarl"} <= more


def test_the_page_lists_each_package_of_the_tested_version_as_it_says() -> None:
    lines = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]
    listed = dict(rows)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    tested = {str(canonicalize_name(name)): of for name, _, of in (pin.partition("==") for pin in pins)}
    here = {name: licence for name, licence in licences().items() if tested.get(name) == metadata.version(name)}
    assert {name: listed.get(name) for name in here} == here
    assert {*listed} <= {*licences()} | {"importlib-resources"}
