"""Eighteen pull requests, each with the comment, the annotations and the exit statuses that a person wants."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import Golden
from tests.pulls import GOLDEN, PULLS, of, the_same_everywhere

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def everywhere() -> Iterator[None]:
    with the_same_everywhere():
        yield


@pytest.mark.parametrize("name", PULLS)
def test_a_pull_request_gets_what_its_golden_file_shows(name: str, tmp_path: Path, golden: Golden) -> None:
    golden(GOLDEN / f"{name}.md", of(PULLS[name], tmp_path))


def test_each_pull_request_has_a_golden_file() -> None:
    assert sorted(PULLS) == sorted(path.stem for path in GOLDEN.iterdir())
