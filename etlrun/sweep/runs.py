"""Runs of a sweep: which are still to run, how each starts and ends, what is shown of them, and what can't win."""

import importlib.util
import json
import math
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from etlrun.cache.store import CacheStore
from etlrun.record.outcome import UNCACHED, Outcome, outcome_of
from etlrun.record.record import Record, events
from etlrun.record.summary import COMPLETED, FAILED, MEASURES, PRUNED
from etlrun.sweep.ledger import Ledger, RunKey, own_overrides
from etlrun.system.errors import WorldError, printable
from etlrun.system.files import replacing
from etlrun.system.terminal import Task, is_quiet, is_repainted, left

METRICS = ("examples_per_s", "au", "peak_rss_bytes", "val_accuracy")


def write(run: Path, config: int, own: Sequence[str], outcome: Outcome | None) -> None:
    """Write the event file of a completed run of a config with these overrides, unless it exists.

    Nothing is written for a run without the cache of its config, or if TensorBoard is not installed. TensorBoard's own
    writer of event files would import TensorFlow.
    """
    if not outcome or outcome.status != COMPLETED or outcome.state == UNCACHED or outcome.only_fills:
        return
    at = outcome.created_s
    path = run / "hparams" / f"events.out.tfevents.{round(at)}.etlrun"
    if path.exists() or importlib.util.find_spec("tensorboard") is None:
        return
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    path.parent.mkdir(exist_ok=True)
    values = {key: _figure(value) for key, _, value in (override.partition("=") for override in own)}
    swept = hparams_pb(values, trial_id=f"config {config}", start_time_secs=at)
    figures = {metric: getattr(outcome, metric) for metric in METRICS}
    figures |= {name: of for name, of in outcome.measures.items() if name.startswith("val_") and name not in MEASURES}
    metrics = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items() if value is not None]
    summaries = Summary.FromString(swept.SerializeToString()), Summary(value=metrics)
    with replacing(path) as temporary, temporary.open("wb") as file:
        writer = RecordWriter(file)
        for event in (Event(file_version="brain.Event:2"), *(Event(step=0, summary=of) for of in summaries)):
            event.wall_time = at
            writer.write(event.SerializeToString())


def _figure(value: str) -> str | float:
    """Convert a number, which then gets an axis; one string makes TensorBoard treat all values of a key as strings."""
    try:
        return float(value)
    except ValueError:
        return value


_READ_EVERY_S, _END_BYTES = 1.0, 16_384


def say_of_sweep(text: str) -> None:
    """Print a line about a sweep at once, unless notes and errors alone are printed; a closed pipe does not end it."""
    if not is_quiet():
        try:
            print(printable(text), flush=True)
        except BrokenPipeError:  # as of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """Progress of a sweep: `task` is its live line, `own` the overrides of each config that not all configs share."""

    def __init__(self, ledger: Ledger, at_a_time: int) -> None:
        self.ledger, self._at_a_time = ledger, at_a_time
        self.total = len(ledger.runs)
        self.own = own_overrides([config.overrides for config in ledger.configs])
        self.task = Task("")
        self._epochs: dict[RunKey, tuple[float, str]] = {}
        self._walls_s: list[float] = []
        self._counts = Counter[str]()
        self._best = 0.0, RunKey(0, 0)

    def note(self, run: RunKey, outcome: Outcome) -> None:
        """Count a run that has ended, in this session or before."""
        self._counts[outcome.status] += 1
        if outcome.status == COMPLETED and not run.fills:
            self._walls_s.append(outcome.wall_s)
            if outcome.state != UNCACHED and not outcome.diverged:
                self._best = max(self._best, (outcome.examples_per_s or 0.0, run), key=itemgetter(0))

    def show(self, running: Sequence[RunKey]) -> None:
        """Update the live line."""
        if is_repainted(sys.stderr):
            self.task.what = self.line(running)

    def line(self, running: Sequence[RunKey]) -> str:
        """Return the live line: jobs done, failed and running, the time left, and the best config so far."""
        done, failed, (rate, best) = self._counts.total(), self._counts[FAILED], self._best
        waiting, now = self.total - done, ", ".join(f"{of.name}: {self._name(of)}{self._epoch(of)}" for of in running)
        parts = [f"sweep {done}/{self.total}"] + [f"{failed} failed"] * bool(failed)
        if self._walls_s:  # the time left is unknown before the first has ended
            parts.append(left(statistics.median(self._walls_s) / min(self._at_a_time, max(waiting, 1)) * waiting))
        parts += [f"running {now}"] * bool(now) + [f"best {rate:.1f} examples/s ({self._name(best)})"] * bool(rate)
        return " | ".join(parts)

    def ended(self, run: RunKey, outcome: Outcome) -> None:
        """Print a line for a job that has ended."""
        is_uncached, told = outcome.state == UNCACHED, [outcome.status]
        if rate := outcome.examples_per_s:
            told.append(f"{rate:.1f} examples/s{' without its cache' * is_uncached}")
        if run.fills and outcome.status == COMPLETED:
            there = "without its cache" if is_uncached else "its cache was there"
            told.append(f"cache filled in {outcome.fill_s:.1f} s" if outcome.fill_s else there)
        told += [f"{outcome.wall_s:.1f} s"] * bool(outcome.wall_s)  # unknown of a run that was killed
        reason = f": {' '.join(outcome.error.split())}" if outcome.error else ""
        text = f"{self._counts.total()}/{self.total} {run.name} {self._name(run)}: {', '.join(told)}{reason}"
        if is_quiet() and reason:
            print(text, file=sys.stderr)
        say_of_sweep(text)

    def _epoch(self, run: RunKey) -> str:
        """Return which epoch a running job is in, read once a second from the end of its events."""
        now_s = time.monotonic()
        read_s, text = self._epochs.get(run, (-_READ_EVERY_S, ""))
        if now_s - read_s >= _READ_EVERY_S:
            for event in events(self.ledger.folder_of(run), last_bytes=_END_BYTES):
                text = f", epoch {event['epoch']}" if event["event"] == "epoch_began" else text
            self._epochs[run] = now_s, text
        return text

    def _name(self, run: RunKey) -> str:
        return " ".join(self.own[run.config]) or "the only config"


