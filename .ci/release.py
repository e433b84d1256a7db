"""Checks of a release: `python .ci/release.py v1.2.3` compares the tag with the version, and prints its changes."""

import re
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def main(tag: str) -> None:
    """Print the section of the changelog of `tag`; exit with all that speaks against its release."""
    version = tomllib.loads(_read("pyproject.toml"))["project"]["version"]
    cited = re.findall(r"^version: (.*)$", _read("CITATION.cff"), re.MULTILINE)
    changes = _changes(version)
    faults = [f"found the tag {tag}; expected v{version}, the version of pyproject.toml"] * (tag != f"v{version}")
    if cited != [version]:
        faults.append(f"CITATION.cff: found version {', '.join(cited) or 'none'}; expected {version}")
    if not changes:
        faults.append(f"CHANGELOG.md: found no changes below `## {version}`; expected what users notice of it")
    if faults:
        raise SystemExit("\n".join(faults))
    print(changes)


def _changes(version: str) -> str:
    """Return what stands below the heading of a version, which a date may follow; empty if nothing does."""
    sections = re.split(r"^## ", _read("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    of = (text.partition("\n") for text in sections)
    return next((text.strip() for title, _, text in of if title.split()[:1] == [version]), "")


def _read(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
