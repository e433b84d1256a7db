"""The race, of configs in short windows with the fastest one so far in between; and the confirmation of its winner."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from etlrun.measure.gains import TIED as TIES
from etlrun.measure.gains import Gain, Noise, gains, noise_of
from etlrun.stages.cache import CACHES
from etlrun.sweep.tune.space import Candidate, Changes, Space
from etlrun.sweep.tune.surrogate import Surrogate

ALIKE = 0.03
"""Difference in time that is no reason to change a config."""
TIED = 0.01
"""Difference in time within which the simpler config is taken."""
CONFIRMATIONS, _MOST_CONFIRMATIONS = 5, 15
OF_PAIRS = 0.6745 * math.sqrt(2)
"""Median difference of two values over the standard deviation of one."""
_GROUP, _WIDE, _MOST = 3, 3, 20
"""Configs between two windows of the fastest one, groups that are chosen from all configs, and groups of a race."""
Measure = Callable[[Candidate], float | None]
"""Seconds of all epochs in a new window; None if it failed."""


class Race:
    """A race of configs, whose places in a list are their names here; the first is the baseline.

    Attributes:
        known: Configs that were chosen, by place; or why their values do not fit together.
        ran: Configs that ran and did not fail, by place, and the baseline.
    """

    def __init__(
        self, space: Space, configs: Sequence[Changes], predicted_s: Sequence[float], measure: Measure
    ) -> None:
        self._space, self._configs, self._measure = space, configs, measure
        self._surrogate = Surrogate(configs, predicted_s)
        self.known, self.ran = dict[int, Candidate | str](), {0: space.baseline}
        self._times_s = dict[int, list[float]]()

    @property
    def noise(self) -> float:
        """Relative difference between equal runs, in the median."""
        return math.expm1(self._surrogate.expected().noise * OF_PAIRS)

    def run(self, first: Sequence[int], shuffle: random.Random, has_time: Callable[[Candidate], bool]) -> Candidate:
        """Return the winner once no config is expected to be faster, or there is no time for another window.

        First run the most promising of all configs, and those in `first`; then the neighbours of the fastest one, which
        differ from it in one parameter, beside those that ran.
        """
        for number in range(_MOST):
            over = self._fastest()
            group = self._surrogate.promising(over, _GROUP, TIED, self._chosen(None if number < _WIDE else over))
            group = [*dict.fromkeys([*(first if number == 0 else ()), *group])]
            if not group:
                break
            for place in [over, *shuffle.sample(group, len(group))]:
                if not has_time(self.ran[self._fastest()]):
                    return self._winner()
                self._run(place)
        return self._winner()

    def _winner(self) -> Candidate:
        """Return the fastest config, without values with which its own windows were no faster.

        More may be expected of all its values than its windows show; the baseline is compared in the confirmation.
        """
        best = self._fastest()
        median_s = {place: statistics.median(times_s) for place, times_s in self._times_s.items()}
        changes = self.ran[best].changes
        parts = [place for place in self.ran if place and _is_part(self.ran[place].changes, changes)]
        as_fast = [place for place in parts if median_s[place] <= median_s[best]]
        return self.ran[min(as_fast, key=lambda place: _simplicity(self.ran[place]), default=best)]

    def _chosen(self, near: int | None) -> Callable[[int], bool]:
        """Return which configs may run: those whose values fit together, and near one if that is given."""
        return lambda place: (
            (near is None or place in self.ran or self._surrogate.is_near(place, near))
            and self._candidate(place) is not None
        )

    def _candidate(self, place: int) -> Candidate | None:
        """Return a config; None if its values do not fit together, or it has failed."""
        if place not in self.known:
            self.known[place] = self._space.candidate(self._configs[place])
        found = self.known[place]
        return None if isinstance(found, str) or found.error else found

    def _run(self, place: int) -> None:
        candidate = self._candidate(place)
        time_s = None if candidate is None else self._measure(candidate)
        if candidate is not None and time_s is not None:
            self.ran[place] = candidate
            self._times_s.setdefault(place, []).append(time_s)
            self._surrogate.tell(place, time_s)
        elif place:
            self.ran.pop(place, None)

    def _fastest(self) -> int:
        """Return the simplest of the configs that are tied with the fastest one.

        Simpler is what changes fewer values, then what takes less memory: the order of caches is none, memory, disk.
        """
        means = self._surrogate.expected().means
        best = max(means[place] for place in self.ran)
        tied = [place for place in self.ran if best - means[place] <= TIED]
        return min(tied, key=lambda place: _simplicity(self.ran[place]))


def _is_part(some: Changes, of: Changes) -> bool:
    """Return whether a config changes a part of the values that another one changes, to the same."""
    return len(some) < len(of) and all(key in of and of[key] == value for key, value in some.items())


def _simplicity(candidate: Candidate) -> tuple[int, int, int]:
    cache = str(candidate.config["cache"]["name"])
    return len(candidate.changes), [*CACHES].index(cache), candidate.number


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Fresh rounds, in each of which all configs ran once.

    Attributes:
        rates: Speed of each config by round, by its number.
        pairs: Speeds of one config in two windows, one after the other.
    """

    rates: dict[int, dict[int, float]]
    pairs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def noise(self) -> Noise:
        """Difference between two windows of one config."""
        return noise_of(self.pairs)

    def gain(self, of: Candidate, over: Candidate) -> Gain:
        """Return the gain of one config over another."""
        return gains({of.number: self.rates[of.number]}, self.rates[over.number], self.noise)[of.number]


def confirmed(
    candidates: Sequence[Candidate], measure: Measure, shuffle: random.Random, has_time: Callable[[], bool]
) -> Confirmation:
    """Measure the baseline, a winner and others in rounds, each in the reverse order of the one before.

    So a drift cancels out, and the last one of a round, which is the first of the next, tells the noise. If the first
    rounds leave open whether the winner is faster, there are more of them, as long as there is time.
    """
    order = shuffle.sample(candidates, len(candidates))
    found, before = Confirmation(rates={of.number: {} for of in candidates}), dict[int, float]()
    for number in range(_MOST_CONFIRMATIONS):
        if number == CONFIRMATIONS and not _is_open(found, *candidates[:2]):
            break
        if number >= CONFIRMATIONS and not has_time():
            break
        for candidate in order:
            time_s = measure(candidate)
            if time_s is not None:
                found.rates[candidate.number][number] = 1 / time_s
                found.pairs.extend([(before[candidate.number], 1 / time_s)] if candidate.number in before else [])
            before = {} if time_s is None else {candidate.number: 1 / time_s}
        order.reverse()
    return found


def _is_open(found: Confirmation, baseline: Candidate, winner: Candidate) -> bool:
    """Return whether more rounds may tell that the winner is faster."""
    gain = found.gain(winner, baseline)
    return gain.call == TIES and gain.ratio is not None and gain.ratio > 1 + ALIKE / 2
