"""What the engine of a sweep needs of its jobs, wherever they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Job(Protocol):
    """A job that has been started.

    Attributes:
        folder: Folder of its run.
    """

    folder: Path

    @property
    def ran_s(self) -> float:
        """Seconds that it has run; 0 while it waits for a machine."""

    def terminate(self) -> None:
        """Ask the job to end."""

    def kill(self) -> None:
        """End the job."""

    def settle(self) -> None:
        """Complete the summary of the job, which has ended."""


class Jobs(Protocol):
    """Place where the jobs of a sweep run.

    Attributes:
        at_a_time: Number of jobs that may be started before one has ended.
        note: Sentence on how the jobs share what is there; empty for nothing to say.
    """

    at_a_time: int
    note: str

    def start(self, folder: Path) -> Job:
        """Start the job frozen in `folder`."""

    def going(self, folder: Path) -> Job | None:
        """Return the job that an earlier session of the sweep started in `folder` and that is not lost; else None."""

    def ended(self, wait_s: float) -> Sequence[Job]:
        """Return the jobs that have ended since the last call, after a wait of at most `wait_s` for the first one."""
