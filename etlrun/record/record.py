"""Folder of a run, written as the run proceeds: a kill at any moment loses nothing that was reached.

config.yaml   plan.txt   plan.json   columns.json   data.json   events.jsonl   summary.json   report.md   report.html
model.keras   checkpoints/   baseline.json   evaluations/   exports/   log.json   traceback.txt   lock
"""

import errno
import fcntl
import json
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import yaml

from etlrun.record.config import CONFIG
from etlrun.record.part import finite
from etlrun.record.summary import EPOCH, EVENTS, RUNNING, SUMMARY, Epoch, Summary, rate_of, read_summary
from etlrun.system.errors import WorldError
from etlrun.system.files import LONGEST_S, alone, elsewhere, write_atomically
from etlrun.system.values import Composed

REPORT, PAGE = "report.md", "report.html"
LOG, RESULTS = "log.json", "results.json"
MODEL, EXPORTS, EVALUATIONS = "model.keras", "exports", "evaluations"
FOLDER_KEYS = "hydra.run.dir or hydra.sweep.dir"
BLOCK_BYTES = 512
"""Unit of `st_blocks`."""
LOCK = "lock"
KILLED = "killed"
"""State of a run that no process is at work in, though its summary says `running`."""
_STARTING_S = 600.0
"""Time that the process of a new run may take to lock its folder."""


class UnwritableError(WorldError):
    """A folder of runs can't be written to; the cause is the system's error."""


def unwritable(folder: Path, error: OSError, key: str = FOLDER_KEYS) -> UnwritableError:
    """Return the error for a folder of runs, the value of `key`, that can't be written to."""
    return UnwritableError(folder, str(error), "a folder that can be written to", elsewhere(key, error))


