"""How far a sweep is, in one live line; where the output is no terminal, in a line for each job that ends."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from etlrun.record.outcome import UNCACHED, Outcome
from etlrun.record.summary import COMPLETED, FAILED
from etlrun.sweep.ledger import Ledger, RunKey, own_words


class Progress:
    """Used as a context.

    Attributes:
        own: Of each config the overrides that not all have alike.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.total = len(ledger.runs)
        self.own = own_words([config.overrides for config in ledger.configs])
        self._console = Console(soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._walls_s: list[float] = []
        self._counts: dict[str, int] = {}
        self._best: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def note(self, run: RunKey, outcome: Outcome) -> None:
        """Count a run that has ended, now or before."""
        self._counts[outcome.status] = self._counts.get(outcome.status, 0) + 1
        if outcome.status == COMPLETED:
            self._walls_s.append(outcome.wall_s)
            rate = outcome.examples_per_s if outcome.state != UNCACHED else None
            if rate is not None and (self._best is None or rate > self._best[0]):
                self._best = rate, run.config

    def show(self, running: Sequence[RunKey]) -> None:
        """Bring the live line up to date."""
        if self._console.is_terminal:
            self._live.update(Text(self.line(running), no_wrap=True, overflow="ellipsis"))

    def line(self, running: Sequence[RunKey]) -> str:
        """Done, running, failed, the best so far, the time left."""
        failed = self._counts.get(FAILED, 0)
        now = ", ".join(f"{run.name}: {self._words(run.config)}" for run in running)
        left_s = self.left_s()
        parts = [f"sweep {self._done}/{self.total}"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"{timedelta(seconds=round(left_s))} left"] if left_s is not None else []
        parts += [f"running {now}"] if now else []
        parts += [f"best {self._best[0]:.1f} examples/s ({self._words(self._best[1])})"] if self._best else []
        return " | ".join(parts)

    def left_s(self) -> float | None:
        """What the jobs that are left will take, by the median of those that are done; None before the first."""
        left = self.total - self._done
        return statistics.median(self._walls_s) * left / self.ledger.sweep.max_jobs_in_flight if self._walls_s else None

    def ended(self, run: RunKey, outcome: Outcome) -> None:
        """Say of a job that it has ended, and how."""
        without = " without its cache" if outcome.state == UNCACHED else ""
        rate = f"{outcome.examples_per_s:.1f} examples/s{without}, " if outcome.examples_per_s else ""
        reason = f": {' '.join(outcome.error.split())}" if outcome.error else ""
        words = self._words(run.config)
        self.say(
            f"{self._done}/{self.total} {run.name} {words}: {outcome.status}, {rate}{outcome.wall_s:.1f} s{reason}"
        )

    def say(self, text: str) -> None:
        """A line that stays; a reader that has gone (`| head`) ends no sweep."""
        with contextlib.suppress(SystemExit):  # rich's way to tell of it, once
            self._console.print(text, markup=False, highlight=False)

    @property
    def _done(self) -> int:
        return sum(self._counts.values())

    def _words(self, config: int) -> str:
        return " ".join(self.own[config]) or "the only config"
