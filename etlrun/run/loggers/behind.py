"""Writing of a log behind a run: in a thread, so that a server that hangs holds up nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from etlrun.record.summary import COMPLETED
from etlrun.run.loggers.writer import LoggerError, Opening, Writer

PATIENCE_S, IMPATIENCE_S = 30.0, 5.0
"""Longest wait for a log at the end of a run, and at that of one that was interrupted or has failed."""
_LOOK_S = 0.1


class Behind:
    """A writer whose methods return at once, apart from `end`, which waits for no longer than its patience.

    An error of the writer is raised by the next method.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._work: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._write, name="etlrun-log", daemon=True)

    def open(self, opening: Opening, opened: Callable[[str], object]) -> None:
        """Begin the log; `opened` is called with its identifier, in the thread."""
        self._thread.start()
        self._do(lambda: opened(self._writer.open(opening)))

    def texts(self, texts: Mapping[str, str]) -> None:
        """Add texts that identify the run."""
        self._do(lambda: self._writer.texts(texts))

    def epoch(self, number: int, at_s: float, figures: Mapping[str, float], written: Callable[[], object]) -> None:
        """Add the figures of an epoch; `written` is called when they are written, in the thread."""

        def write() -> None:
            self._writer.epoch(number, at_s, figures)
            written()

        self._do(write)

    def end(self, status: str, texts: Mapping[str, str], figures: Mapping[str, float]) -> None:
        """Add what is known at the end of the run, and wait until all is written."""
        self._do(lambda: self._writer.end(status, texts, figures))
        self._work.put(None)
        patience_s = PATIENCE_S if status == COMPLETED else IMPATIENCE_S
        until_s = time.monotonic() + patience_s
        while self._thread.is_alive() and not self._errors and time.monotonic() < until_s:
            self._thread.join(_LOOK_S)
        self._raise_if_failed()
        if self._thread.is_alive():
            raise LoggerError(f"no answer within {patience_s:.0f} s")

    def _do(self, work: Callable[[], object]) -> None:
        self._raise_if_failed()
        self._work.put(work)

    def _raise_if_failed(self) -> None:
        if self._errors:
            raise self._errors[0]

    def _write(self) -> None:
        with suppress(Exception):
            while (work := self._work.get()) is not None:
                try:
                    work()
                except Exception as error:
                    self._errors.append(error)
                    raise