class Record:
    """Writer of the events and the summary of the run in `folder`.

    Attributes:
        folder: Folder of the run.
        summary: Content of `summary.json`.
        refusal: Last error of the system on writing into the folder; None without one.
        listeners: Called with the kind of each event, after the summary has what belongs to it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = read_summary(folder) or Summary(status=RUNNING, overrides=[])
        self.refusal: OSError | None = None
        self.listeners: list[Callable[[str], None]] = []
        self._steady = (0, 0.0)  # sums of all epochs
        for epoch in self.summary.epochs:
            self._add(epoch)
        self._start = time.perf_counter()
        self._lock = threading.RLock()  # TensorFlow's threads write, too

    @classmethod
    def create(
        cls, folder: Path, config: Composed, overrides: list[str], key: str = FOLDER_KEYS, **details: Any
    ) -> Self:
        """Create the record of a run that has not started: its frozen config and an empty summary.

        `WorldError` if its folder, the value of `key`, already holds a run, or can't be written to.
        """
        if (folder / SUMMARY).exists():
            expected = "a new folder for each run, so that nothing is overwritten"
            raise WorldError(folder, "a run", expected, f"choose another {key}, or remove the folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / CONFIG, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
            record = cls(folder)
            record.update(status=RUNNING, overrides=overrides, created_s=time.time(), **details)
        except OSError as error:
            raise unwritable(folder, error, key) from error
        return record

    def elapsed_s(self) -> float:
        """Return the seconds since this object was created, which is when the run's process began its work."""
        return time.perf_counter() - self._start

    def event(self, kind: str, **details: Any) -> None:
        """Append one line to `events.jsonl`."""
        line = {"event": kind, "elapsed_s": round(self.elapsed_s(), 3), **finite(details)}
        with self._lock, self.writing(), (self.folder / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        for listener in self.listeners if kind != EPOCH else ():
            listener(kind)

    def update(self, **values: Any) -> None:
        """Set values of the summary and write it, with the epochs if the run has ended; until then events have them."""
        with self._lock, self.writing():
            self.summary = self.summary.with_values(**values)
            written = self.summary.without_epochs if self.summary.status == RUNNING else self.summary.written
            write_atomically(self.folder / SUMMARY, json.dumps(written, indent=2) + "\n")

    def update_in_place(self, **values: Any) -> None:
        """Set values of the last written summary and overwrite its file: for a disk without space for another one.

        The epochs are left to the events, and the text has no indentation, so that there is room for more values.
        `OSError` if there is no summary, it can't be written, or the new one does not fit; the file is then unchanged.
        """
        last = read_summary(self.folder) or self.summary
        text = json.dumps(last.with_values(**values).without_epochs).encode() + b"\n"
        with self._lock, (self.folder / SUMMARY).open("r+b", buffering=0) as file:
            if len(text) > BLOCK_BYTES * os.fstat(file.fileno()).st_blocks:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
            file.write(text)
            file.truncate()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Wrap a write into the folder: an error of the system is kept in `refusal`, even if a library swallows it."""
        try:
            yield
        except OSError as error:
            self.refusal = error
            raise

    def remark(self, text: str) -> None:
        """Add a note to the summary, unless it is already there."""
        with self._lock:
            if text not in self.summary.remarks:
                self.update(remarks=[*self.summary.remarks, text])

    def epoch(self, epoch: Epoch) -> None:
        """Add an epoch, and set the totals, without the first step of a process, which compiles."""
        epoch = epoch if epoch.ended_s else epoch.with_values(ended_s=time.time())
        self.event(EPOCH, **epoch.written)
        self._add(epoch)
        self.update(
            epochs=[*self.summary.epochs, epoch],
            examples=self.summary.examples + epoch.examples,
            examples_per_s=rate_of(*self._steady),
            wall_s=self.elapsed_s(),
        )
        for listener in self.listeners:
            listener(EPOCH)

    def _add(self, epoch: Epoch) -> None:
        examples, seconds = epoch.steady
        self._steady = (self._steady[0] + examples, self._steady[1] + seconds)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of the sweep in `folder` during the block; `WorldError` if another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    with _acquired(folder, 0, "a sweep that another process is running", "one process per sweep"):
        yield


@contextmanager
def nobodys(folder: Path) -> Iterator[None]:
    """Wait for the process of the run in `folder` to end, and lock others out; `WorldError` if it doesn't end."""
    with _acquired(folder, LONGEST_S, "a run that is still running", "a run that has ended"):
        yield


def is_nobodys(folder: Path) -> bool:
    """Return whether no process is at work in a run's folder, which may be read-only."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError), (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: concurrent checks don't exclude each other
    except BlockingIOError:
        return False
    return True


@contextmanager
def _acquired(folder: Path, longest_s: float, found: str, expected: str) -> Iterator[None]:
    waiting = f"waiting up to {longest_s:.0f} s for the run in {folder} to end"
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(folder / LOCK, longest_s=longest_s, waiting=waiting))
        except TimeoutError:
            raise WorldError(folder, found, expected, "wait for it to end, or stop it") from None
        except OSError as error:
            raise unwritable(folder, error) from error
        yield


def state_of(folder: Path, summary: Summary) -> str:
    """Return the status of the run in `folder`, or `killed`; one whose process has not locked it yet is running."""
    if summary.status != RUNNING or not is_nobodys(folder):
        return summary.status
    is_new = time.time() - (summary.created_s or 0.0) < _STARTING_S and not (folder / LOCK).exists()
    return RUNNING if is_new else KILLED


EXPERIMENT = "experiment="


def experiments_of(overrides: Sequence[str]) -> list[str]:
    """Return the experiments that overrides choose: those of the last choice, which may be a list."""
    chosen = [word.removeprefix(EXPERIMENT) for word in overrides if word.startswith(EXPERIMENT)]
    return [name.strip() for of in chosen[-1:] for name in of.strip("[]").split(",")]


def overlay(folder: Path) -> str:
    """Return the overlay of the run in `folder`; `WorldError` if there is no run, or AUTOTUNE has set nothing."""
    summary = read_summary(folder)
    if not summary or not summary.autotune:
        found = "no value set by AUTOTUNE" if summary else "no run"
        keys = "extract.num_parallel_calls, transform.num_parallel_calls, load.num_parallel_calls or load.prefetch"
        expected, remedy = f"a completed run with `autotune` in {keys}", "pass the folder of such a run"
        raise WorldError(folder, found, expected, remedy)
    nested: dict[str, dict[str, int]] = {}
    for key, value in summary.autotune.items():
        group, name = key.split(".")
        nested.setdefault(group, {})[name] = value
    base, replaced = experiments_of(summary.overrides), (*summary.autotune, EXPERIMENT[:-1])
    words = [word for word in summary.overrides if word.partition("=")[0].lstrip("+") not in replaced]
    lines = (
        "# @package _global_",
        f"# Values chosen by AUTOTUNE in {folder}, on {summary.host.cores or '?'} cores.",
        f"# Plan of the run: {summary.plan_fingerprint}.",
        f"# As conf/experiment/frozen.yaml: {shlex.join(['etlrun', *words, f'{EXPERIMENT}frozen'])}",
        yaml.safe_dump(({"defaults": [*base, "_self_"]} if base else {}) | nested, sort_keys=False),
    )
    return "\n".join(lines)
