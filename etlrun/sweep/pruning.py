"""Pruning of configs that can't win, given the runs so far."""

from __future__ import annotations

import json
from dataclasses import dataclass

from etlrun.record.outcome import UNCACHED, Outcome
from etlrun.record.summary import COMPLETED, PRUNED
from etlrun.sweep.ledger import Ledger
from etlrun.sweep.order import RunKey

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
