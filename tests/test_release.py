"""What speaks against a release, and its changes, of which the release on GitHub is told."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


def test_all_that_speaks_against_a_release_is_told_at_once(checkout: Path) -> None:
    (checkout / "CITATION.cff").write_text("version: 1.1.0\n")
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("1.2.0", "1.2.0rc1"))
    status, out, err = told(checkout, "v1.3.0")
    assert (status, out, err.splitlines()) == (
        1,
        "",
        [
            "found the tag v1.3.0; expected v1.2.0, the version of pyproject.toml",
            "CITATION.cff: found version 1.1.0; expected 1.2.0",
            "CHANGELOG.md: found no changes below `## 1.2.0`; expected what users notice of it",
        ],
    )


def test_an_empty_section_has_no_changes(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0\n\n## 1.1.0\n\n- Images.\n")
    assert told(checkout, "v1.2.0")[1:] == (
        "",
        "CHANGELOG.md: found no changes below `## 1.2.0`; expected what users notice of it\n",
    )
