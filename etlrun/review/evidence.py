"""Evidence of a search for the fastest config: a comment of an experiment, which may be out of date."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from etlrun.config.composer import Composer
from etlrun.config.overrides import quoted
from etlrun.planning.planner import plan
from etlrun.planning.spec import bare, leaves, parse
from etlrun.stages import STAGES
from etlrun.system import machine
from etlrun.system.errors import ConfigError, Fault, of_file

MARK = "# evidence: "
"""Beginning of the comment."""
_AGAIN = "search again with `etlrun tune`, or remove the comment"


@dataclass(frozen=True, kw_only=True)
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
        return f"{MARK}{json.dumps(vars(self))}"


def _machine_here() -> dict[str, Any]:
    """Return what evidence says of this machine."""
    return {
        "cores": machine.cores(),
        "memory_gb": round(machine.memory_bytes() / 1e9),
        "gpus": [gpu.name for gpu in machine.driver_gpus()],
    }


def evidence_in(text: str, name: str) -> tuple[int, Evidence] | None:
    """Return the evidence in the comments of the file `name`, and its line; None if it has none.

    Raises:
        ConfigError: There is a comment that can't be read.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(MARK):
            try:
                values: dict[str, Any] = json.loads(line.removeprefix(MARK))
                words = [str(word) for word in values["overrides"]]
                return number, Evidence(**values | {"overrides": words, "changes": dict(values["changes"])})
            except (ValueError, TypeError, KeyError) as error:
                expected = "the comment as `etlrun tune` wrote it"
                found = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
                raise ConfigError([of_file(name, found, expected, _AGAIN, line=number, key="evidence")]) from error
    return None


def out_of_date(evidence: Evidence, experiment: str, place: tuple[str, int], files: Composer) -> Iterator[Fault]:
    """Yield the fault of an experiment whose plan or values are no longer those that were measured.

    `place` is the file and the line of the evidence.
    """

    def stale(found: str, expected: str) -> Fault:
        return of_file(place[0], found, expected, _AGAIN, line=place[1], key="evidence")

    try:
        values = files.values([*evidence.overrides, quoted(f"experiment={experiment}")])
        now = plan(parse(values, STAGES)).fingerprint
    except ConfigError as error:
        yield stale(str(error.faults[0]), "a config that can be composed with the overrides of the evidence")
        return
    if now != evidence.fingerprint:
        yield stale(f"evidence for the plan {evidence.fingerprint}", f"that of the plan as it is, {now}")
    given = dict(leaves("", values))
    for key, value in evidence.changes.items():
        if given.get(key) != value:
            yield stale(f"evidence for {key}={bare(value)}", f"that of the value as it is, {bare(given.get(key))}")
