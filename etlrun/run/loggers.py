"""Log of a run, from the events of its record: whatever happens to it, the run goes on."""

from __future__ import annotations

import importlib.util
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from textwrap import shorten
from typing import Any, Protocol

from etlrun.planning.plan import Plan
from etlrun.planning.spec import leaves
from etlrun.record.config import read_config
from etlrun.record.outcome import outcome
from etlrun.record.record import LOG, Record
from etlrun.record.summary import COMPLETED, SUMMARY, Epoch, Findings
from etlrun.stages.measure import Logger
from etlrun.system.errors import WorldError, headline
from etlrun.system.files import write_atomically
from etlrun.system.terminal import say_note
from etlrun.system.values import frozen

_LOOK_S = 0.1


@frozen
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


class LogWriter(Protocol):
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

    def __init__(self, writer: LogWriter) -> None:
        """Start the thread."""
        self._writer = writer
        self._work: queue.Queue[Callable[[LogWriter], object] | None] = queue.Queue()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._write, name="etlrun-log", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[LogWriter], object]) -> None:
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


_OF_COURSE = ("parameters", "examples", "examples_per_s", "wall_s", "best_epoch")
"""Figures of the whole run beside its findings."""
_LONGEST = 200
"""Characters of a reason."""
_NOT_FIGURES = ("epoch", "ended_s")
PATIENCE_S, IMPATIENCE_S = 30.0, 5.0
"""Longest wait for a log at the end of a run, and at that of one that was interrupted or has failed."""


def require(stage: Logger) -> None:
    """Raise `WorldError` if the package of a logger is not installed."""
    if stage.package and importlib.util.find_spec(stage.package) is None:
        raise WorldError(
            f"{stage.block}.name",
            f"no package {stage.package}",
            f"the package that writes the log, since logger={stage.name}",
            f"pip install 'etlrun[{stage.extra}]', or set logger=none",
        )


class Log:
    """Listener of a run's record. An error is noted once, with the remedy, and ends the log alone."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._stage: Logger | None = None
        self._writer: Behind | None = None

    def open(self, planned: Plan, previous: Path | None) -> None:
        """Begin the log, or continue that of the run in the folder `previous`; WorldError without its package."""
        self._stage = stage = planned.spec.logger
        require(stage)
        if not stage.writer:
            return
        self._writer = Behind(resolve_name(stage.writer)())
        self._record.listeners.append(self)
        folder, summary = self._record.folder.absolute(), self._record.summary
        options = asdict(stage)  # type: ignore[call-overload] # each logger is a dataclass
        before = _logged(previous, stage.name, options) if previous is not None else {}
        opening = Opening(
            logger=stage.name,
            options=options,
            folder=str(folder),
            name="/".join(folder.parts[-2:]),
            group=None if summary.in_flight is None else folder.parent.name,
            parameters=dict(leaves("", read_config(self._record.folder))),
            texts={"overrides": " ".join(summary.overrides), "fingerprint": planned.fingerprint},
            began_s=summary.created_s or 0.0,
            continues=before.get("run"),
            done=before.get("epochs", 0),
        )
        self._known: dict[str, Any] = {"logger": stage.name, "options": dict(opening.options), "epochs": opening.done}
        self._do(lambda writer: self._keep(run=writer.open(opening)))

    def __call__(self, kind: str) -> None:
        """Log what has happened to the record."""
        summary = self._record.summary
        if kind == "dataset":
            name, digests = summary.dataset.name, summary.dataset.digest
            texts = {"dataset/name": name, **{f"dataset/{of}": digest or "" for of, digest in digests.items()}}
            self._do(lambda writer: writer.texts(texts))
        elif kind == "epoch" and (last := summary.epochs[-1]).epoch > self._known["epochs"]:
            written = last.written
            self._do(
                partial(
                    self._epoch, last, dict(_numbers({**written.pop("metrics", {}), **written}, without=_NOT_FIGURES))
                )
            )
        elif kind == "ended":
            verdict = asdict(summary.verdict) if summary.verdict is not None else {}
            texts = {f"verdict/{key}": value for key, value in verdict.items() if isinstance(value, str)}
            figures = dict(_figures_at_end(self._record))
            patience_s = PATIENCE_S if summary.status == COMPLETED else IMPATIENCE_S
            with suppress(KeyboardInterrupt):  # which ends the wait, since the run is over
                self._do(lambda writer: writer.end(summary.status, texts, figures), patience_s)
            self._writer = None

    def _epoch(self, last: Epoch, figures: Mapping[str, float], writer: LogWriter) -> None:
        """Log an epoch that the log of a resumed run doesn't have yet, in the thread of the log."""
        writer.epoch(last.epoch, last.ended_s, figures)
        self._keep(epochs=last.epoch)

    def _keep(self, **known: Any) -> None:
        """Write what a run that resumes this one has to know to continue the log; in the thread of the log."""
        self._known |= known
        if self._known.get("run"):
            write_atomically(self._record.folder / LOG, json.dumps(self._known) + "\n")

    def _do(self, work: Callable[[LogWriter], object], patience_s: float | None = None) -> None:
        """Have the thread of the log do some work; with `patience_s` wait until all of it is done."""
        if self._writer is None:
            return
        try:
            self._writer.do(work)
            if patience_s is not None:
                self._writer.finish(patience_s)
        except KeyboardInterrupt:
            self._fail("it was interrupted")
            raise
        except Exception as error:  # noqa: BLE001 - of any package, server or disk
            self._fail(headline(error))

    def _fail(self, why: str) -> None:
        stage, self._writer = self._stage, None
        if stage is not None:
            short = shorten(why, _LONGEST, placeholder="…").rstrip(".")
            note = (
                f"logger={stage.name} has stopped, and its log is incomplete: {short}. To repair it: {stage.remedy}. "
                f"{SUMMARY} in the run's folder has all figures."
            )
            say_note(note)
            with suppress(OSError):  # the run itself reports that its folder can't be written to
                self._record.remark(note)


def _logged(folder: Path, logger: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log of a run that is resumed; empty if there is none, or if it is elsewhere."""
    try:
        known: dict[str, Any] = json.loads((folder / LOG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if (known.get("logger"), known.get("options")) == (logger, dict(options)) else {}


def _figures_at_end(record: Record) -> Iterator[tuple[str, float]]:
    """Yield the findings of the whole run, those of its verdict and resources, and measures of the kept epoch."""
    written = record.summary.written
    for group in ("verdict", "resources"):
        yield from ((f"run/{group}/{key}", value) for key, value in _numbers(written.get(group) or {}))
    of_run = {key: value for key, value in written.items() if key in Findings.model_fields or key in _OF_COURSE}
    yield from ((f"run/{key}", value) for key, value in _numbers({**of_run, **outcome(record.summary).measures}))


def _numbers(values: Mapping[str, Any], without: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, int | float) and key not in without:
            yield key, value
        elif value in ("NaN", "Infinity", "-Infinity"):
            yield key, float(value)
