"""What filling the caches of a sweep's configs costs, which counts once for all epochs of a training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from etlrun.record.outcome import Outcome
from etlrun.results.results import ConfigResult, Decision, Run
from etlrun.sweep.runs import MARGIN


class Fills:
    """Seconds that filling each cache on disk took, known from the jobs and runs that have filled one."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        every = sorted(outcomes, key=lambda of: of.only_fills)  # those that only fill come last, and count
        self._filled = {of.cache: of for of in every if of.cache and of.fill_s is not None}

    def fill_s(self, of: Outcome) -> float | None:
        """Return the seconds that filling the cache of a run takes, whichever run has filled it; None if unknown."""
        return of.fill_by(self._filled.get(of.cache))

    def overall(self, of: Outcome) -> float | None:
        """Return the throughput of a run over all epochs, with the fill of its cache."""
        return of.with_fill(self.fill_s(of))

    def notes(
        self, configs: Sequence[ConfigResult], decision: Decision, counted: Mapping[int, Sequence[tuple[Run, Outcome]]]
    ) -> Iterator[str]:
        """Yield the note on a config that is the fastest in longer trainings, which its fill makes slower in these."""
        measured = [config for config in configs if config.examples_per_s]
        fastest = max(measured, key=lambda config: config.examples_per_s or 0.0, default=None)
        chosen = next((config for config in measured if config.number == decision.config), None)
        if fastest is None or chosen is None or not fastest.fill_s or fastest.number in decision.tied:
            return
        of = counted[fastest.number][0][1]
        each_s = of.examples / len(of.epochs) * (1 / (chosen.examples_per_s or 1) - 1 / (fastest.examples_per_s or 1))
        more_s = fastest.fill_s - (chosen.fill_s or 0.0)
        is_faster = (fastest.examples_per_s or 0.0) > MARGIN * (chosen.examples_per_s or 0.0)
        if is_faster and more_s > 0:
            least = math.floor(more_s / each_s) + 1
            yield (
                f"over {least} epoch{'s' * (least > 1)} or more config {fastest.number} is the fastest, whose cache "
                f"takes {fastest.fill_s:.2f} s to fill"
            )
