"""Golden plans: the plan of each experiment as a text file, so that changes are reviewed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.system.errors import Fault, of_file

_LAST_LINE = re.compile(rb"\nfingerprint [0-9a-f]{16}\n\Z")


def out_of_date(folder: Path, plans: Mapping[str, Plan], known: set[str]) -> Iterator[Fault]:
    """Yield a fault for each outdated file in `folder`; `known` are all experiments, including invalid ones."""
    update = "repeat the command with --update, and review the diff"
    for path, text in _other(folder, plans):
        line = _first_other_line(_text(path), text) if path.is_file() else None
        found = "a different plan" if line else "no golden plan"
        yield of_file(str(path), found, "the current plan", update, line=line)
    for path in _of_no_experiment(folder, known):
        yield of_file(str(path), "a golden plan", "an experiment of that name", update)


def _other(folder: Path, plans: Mapping[str, Plan]) -> Iterator[tuple[Path, str]]:
    """Yield the files that are missing or differ, with the text that they should have."""
    for name, plan in plans.items():
        path, text = folder / f"{name}.txt", render.text(plan)
        if not path.is_file() or _text(path) != text:
            yield path, text


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _of_no_experiment(folder: Path, known: set[str]) -> list[Path]:
    """Return the plans in `folder` of experiments that no longer exist."""
    texts = [path for path in sorted(folder.glob("*.txt")) if path.stem not in known]
    return [path for path in texts if _LAST_LINE.search(path.read_bytes())]


def _first_other_line(old: str, new: str) -> int:
    lines = old.splitlines(), new.splitlines()
    pairs = enumerate(zip(*lines, strict=False), 1)
    return next((number for number, (was, now) in pairs if was != now), max(1, len(lines[0])))


def update(folder: Path, plans: Mapping[str, Plan], known: set[str]) -> list[str]:
    """Write the plans that differ, delete those without an experiment, and return their file names."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for path in _of_no_experiment(folder, known):
        path.unlink()
        changed.append(path.name)
    for path, text in _other(folder, plans):
        path.write_text(text, encoding="utf-8")
        changed.append(path.name)
    return changed
