"""Licences of all packages that an installation of etlrun has, as they say them themselves: docs/licences.md.

python -m benchmarks.licences > docs/licences.md
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "MIT",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "Zlib",
    }
)
"""Identifiers of SPDX, and `BSD` of packages that don't say which of these licences is theirs."""
_SPELLINGS = (
    (r"apache.*", "Apache-2.0"),
    (r"mit( license)?", "MIT"),
    (r"(3-clause bsd|bsd[ -]3[ -]clause)( license)?", "BSD-3-Clause"),
    (r"(2-clause bsd|bsd[ -]2[ -]clause)( license)?", "BSD-2-Clause"),
    (r"bsd( license)?", "BSD"),
    (r"(mozilla public license 2.0.*|mpl-2.0)", "MPL-2.0"),
)
"""How packages spell a licence that have no expression of SPDX."""
_UNSAID = {"namex": "Apache-2.0"}
"""Licences that the metadata of a package leaves out, by its file LICENSE."""
_HEAD = """\
# Licences

etlrun has the [MIT licence](https://github.com/etlrun/etlrun/blob/main/LICENSE). It installs these
packages on Linux; the licences are as they say themselves:

| licence | packages |
| --- | --- |"""
_TAIL = """
`BSD` is that of packages that don't say which one. Wheels contain libraries of others, whose licences are beside them
in `*.dist-info`: `opencv-python-headless` has FFmpeg under the LGPL 2.1. The extra `gpu` installs CUDA libraries under
NVIDIA's own licence; packages of other extras are not listed."""


def installed(requirements: Iterable[Requirement], extras: Iterable[str] = ("",)) -> Iterator[str]:
    """Yield the canonical names of what these requirements install here; what is not installed is left out."""
    seen: set[tuple[str, str]] = set()
    waiting = [(of, extra) for of in requirements for extra in extras]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            try:
                needed = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            if name not in {of for of, _ in seen}:
                yield name
            seen.add((name, wanted))
            waiting += [(Requirement(of), wanted) for of in needed]


def licence_of(name: str, expression: str | None, text: str | None, classifiers: Iterable[str]) -> str:
    """Return the expression of a licence by the metadata of a package; `unknown` if none there is known."""
    if expression:
        return expression
    named = [of.rpartition(" :: ")[2] for of in classifiers if of.startswith("License :: ")]
    line = next(iter((text or "").strip().splitlines()), "")  # some have the whole licence there
    if is_allowed(line):
        return line
    for spelling in (*named, line):
        for pattern, licence in _SPELLINGS:
            if re.fullmatch(pattern, spelling, re.IGNORECASE):
                return licence
    return _UNSAID.get(name, "unknown")


def is_allowed(expression: str) -> bool:
    """Return whether an alternative of an expression has allowed licences alone; with parentheses, the whole of it."""
    alternatives = [expression] if "(" in expression else re.split(r"\s+OR\s+", expression)
    names = [{*re.findall(r"[^\s()]+", of)} - {"AND", "OR"} for of in alternatives]
    return any(of and of <= ALLOWED for of in names)


def licences() -> dict[str, str]:
    """Return the licence of each package that the dependencies of pyproject.toml install, by its name."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    found = {}
    for name in sorted(installed(map(Requirement, project["dependencies"]))):
        said = metadata.metadata(name)
        expression, text = ((said.get_all(key) or [None])[0] for key in ("License-Expression", "License"))
        found[name] = licence_of(name, expression, text, said.get_all("Classifier") or [])
    return found


def page() -> str:
    """Return the page as Markdown."""
    of = licences()
    rows = [f"| {each} | {', '.join(name for name in of if of[name] == each)} |" for each in sorted({*of.values()})]
    return "\n".join([_HEAD, *rows, _TAIL])


if __name__ == "__main__":
    print(page())
