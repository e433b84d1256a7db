"""Progress of a sweep: one live line on a terminal, and a line for each job that ends."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from etlrun.record.outcome import UNCACHED, Outcome
from etlrun.record.record import events
from etlrun.record.summary import COMPLETED, FAILED
from etlrun.sweep.ledger import Ledger, own_overrides
from etlrun.sweep.order import RunKey
from etlrun.system.errors import printable
from etlrun.system.progress import is_repainted
from etlrun.system.terminal import is_quiet

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
