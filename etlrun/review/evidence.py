"""Evidence of a search for the fastest config, which an experiment holds in a comment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from etlrun.system import machine

MARK = "# evidence: "
"""Beginning of the comment."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What an experiment was tuned for.

    Attributes:
        fingerprint: Fingerprint of its plan.
        overrides: Overrides that it was tuned with.
        cores: CPU cores of the machine.
        memory_gb: Memory of the machine.
        gpus: Names of its GPUs.
    """

    fingerprint: str
    overrides: list[str]
    cores: int
    memory_gb: int
    gpus: list[str]

    @property
    def machine(self) -> str:
        """The machine in words."""
        gpus = f", {', '.join(self.gpus)}" if self.gpus else ""
        return f"{self.cores} cores, {self.memory_gb} GB{gpus}"


def here() -> dict[str, Any]:
    """Return the values of this machine."""
    gpus = [gpu.name for gpu in machine.driver_gpus()]
    return {"cores": machine.cores(), "memory_gb": round(machine.memory_bytes() / 1e9), "gpus": gpus}


def evidence_in(text: str) -> Evidence | None:
    """Return the evidence in the comments of a file; None if it has none that can be read."""
    for line in text.splitlines():
        if line.startswith(MARK):
            try:
                return Evidence(**json.loads(line.removeprefix(MARK)))
            except (ValueError, TypeError):
                return None
    return None
