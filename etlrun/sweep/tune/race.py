"""Races: candidates against an incumbent in short windows, whose ratios cancel the drift of the machine.

The incumbent runs before, after and between every three candidates. A candidate is compared with the incumbent's times
around its own; the incumbent's pairs are the noise.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from etlrun.review.gains import Gain, Noise, gains, noise_of
from etlrun.sweep.tune.space import Candidate

ALIKE = 0.03
"""Difference in time that ends a race."""
TIED = 0.015
"""Difference in time within which the simpler config is taken."""
MOST_ROUNDS, CONFIRMATIONS = 5, 5
_APART = 3
"""Candidates between two windows of the incumbent."""
_LEAST_NOISE = 0.004
OF_PAIRS = 0.6745 * math.sqrt(2)
"""Median difference of two values over the standard deviation of one."""

Measure = Callable[[Candidate], float | None]
"""Seconds of all epochs in a new window; None if it failed."""


@dataclass(kw_only=True)
class Race:
    """A race so far.

    Attributes:
        incumbent: Number of the config that the others are compared with.
        logs: Logarithm of the speed relative to the incumbent, by round, of each candidate.
        pairs: Times of the incumbent, one after the other.
        dropped: Round in which a candidate was dropped, by its number.
    """

    incumbent: int
    logs: dict[int, list[float]] = field(default_factory=dict)
    pairs: list[tuple[float, float]] = field(default_factory=list)
    dropped: dict[int, int] = field(default_factory=dict)

    @property
    def noise(self) -> float:
        """Standard deviation of the logarithm of a time."""
        apart = [abs(math.log(one / other)) for one, other in self.pairs]
        return max(statistics.median(apart) / OF_PAIRS if apart else 0.0, _LEAST_NOISE)

    def lead(self, number: int) -> float:
        """Return the median logarithm of the speed relative to the incumbent; 0 for itself."""
        return 0.0 if number == self.incumbent else statistics.median(self.logs[number])

    def reach(self, number: int) -> float:
        """Return two standard errors of the lead: of a median, with the noise of the incumbent's windows around."""
        return 2 * 1.25 * self.noise * math.sqrt(1.5 / max(len(self.logs.get(number, ())), 1))


def raced(
    incumbent: Candidate,
    rivals: Sequence[Candidate],
    measure: Measure,
    shuffle: random.Random,
    has_time: Callable[[], bool],
    rounds: int = MOST_ROUNDS,
) -> Race:
    """Race candidates until those left are alike, the time is up, or there were that many rounds."""
    race, left = Race(incumbent=incumbent.number), list(rivals)
    before = measure(incumbent)
    for number in range(1, rounds + 1):
        if not left or not has_time() or before is None:
            break
        order = shuffle.sample(left, len(left))
        for place in range(0, len(order), _APART):
            if before is None or not has_time():
                return race
            before = _leg(race, incumbent, order[place : place + _APART], measure, before)
        left = _left(race, left, number)
        if number > 1 and _are_alike(race, left):
            break
    return race


def _leg(race: Race, incumbent: Candidate, group: Sequence[Candidate], measure: Measure, before: float) -> float | None:
    """Measure some candidates between two windows of the incumbent, and return the time of the second."""
    times = [measure(candidate) for candidate in group]
    after = measure(incumbent)
    if after is None:
        return None
    race.pairs.append((before, after))
    for place, (candidate, time_s) in enumerate(zip(group, times, strict=True), 1):
        if time_s is not None:
            share = place / (len(group) + 1)
            reference = (1 - share) * math.log(before) + share * math.log(after)
            race.logs.setdefault(candidate.number, []).append(reference - math.log(time_s))
    return after


def _left(race: Race, left: Sequence[Candidate], number: int) -> list[Candidate]:
    """Return the candidates that may still win; those that failed are left out, too."""
    ran = [candidate for candidate in left if candidate.number in race.logs and not candidate.error]
    leads = [(race.lead(of.number) - race.reach(of.number), of.number) for of in ran]
    best = max([*leads, (0.0, race.incumbent)])[0]
    kept = [of for of in ran if race.lead(of.number) + race.reach(of.number) >= best]
    race.dropped |= {of.number: number for of in left if of not in kept}
    return kept


def _are_alike(race: Race, left: Sequence[Candidate]) -> bool:
    leads = [race.lead(candidate.number) for candidate in left]
    return not leads or max(leads) - min(leads) < ALIKE


def winner(race: Race, candidates: Sequence[Candidate]) -> Candidate:
    """Return the simplest of the candidates that are tied with the fastest one.

    Simpler is what changes fewer values, then what takes less memory: the order of caches is none, memory, disk.
    """
    ran = [of for of in candidates if of.number == race.incumbent or (of.number in race.logs and not of.error)]
    best = max(race.lead(of.number) for of in ran)
    tied = [of for of in ran if best - race.lead(of.number) <= TIED]
    return min(tied, key=lambda of: (len(of.changes), ("none", "memory", "disk").index(_cache(of)), of.number))


def _cache(candidate: Candidate) -> str:
    return str(candidate.config["cache"]["name"])


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Fresh rounds, in each of which the reference ran twice.

    Attributes:
        rates: Speed of each config by round, by its number.
        noise: Difference between two windows of the reference.
    """

    rates: dict[int, dict[int, float]]
    noise: Noise

    def gain(self, number: int, over: int) -> Gain:
        """Return the gain of one config over another."""
        return gains({number: self.rates[number]}, self.rates[over], self.noise)[number]


def confirmed(
    reference: Candidate, others: Sequence[Candidate], measure: Measure, shuffle: random.Random
) -> Confirmation:
    """Measure `reference`, twice in each round, and `others` in turns."""
    rates: dict[int, dict[int, float]] = {of.number: {} for of in (reference, *others)}
    pairs = []
    for number in range(CONFIRMATIONS):
        twins = []
        for candidate in shuffle.sample([reference, reference, *others], 2 + len(others)):
            time_s = measure(candidate)
            if time_s is not None and candidate is reference:
                twins.append(1 / time_s)
            elif time_s is not None:
                rates[candidate.number][number] = 1 / time_s
        if len(twins) > 1:
            pairs.append((twins[0], twins[1]))
        if twins:
            rates[reference.number][number] = statistics.geometric_mean(twins)
    return Confirmation(rates=rates, noise=noise_of(pairs))
