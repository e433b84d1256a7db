"""Is one config faster than another, or is that the machine's noise?

Every round runs each config once and the reference, so that a machine that drifts slows all of them: a round gives the
logarithm of the ratio of two rates. The gain of a config is the median of its rounds. Its interval is a residual
bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 9): what the rounds of all configs
differ from their medians is one pool, since with few rounds a config alone tells too little of its noise; medians of
draws from the pool tell how far a median strays.

A config is better (or worse) where its interval is above (below) 1 and its gain is larger than the noise: what two
runs of one config differ by in the median, as pairs of the baseline show. Everything else is tied.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BETTER, TIED, WORSE, UNTOLD = "better", "tied", "worse", "untold"
CONFIDENCE = 0.95
FEWEST_ROUNDS = 3
_DRAWS = 4000

Rates = Mapping[int, float]
"""Examples a second by round."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How much faster a config is than its reference.

    Attributes:
        ratio: Median over the rounds; above 1 is faster. None without a round.
        low: Lower end of the 95 % interval of the ratio; None with fewer than three rounds.
        high: Its upper end.
        call: `better`, `tied`, `worse`, or `untold` with fewer than three rounds.
        rounds: In which both ran.
    """

    ratio: float | None
    low: float | None
    high: float | None
    call: str
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What pairs of runs of one config differ by, as parts of their rate.

    Attributes:
        median: Half of the pairs differ by less; None without pairs.
        largest: Of all pairs.
        pairs: How many.
    """

    median: float | None
    largest: float | None
    pairs: int


def noise_of(pairs: Sequence[tuple[float, float]]) -> Noise:
    """The noise of the machine, from rates of two runs of one config each."""
    apart = [math.expm1(abs(math.log(one / other))) for one, other in pairs]
    if not apart:
        return Noise(median=None, largest=None, pairs=0)
    return Noise(median=statistics.median(apart), largest=max(apart), pairs=len(apart))


def gains(rates: Mapping[int, Rates], reference: Rates, noise: Noise, seed: int = 0) -> dict[int, Gain]:
    """The gain of each config over `reference`, which is none of them, by its number."""
    logs = {
        number: np.array([math.log(rate / reference[turn]) for turn, rate in of.items() if turn in reference])
        for number, of in rates.items()
    }
    told = {number: log for number, log in logs.items() if len(log) >= FEWEST_ROUNDS}
    pool = _pool(list(told.values()))
    reach = {rounds: _reach(pool, rounds, seed) for rounds in {len(log) for log in told.values()}}
    margin = math.log1p(noise.median or 0.0)
    return {number: _gain(log, reach.get(len(log)), margin) for number, log in logs.items()}


def itself(reference: Rates) -> Gain:
    """The gain of the reference, which has no interval and tells nothing of the noise."""
    call = TIED if len(reference) >= FEWEST_ROUNDS else UNTOLD
    return Gain(ratio=1.0 if reference else None, low=None, high=None, call=call, rounds=len(reference))


def _pool(logs: Sequence[np.ndarray]) -> np.ndarray:
    """What the rounds of all configs differ from their medians, both ways, at the size that it has in single rounds."""
    parts = [(log - np.median(log)) * math.sqrt(len(log) / (len(log) - 1)) for log in logs]
    away = np.concatenate(parts) if parts else np.zeros(1)
    return np.concatenate([away, -away])


def _reach(pool: np.ndarray, rounds: int, seed: int) -> float:
    """How far the median of so many rounds strays from the true one, at most, with the confidence."""
    draws = np.random.default_rng(seed).choice(pool, size=(_DRAWS, rounds))
    return float(np.quantile(np.median(draws, axis=1), (1 + CONFIDENCE) / 2))


def _gain(log: np.ndarray, reach: float | None, margin: float) -> Gain:
    if not len(log):
        return Gain(ratio=None, low=None, high=None, call=UNTOLD, rounds=0)
    middle = statistics.median(log.tolist())
    ratio = math.exp(middle)
    if reach is None:
        return Gain(ratio=ratio, low=None, high=None, call=UNTOLD, rounds=len(log))
    sure = max(reach, margin)
    call = BETTER if middle > sure else WORSE if middle < -sure else TIED
    return Gain(ratio=ratio, low=math.exp(middle - reach), high=math.exp(middle + reach), call=call, rounds=len(log))
