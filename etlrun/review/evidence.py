"""What is kept of an experiment and may be out of date: evidence of a search for the fastest config, and its plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from etlrun.config.composer import Composer
from etlrun.config.overrides import quoted
from etlrun.planning import render
from etlrun.planning.plan import Plan
from etlrun.planning.planner import plan
from etlrun.planning.spec import bare, leaves, parse
from etlrun.stages import STAGES
from etlrun.system import machine
from etlrun.system.errors import ConfigError, Fault, of_file
from etlrun.system.values import frozen

_MARK = "# evidence: "
"""Beginning of the comment that holds evidence."""
_LAST_LINE = re.compile(rb"\nfingerprint [0-9a-f]{16}\n\Z")


@frozen
class Evidence:
    """What an experiment was tuned for.

    Attributes:
        fingerprint: Fingerprint of its plan.
        overrides: Overrides that it was tuned with.
        changes: Values that were found, by their keys, which the fingerprint may not cover.
        cores: CPU cores of the machine.
        memory_gb: Memory of the machine.
        gpus: Names of its GPUs.
    """

    fingerprint: str
    overrides: list[str]
    changes: dict[str, Any]
    cores: int
    memory_gb: int
    gpus: list[str]

    @classmethod
    def here(cls, fingerprint: str, overrides: list[str], changes: Mapping[str, Any]) -> Self:
        """Return evidence from this machine."""
        return cls(fingerprint=fingerprint, overrides=overrides, changes=dict(changes), **_machine_here())

    @property
    def is_from_here(self) -> bool:
        """Whether it is from a machine like this one."""
        return all(vars(self)[name] == value for name, value in _machine_here().items())

    @property
    def machine(self) -> str:
        """The machine in words."""
        return ", ".join([f"{self.cores} cores", f"{self.memory_gb} GB", *self.gpus])

    @property
    def comment(self) -> str:
        """The line of a config file that holds it."""
        return f"{_MARK}{json.dumps(vars(self))}"


def _machine_here() -> dict[str, Any]:
    """Return what evidence says of this machine."""
    return {
        "cores": machine.cores(),
        "memory_gb": round(machine.memory_bytes() / 1e9),
        "gpus": [gpu.name for gpu in machine.driver_gpus()],
    }


def stale(text: str, name: str, experiment: str, files: Composer) -> tuple[Evidence | None, list[Fault]]:
    """Return the evidence in the comments of the file `name`, and its faults: it can't be read, or is out of date."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.startswith(_MARK))
    number, line = next(lines, (0, ""))
    faults: list[Fault] = []

    def add(found: str, expected: str) -> None:
        again = "search again with `etlrun tune`, or remove the comment"
        faults.append(of_file(name, found, expected, again, line=number, key="evidence"))

    if not line:
        return None, faults
    try:
        values: dict[str, Any] = json.loads(line.removeprefix(_MARK))
        words = [str(word) for word in values["overrides"]]
        evidence = Evidence(**values | {"overrides": words, "changes": dict(values["changes"])})
    except (ValueError, TypeError, KeyError) as error:
        found = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        add(found, "the comment as `etlrun tune` wrote it")
        return None, faults
    try:
        config = files.values([*evidence.overrides, quoted(f"experiment={experiment}")])
        now = plan(parse(config, STAGES)).fingerprint
    except ConfigError as error:
        add(str(error.faults[0]), "a config that can be composed with the overrides of the evidence")
        return evidence, faults
    if now != evidence.fingerprint:
        add(f"evidence for the plan {evidence.fingerprint}", f"that of the plan as it is, {now}")
    given = dict(leaves("", config))
    for key, value in evidence.changes.items():
        if given.get(key) != value:
            add(f"evidence for {key}={bare(value)}", f"that of the value as it is, {bare(given.get(key))}")
    return evidence, faults


class GoldenPlans:
    """The plans of experiments as text files in a folder, so that changes are reviewed.

    Attributes:
        others: The files that are missing or differ, with the text that they should have.
        lost: Plans of experiments that no longer exist; those of invalid ones do.
    """

    def __init__(self, folder: Path, plans: Mapping[str, Plan], known: set[str]) -> None:
        self._folder = folder
        texts = {folder / f"{name}.txt": render.text(plan) for name, plan in plans.items()}
        self.others = {path: text for path, text in texts.items() if _text(path) != text}
        found = [path for path in sorted(folder.glob("*.txt")) if path.stem not in known]
        self.lost = [path for path in found if _LAST_LINE.search(path.read_bytes())]

    def faults(self) -> Iterator[Fault]:
        """Yield a fault for each outdated file."""
        update = "repeat the command with --update, and review the diff"
        for path, text in self.others.items():
            found, line = "no golden plan", None
            if (kept := _text(path)) is not None:
                lines = kept.splitlines(), text.splitlines()
                differ = (number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now)
                found, line = "a different plan", next(differ, max(1, len(lines[0])))
            yield of_file(str(path), found, "the current plan", update, line=line)
        for path in self.lost:
            yield of_file(str(path), "a golden plan", "an experiment of that name", update)

    def update(self) -> list[str]:
        """Write the plans that differ, delete those without an experiment, and return their file names."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self.lost:
            path.unlink()
        for path, text in self.others.items():
            path.write_text(text, encoding="utf-8")
        return [path.name for path in (*self.lost, *self.others)]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
