"""Golden plans: the plan of every experiment as text beside the code, so that a change of one is reviewed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from etlrun.errors import Fault
from etlrun.plan import render
from etlrun.plan.plan import Plan

_LAST_LINE = re.compile(rb"\nfingerprint [0-9a-f]{16}\n\Z")


def texts(plans: Mapping[str, Plan]) -> dict[str, str]:
    """The text of each plan, by the name of its file."""
    return {f"{name}.txt": render.text(plan) for name, plan in plans.items()}


def out_of_date(folder: Path, plans: Mapping[str, Plan], known: set[str]) -> Iterator[Fault]:
    """A fault for each file in `folder` that is not the plan of today; `known` are experiments, wrong ones included."""
    update = "look at what `etlrun check --update` makes of it"
    for name, text in texts(plans).items():
        path = folder / name
        if not path.is_file():
            yield Fault(where=str(path), found="no golden plan", expected="the plan of today", remedy=update)
        elif _text(path) != text:
            line = _first_other_line(_text(path), text)
            yield Fault(where=f"{path}:{line}", found="another plan", expected="the plan of today", remedy=update)
    for path in _of_no_experiment(folder, known):
        yield Fault(where=str(path), found="a golden plan", expected="an experiment of its name", remedy=update)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _of_no_experiment(folder: Path, known: set[str]) -> list[Path]:
    """The plans in `folder` of experiments that are gone; other files are nobody's here."""
    texts = [path for path in sorted(folder.glob("*.txt")) if path.stem not in known]
    return [path for path in texts if _LAST_LINE.search(path.read_bytes())]


def _first_other_line(old: str, new: str) -> int:
    lines = old.splitlines(), new.splitlines()
    return next((number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now), len(lines[0]))


def update(folder: Path, plans: Mapping[str, Plan], known: set[str]) -> list[str]:
    """Write those that differ and remove those of experiments that are gone; their names."""
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
