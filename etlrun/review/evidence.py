"""What is kept of an experiment and may be out of date: evidence of a search for the fastest config, and its plan."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
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
    return {
        "cores": machine.cores(),
        "memory_gb": round(machine.memory_bytes() / 1e9),
        "gpus": [gpu.name for gpu in machine.driver_gpus()],
    }


def stale(text: str, name: str, experiment: str, files: Composer) -> tuple[Evidence | None, list[Fault]]:
    """Return the evidence in the comments of the file `name`, and its faults: it can't be read, or is out of date."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.startswith(_MARK))
    number, line = next(lines, (0, ""))
    if not line:
        return None, []
    evidence, found = None, list[tuple[str, str]]()
    try:
        values: dict[str, Any] = json.loads(line.removeprefix(_MARK))
        words = [str(word) for word in values["overrides"]]
        evidence = Evidence(**values | {"overrides": words, "changes": dict(values["changes"])})
        config = files.values([*words, quoted(f"experiment={experiment}")])
        now = plan(parse(config, STAGES)).fingerprint
    except (ValueError, TypeError, KeyError) as error:
        what = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        found.append((what, "the comment as `etlrun tune` wrote it"))
    except ConfigError as error:
        found.append((str(error.faults[0]), "a config that can be composed with the overrides of the evidence"))
    else:
        if now != evidence.fingerprint:
            found.append((f"evidence for the plan {evidence.fingerprint}", f"that of the plan as it is, {now}"))
        given = dict(leaves("", config))
        others = {key: value for key, value in evidence.changes.items() if given.get(key) != value}
        found += [
            (f"evidence for {key}={bare(value)}", f"that of the value as it is, {bare(given.get(key))}")
            for key, value in others.items()
        ]
    again = "search again with `etlrun tune`, or remove the comment"
    return evidence, [of_file(name, what, expected, again, line=number, key="evidence") for what, expected in found]


def outdated(folder: Path, plans: Mapping[str, Plan], known: Collection[str]) -> dict[Path, str | None]:
    """Return the golden plans in a folder that are missing or differ, each with the text that it should have.

    None is that of an experiment that no longer exists: it is not `known`, as invalid ones are.
    """
    texts = {folder / f"{name}.txt": render.text(plan) for name, plan in plans.items()}
    found: dict[Path, str | None] = {path: text for path, text in texts.items() if _text(path) != text}
    lost = [path for path in sorted(folder.glob("*.txt")) if path.stem not in known]
    return found | {path: None for path in lost if _LAST_LINE.search(path.read_bytes())}


def faults_of(plans: Mapping[Path, str | None]) -> Iterator[Fault]:
    """Yield a fault for each outdated golden plan."""
    update = "repeat the command with --update, and review the diff"
    for path, text in plans.items():
        kept = _text(path)
        if text is None:
            yield of_file(str(path), "a golden plan", "an experiment of that name", update)
        elif kept is None:
            yield of_file(str(path), "no golden plan", "the current plan", update)
        else:
            lines = kept.splitlines(), text.splitlines()
            differ = (number for number, (was, now) in enumerate(zip(*lines, strict=False), 1) if was != now)
            line = next(differ, max(1, len(lines[0])))
            yield of_file(str(path), "a different plan", "the current plan", update, line=line)


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