MARGIN = 1.05
"""Ratio by which a config must be able to win to be worth a run."""


class Pruning:
    """Upper bounds and the best config so far, updated with each run that ends.

    The ceiling of a run holds for any pipeline that feeds the same model and trainer. Configs with equal fingerprints
    and equal blocks for these differ only in the speed of their pipelines: the run of one bounds all others. With
    cached features only the head of the model is trained, which counts as another model.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._limits: dict[str, tuple[float, RunKey]] = {}
        self._best = 0.0, RunKey(0, 0)
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
        self._best = max(self._best, (rate, run), key=itemgetter(0))
        training, ceiling = self._training(run), outcome.ceiling_examples_per_s
        if ceiling is not None and ceiling > self._limits.get(training, (0.0, run))[0]:
            self._limits[training] = ceiling, run

    def _training(self, run: RunKey) -> str:
        """Return a key that is equal for configs that differ only in the speed of their pipelines."""
        config = self.ledger.configs[run.config]
        values = config.values
        on_features = values["cache"]["name"] != "none" and values["cache"]["at"] == "features"
        around = [values[group] for group in ("model", "trainer", "profile", "measure")]
        return json.dumps([config.fingerprint, on_features, *around])

    def reason(self, run: RunKey) -> str | None:
        """Return why `run` can't win; None if it can, if its config has run before, or for the baseline."""
        ceiling, limiting = self._limits.get(self._training(run), (math.inf, run))
        best, best_run = self._best
        if run.config == 0 or run.config in self._seen or ceiling > best * MARGIN:
            return None
        return (
            f"can't win: with an ideal input pipeline run {limiting.name} reaches at most {ceiling:.1f} "
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
    waiting = {
        run
        for run, of in outcomes.items()
        if of is None or of.status not in final or as_compared(ledger, run, of).state == UNCACHED
    }
    wanted = {ledger.caches_of(run) for run in waiting} - {""}
    waiting |= {
        run
        for run, of in outcomes.items()
        if of and run.fills in wanted
        if not CacheStore(ledger.configs[run.config].values["cache"]["dir"]).has(of.cache)
    }
    return [run for run in outcomes if run in waiting]


def as_compared(ledger: Ledger, run: RunKey, of: Outcome) -> Outcome:
    """Return an outcome for comparisons: a run that has filled a cache which it was to read ran without it."""
    is_reader = of.has_filled and not run.fills and ledger.caches_of(run)
    return replace(of, state=UNCACHED) if is_reader else of


class Runs(Progress):
    """Runs of a sweep as they start and end; those that are `left` are still to run, in execution order."""

    def __init__(self, ledger: Ledger, outcomes: Outcomes, at_a_time: int) -> None:
        super().__init__(ledger, at_a_time)
        self.left, self._lock = unfinished(ledger, outcomes), threading.Lock()
        self._pruning = Pruning(ledger) if ledger.sweep.prune else None
        self._unfilled: dict[str, str] = {}
        waiting = set(self.left)
        for run, outcome in outcomes.items():
            if outcome and run not in waiting:
                self.note(run, outcome)

    def start(self, run: RunKey) -> Path | None:
        """Return the new folder of a run; None if it has ended there, without its cache or since it can't win."""
        unfilled = reason = None
        if not run.fills:
            unfilled = self._unfilled.get(self.ledger.caches_of(run))
            reason = self._pruning.reason(run) if self._pruning else None
        folder = self.ledger.start(run)
        if not unfilled and not reason:
            return folder
        Record(folder).update(status=FAILED if unfilled else PRUNED, error=unfilled or reason)
        self.end(run)
        return None

    def end(self, run: RunKey) -> None:
        """Report a run that has ended; `WorldError` if its job has left no outcome."""
        folder = self.ledger.folder_of(run)
        if not (outcome := outcome_of(folder)):
            found, expected = "no summary of a job that has ended", "the summary that the job wrote"
            remedy = f"make sure that nothing else writes there, and resume with: {self.ledger.resume_command}"
            raise WorldError(folder, found, expected, remedy)
        with self._lock:  # a launcher's jobs end in threads
            self.note(run, outcome)
            if run.fills and outcome.status != COMPLETED:
                reason = f"{run.name}, the job that fills its cache, has not completed: {outcome.error}"
                self._unfilled[run.fills] = reason
            write(folder, run.config, self.own[run.config], outcome)
            self.ended(run, outcome)

    def note(self, run: RunKey, outcome: Outcome) -> None:
        """Count a run that has ended, in this session or before, also for what can't win."""
        super().note(run, outcome)
        if self._pruning:
            self._pruning.note(run, outcome)
