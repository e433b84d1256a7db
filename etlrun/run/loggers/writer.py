"""What each logger does with a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A run at its start.

    Attributes:
        logger: Name of the logger, as in a config.
        options: Its values in the config.
        folder: Folder of the run.
        name: Name of the run: the last two parts of the folder.
        group: Folder of the sweep; None for a single run.
        parameters: Values of the config by dotted key.
        texts: What identifies the run: its overrides and the fingerprint of its plan.
        began_s: Start of the run, in seconds since 1970.
        continues: Identifier of the log of the resumed run; None to begin a new one.
        done: Epochs that this log already has.
    """

    logger: str
    options: Mapping[str, Any]
    folder: str
    name: str
    group: str | None
    parameters: Mapping[str, Any]
    texts: Mapping[str, str]
    began_s: float
    continues: str | None = None
    done: int = 0


class LoggerError(Exception):
    """The log can't be continued; the message says why."""


class Writer(Protocol):
    """Writes the log of one run. Any exception ends the log, and never the run."""

    def open(self, opening: Opening) -> str:
        """Begin the log, or continue one, and return its identifier; empty if none is needed to continue it."""

    def texts(self, texts: Mapping[str, str]) -> None:
        """Add texts that identify the run."""

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float]) -> None:
        """Add the figures of an epoch (from 1) that ended at `at_s`, in seconds since 1970."""

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Add what is known at the end of the run, whose status is that of its summary, and close the log."""
