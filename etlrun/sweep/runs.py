"""Runs of a sweep: which are still to run, how each starts and ends, what is shown of them, and what can't win."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from etlrun.cache.store import CacheStore
from etlrun.record.outcome import UNCACHED, Outcome, outcome_of
from etlrun.record.record import Record, events
from etlrun.record.summary import COMPLETED, FAILED, MEASURES, PRUNED
from etlrun.sweep.ledger import Ledger, RunKey, own_overrides
from etlrun.system.errors import WorldError, printable
from etlrun.system.progress import is_repainted
from etlrun.system.terminal import is_quiet

FOLDER = "hparams"
METRICS = ("examples_per_s", "au", "peak_rss_bytes", "val_accuracy")


def write(run: Path, config: int, own: Sequence[str], outcome: Outcome | None) -> None:
    """Write the event file of a completed run of a config with these overrides, unless it exists.

    Nothing is written for a run without the cache of its config, or if TensorBoard is not installed. TensorBoard's own
    writer of event files would import TensorFlow.
    """
    folder = run / FOLDER
    if outcome is None or outcome.status != COMPLETED or outcome.state == UNCACHED or outcome.only_fills:
        return
    if folder.exists() or not _is_installed():
        return
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    temporary = folder.with_name(f".{FOLDER}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    values = {key: _figure(value) for key, _, value in (override.partition("=") for override in own)}
    swept = hparams_pb(values, trial_id=f"config {config}", start_time_secs=outcome.created_s)
    figures = {metric: getattr(outcome, metric) for metric in METRICS}
    figures |= {name: of for name, of in outcome.measures.items() if name.startswith("val_") and name not in MEASURES}
    metrics = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items() if value is not None]
    at = outcome.created_s
    with (temporary / f"events.out.tfevents.{round(at)}.etlrun").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
        for summary in (Summary.FromString(swept.SerializeToString()), Summary(value=metrics)):
            writer.write(Event(wall_time=at, step=0, summary=summary).SerializeToString())
    temporary.replace(folder)


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def _figure(value: str) -> str | float:
    """Convert a number, which then gets an axis; one string makes TensorBoard treat all values of a key as strings."""
    try:
        return float(value)
    except ValueError:
        return value


_READ_EVERY_S, _END_BYTES = 1.0, 16_384


def say_of_sweep(text: str) -> None:
    """Print a line about a sweep at once, unless notes and errors alone are printed."""
    if not is_quiet():
        print(printable(text), flush=True)


class Progress:
    """Progress display of a sweep, used as a context manager.

    Attributes:
        own: Overrides of each config that not all configs share.
    """

    def __init__(self, ledger: Ledger, at_a_time: int) -> None:
        self.ledger, self._at_a_time = ledger, at_a_time
        self.total = len(ledger.runs)
        self.own = own_overrides([config.overrides for config in ledger.configs])
        self._console = Console(soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._is_live = is_repainted(sys.stdout)
        self._epochs: dict[RunKey, tuple[float, str]] = {}
        self._walls_s: list[float] = []
        self._counts: dict[str, int] = {}
        self._best: tuple[float, RunKey] | None = None

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def note(self, run: RunKey, outcome: Outcome) -> None:
        """Count a run that has ended, in this session or before."""
        self._counts[outcome.status] = self._counts.get(outcome.status, 0) + 1
        if outcome.status == COMPLETED and not run.fills:
            self._walls_s.append(outcome.wall_s)
            rate = outcome.examples_per_s if outcome.state != UNCACHED and not outcome.diverged else None
            if rate is not None and (self._best is None or rate > self._best[0]):
                self._best = rate, run

    def show(self, running: Sequence[RunKey]) -> None:
        """Update the live line."""
        if self._is_live:
            self._live.update(Text(self.line(running), no_wrap=True, overflow="ellipsis"))

    def line(self, running: Sequence[RunKey]) -> str:
        """Return the live line: jobs done, failed and running, the time left, and the best config so far."""
        failed = self._counts.get(FAILED, 0)
        now = ", ".join(f"{run.name}: {self._name(run)}{self._epoch(run)}" for run in running)
        left_s = self.left_s()
        parts = [f"sweep {self._done}/{self.total}"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"{timedelta(seconds=round(left_s))} left"] if left_s is not None else []
        parts += [f"running {now}"] if now else []
        parts += [f"best {self._best[0]:.1f} examples/s ({self._name(self._best[1])})"] if self._best else []
        return " | ".join(parts)

    def left_s(self) -> float | None:
        """Return the expected seconds for the remaining jobs, from the median so far; None before the first ended."""
        left = self.total - self._done
        return statistics.median(self._walls_s) * left / min(self._at_a_time, max(left, 1)) if self._walls_s else None

    def ended(self, run: RunKey, outcome: Outcome) -> None:
        """Print a line for a job that has ended."""
        without = " without its cache" if outcome.state == UNCACHED else ""
        parts = [outcome.status]
        parts += [f"{outcome.examples_per_s:.1f} examples/s{without}"] if outcome.examples_per_s else []
        if run.fills and outcome.status == COMPLETED:
            was_there = "without its cache" if outcome.state == UNCACHED else "its cache was there"
            parts += [f"cache filled in {outcome.fill_s:.1f} s" if outcome.fill_s else was_there]
        parts += [f"{outcome.wall_s:.1f} s"] if outcome.wall_s else []  # unknown of a run that was killed
        reason = f": {' '.join(outcome.error.split())}" if outcome.error else ""
        text = f"{self._done}/{self.total} {run.name} {self._name(run)}: {', '.join(parts)}{reason}"
        if is_quiet() and reason:
            print(text, file=sys.stderr)
        self.say(text)

    def say(self, text: str) -> None:
        """Print a permanent line; a closed pipe (`| head`) does not end the sweep."""
        if is_quiet():
            return
        with contextlib.suppress(SystemExit):  # rich raises it once for a closed pipe
            self._console.print(text, markup=False, highlight=False)

    def _epoch(self, run: RunKey) -> str:
        """Return which epoch a running job is in, read once a second from the end of its events."""
        now_s = time.monotonic()
        read_s, text = self._epochs.get(run, (-_READ_EVERY_S, ""))
        if now_s - read_s >= _READ_EVERY_S:
            last = events(self.ledger.folder_of(run), last_bytes=_END_BYTES)
            begun = [event["epoch"] for event in last if event["event"] == "epoch_began"]
            text = f", epoch {begun[-1]}" if begun else text
            self._epochs[run] = now_s, text
        return text

    @property
    def _done(self) -> int:
        return sum(self._counts.values())

    def _name(self, run: RunKey) -> str:
        return " ".join(self.own[run.config]) or "the only config"


MARGIN = 1.05
"""Ratio by which a config must be able to win to be worth a run."""


@dataclass(frozen=True)
class _Limit:
    """Throughput with an ideal input pipeline, and the run that it was measured in."""

    examples_per_s: float
    run: RunKey


class Pruning:
    """Upper bounds and the best config so far, updated with each run that ends.

    The ceiling of a run holds for any pipeline that feeds the same model and trainer. Configs with equal fingerprints
    and equal blocks for these differ only in the speed of their pipelines: the run of one bounds all others. With
    cached features only the head of the model is trained, which counts as another model.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._limits: dict[str, _Limit] = {}
        self._best: tuple[float, RunKey] | None = None
        self._seen: set[int] = set()
        self._fills: dict[str, Outcome] = {}

    def note(self, run: RunKey, outcome: Outcome) -> None:
        """Update bounds and best config with a run that has ended."""
        if run.fills:
            self._fills[run.fills] = outcome
            return
        rate = outcome.with_fill(outcome.fill_by(self._fills.get(self.ledger.caches_of(run))))
        if outcome.status != PRUNED:
            self._seen.add(run.config)
        if outcome.status != COMPLETED or outcome.state == UNCACHED or outcome.diverged or rate is None:
            return
        if self._best is None or rate > self._best[0]:
            self._best = rate, run
        if outcome.ceiling_examples_per_s is not None:
            limit = _Limit(outcome.ceiling_examples_per_s, run)
            training = self._training(run)
            known = self._limits.get(training)
            self._limits[training] = limit if known is None or limit.examples_per_s > known.examples_per_s else known

    def _training(self, run: RunKey) -> str:
        """Return a key that is equal for configs that differ only in the speed of their pipelines."""
        config = self.ledger.configs[run.config]
        values = config.values
        on_features = values["cache"]["name"] != "none" and values["cache"]["at"] == "features"
        around = [values[group] for group in ("model", "trainer", "profile", "measure")]
        return json.dumps([config.fingerprint, on_features, *around])

    def reason(self, run: RunKey) -> str | None:
        """Return why `run` can't win; None if it can, if its config has run before, or for the baseline."""
        limit = self._limits.get(self._training(run))
        if limit is None or self._best is None or run.config == 0 or run.config in self._seen:
            return None
        best, best_run = self._best
        if limit.examples_per_s > best * MARGIN:
            return None
        return (
            f"can't win: with an ideal input pipeline run {limit.run.name} reaches at most {limit.examples_per_s:.1f} "
            f"examples/s; run {best_run.name} has {best:.1f}"
        )


Outcomes = Mapping[RunKey, Outcome | None]
"""Outcomes of all runs of a sweep in execution order; None for a run that has not started."""


def unfinished(ledger: Ledger, outcomes: Outcomes) -> list[RunKey]:
    """Return the runs that are not completed, and those that did not read the caches that their config has on disk.

    Pruned runs count as completed while `sweep.prune` is set. A job that has filled caches does so again if they are
    gone and a run is left that reads them.
    """
    final = {COMPLETED, *([PRUNED] if ledger.sweep.prune else [])}
    left = {
        run
        for run, of in outcomes.items()
        if of is None or of.status not in final or as_compared(ledger, run, of).state == UNCACHED
    }
    wanted = {ledger.caches_of(run) for run in left}
    left |= {
        run
        for run, of in outcomes.items()
        if of
        and run.fills in wanted
        and run.fills
        and (not CacheStore(ledger.configs[run.config].values["cache"]["dir"]).has(of.cache))
    }
    return [run for run in outcomes if run in left]


def as_compared(ledger: Ledger, run: RunKey, of: Outcome) -> Outcome:
    """Return an outcome for comparisons: a run that has filled a cache which it was to read ran without it."""
    is_reader = of.has_filled and not run.fills and ledger.caches_of(run)
    return replace(of, state=UNCACHED) if is_reader else of


class Runs:
    """Runs of a sweep as they start and end.

    Attributes:
        left: Runs that are still to run, in execution order.
    """

    def __init__(self, ledger: Ledger, outcomes: Outcomes, progress: Progress) -> None:
        self.ledger, self._progress, self._lock = ledger, progress, threading.Lock()
        self.left = unfinished(ledger, outcomes)
        self._pruning = Pruning(ledger) if ledger.sweep.prune else None
        self._unfilled: dict[str, str] = {}
        waiting = set(self.left)
        for run, outcome in outcomes.items():
            if outcome is not None and run not in waiting:
                self._note(run, outcome)

    def start(self, run: RunKey) -> Path | None:
        """Return the new folder of a run; None if it has ended there, without its cache or since it can't win."""
        unfilled = self._unfilled.get(self.ledger.caches_of(run)) if not run.fills else None
        reason = self._pruning.reason(run) if self._pruning and not run.fills else None
        folder = self.ledger.start(run)
        if not unfilled and not reason:
            return folder
        Record(folder).update(status=FAILED if unfilled else PRUNED, error=unfilled or reason)
        self.end(run)
        return None

    def end(self, run: RunKey) -> Outcome:
        """Report a run that has ended, and return its outcome; `WorldError` if its job has left none."""
        outcome = outcome_of(self.ledger.folder_of(run))
        if outcome is None:
            raise WorldError(
                str(self.ledger.folder_of(run)),
                "no summary of a job that has ended",
                "the summary that the job wrote",
                f"make sure that nothing else writes there, and resume with: {self.ledger.resume_command}",
            )
        with self._lock:  # a launcher's jobs end in threads
            self._ended(run, outcome)
        return outcome

    def _ended(self, run: RunKey, outcome: Outcome) -> None:
        self._note(run, outcome)
        if run.fills and outcome.status != COMPLETED:
            self._unfilled[run.fills] = f"{run.name}, the job that fills its cache, has not completed: {outcome.error}"
        write(self.ledger.folder_of(run), run.config, self._progress.own[run.config], outcome)
        self._progress.ended(run, outcome)

    def _note(self, run: RunKey, outcome: Outcome) -> None:
        self._progress.note(run, outcome)
        if self._pruning:
            self._pruning.note(run, outcome)
