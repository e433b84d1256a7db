"""Golden plans: the plan of each experiment as a text file, so that changes are reviewed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from etlrun.plan import render
from etlrun.plan.plan import Plan
from etlrun.system.errors import Fault

_LAST_LINE = re.compile(rb"\nfingerprint [0-9a-f]{16}\n\Z")


def texts(plans: Mapping[str, Plan]) -> dict[str, str]:
    """Return the text of each plan, by file name."""
    return {f"{name}.txt": render.text(plan) for name, plan in plans.items()}


def out_of_date(folder: Path, plans: Mapping[str, Plan], known: set[str]) -> Iterator[Fault]:
    """Yield a fault for each outdated file in `folder`; `known` are all experiments, including invalid ones."""
    update = "repeat the command with --update, and review the diff"
    for name, text in texts(plans).items():
        path = folder / name
        if not path.is_file():
            yield Fault(where=str(path), found="no golden plan", expected="the current plan", remedy=update)
        elif _text(path) != text:
            line = _first_other_line(_text(path), text)
            yield Fault(where=f"{path}:{line}", found="a different plan", expected="the current plan", remedy=update)
    for path in _of_no_experiment(folder, known):
        yield Fault(where=str(path), found="a golden plan", expected="an experiment of that name", remedy=update)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _of_no_experiment(folder: Path, known: set[str]) -> list[Path]:
    """Return the plans in `folder` of experiments that no longer exist."""
    texts = [path for path in sorted(folder.glob("*.txt")) if path.stem not in known]
    return [path for path in texts if _LAST_LINE.search(path.read_bytes())]


def _first_other_line(old: str, new: str) -> int:
    lines = old.splitlines(), new.splitlines()
    return next((number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now), len(lines[0]))


def update(folder: Path, plans: Mapping[str, Plan], known: set[str]) -> list[str]:
    """Write the plans that differ, delete those without an experiment, and return their file names."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for path in _of_no_experiment(folder, known):
        path.unlink()
        changed.append(path.name)
    for name, text in texts(plans).items():
        path = folder / name
        if not path.is_file() or _text(path) != text:
            path.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed
