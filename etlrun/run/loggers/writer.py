"""What each logger does with a run, and the thread that does it, so that a server that hangs holds up nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_LOOK_S = 0.1


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


class Behind:
    """A writer in a thread of its own. An error of its work is raised by the next method, and ends the thread."""

    def __init__(self, writer: Writer) -> None:
        """Start the thread."""
        self._writer = writer
        self._work: queue.Queue[Callable[[Writer], object] | None] = queue.Queue()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._write, name="etlrun-log", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[Writer], object]) -> None:
        """Have the thread call `work` with the writer, after all that it was given before; returns at once."""
        self._raise_if_failed()
        self._work.put(work)

    def finish(self, patience_s: float) -> None:
        """Wait until all is written, for no longer than `patience_s`."""
        self._work.put(None)
        until_s = time.monotonic() + patience_s
        while self._thread.is_alive() and not self._errors and time.monotonic() < until_s:
            self._thread.join(_LOOK_S)
        self._raise_if_failed()
        if self._thread.is_alive():
            raise LoggerError(f"no answer within {patience_s:.0f} s")

    def _raise_if_failed(self) -> None:
        if self._errors:
            raise self._errors[0]

    def _write(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                work(self._writer)
        except Exception as error:  # noqa: BLE001 - raised by the next method
            self._errors.append(error)
