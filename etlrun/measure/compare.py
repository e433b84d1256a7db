"""Is one config faster than another, or is that the machine's noise?

Every round runs each config once and the reference, so that a machine that drifts slows all of them: a round gives the
logarithm of the ratio of two rates. The gain of a config is the median of its rounds.

Its interval is that of Student's t for a median. With few rounds a config alone says too little of its noise, and the
others may be noisier or quieter than it is: its variance counts as at least the typical one of all configs, and the
degrees of freedom are those that the scatter of the variances allows (Smyth, Linear models and empirical Bayes methods
for assessing differential expression, 2004, section 6.2). Each end errs in at most 2.5 % of sweeps and, in a sweep of
several configs, in so few that all upper or all lower ends hold together in 95 % (Šidák's correction for comparisons
at once): in at most one sweep of twenty is a tie called better.

A config is better (or worse) where its interval is above (below) 1 and its gain is larger than the noise: what two
runs of one config differ by in the median, as pairs of the baseline show. Everything else is tied.

Of accuracies and losses a round gives the difference, in place of the logarithm of a ratio; all else is the same.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

BETTER, TIED, WORSE, UNTOLD = "better", "tied", "worse", "untold"
CONFIDENCE = 0.95
FEWEST_ROUNDS = 3
_DRAWS = 50_000
_STILL = 1e-5
"""Of the typical variance, below which one says nothing: rounds that agree by chance."""

Rates = Mapping[int, float]
"""Examples a second by round."""
Floats = npt.NDArray[np.float64]


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
class Lead:
    """How far a config is above its reference, in the unit of what is compared.

    Attributes:
        middle: Median over the rounds.
        low: Lower end of its 95 % interval; None with fewer than three rounds.
        high: Its upper end.
        call: `better`, `tied`, `worse`, or `untold` with fewer than three rounds.
        rounds: In which both ran.
    """

    middle: float | None
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


def gains(rates: Mapping[int, Rates], reference: Rates, noise: Noise) -> dict[int, Gain]:
    """The gain of each config over `reference`, which is none of them, by its number."""
    logs = {
        number: np.array([math.log(rate / reference[turn]) for turn, rate in of.items() if turn in reference])
        for number, of in rates.items()
    }
    return {
        number: Gain(
            ratio=_exp(lead.middle), low=_exp(lead.low), high=_exp(lead.high), call=lead.call, rounds=lead.rounds
        )
        for number, lead in leads(logs, math.log1p(noise.median or 0.0)).items()
    }


def _exp(log: float | None) -> float | None:
    return None if log is None else math.exp(log)


def leads(rounds: Mapping[int, Floats], margin: float) -> dict[int, Lead]:
    """How far each config is above its reference, by its number, of what it is above in each round.

    Higher is better; less than `margin`, of the noise, is a tie.
    """
    told = [number for number, of in rounds.items() if len(of) >= FEWEST_ROUNDS]
    reach = dict(zip(told, _reaches([rounds[number] for number in told]).tolist(), strict=True))
    return {number: _lead(of, reach.get(number), margin) for number, of in rounds.items()}


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of two or more values, by Student's t; None of fewer."""
    from scipy.special import stdtrit

    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return None
    reach = -stdtrit(len(values) - 1, (1 - CONFIDENCE) / 2) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - reach, statistics.fmean(values) + reach


def itself(reference: Rates) -> Gain:
    """The gain of the reference, which has no interval and tells nothing of the noise."""
    call = TIED if len(reference) >= FEWEST_ROUNDS else UNTOLD
    return Gain(ratio=1.0 if reference else None, low=None, high=None, call=call, rounds=len(reference))


def interval_of_ratio(old: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the ratio of two medians, new to old, of two or more positive values each.

    The values are of runs that were not made in pairs: Welch's t over their logarithms, in which the variance of
    neither side counts as less than the mean of both.
    """
    from scipy.special import stdtrit

    logs = [np.log(np.asarray(values, float)) for values in (old, new)]
    variances = np.array([log.var(ddof=1) for log in logs])
    errors = np.maximum(variances, variances.mean()) * [_median_variance(len(log)) / len(log) for log in logs]
    freedom = errors.sum() ** 2 / max(sum(e**2 / (len(log) - 1) for e, log in zip(errors, logs, strict=True)), 1e-300)
    middle = math.log(statistics.median(new) / statistics.median(old))
    reach = -stdtrit(max(freedom, 1.0), (1 - CONFIDENCE) / 2) * math.sqrt(errors.sum())
    return math.exp(middle - reach), math.exp(middle + reach)


def _reaches(logs: Sequence[Floats]) -> Floats:
    """How far the median of each config's rounds strays from the true one, at most, with the confidence."""
    if not logs:
        return np.zeros(0)
    from scipy.special import stdtrit  # a tenth of a second that only who compares should pay

    rounds = np.array([len(log) for log in logs])
    variances = np.array([log.var(ddof=1) for log in logs])
    errors = np.maximum(variances, np.median(variances)) / rounds
    medians = np.array([_median_variance(int(number)) for number in rounds])
    each_end = min((1 - CONFIDENCE) / 2, -math.expm1(math.log(CONFIDENCE) / len(logs)))
    reaches: Floats = -stdtrit(_freedom(variances, rounds - 1.0), each_end) * np.sqrt(errors * medians)
    return reaches


def _freedom(variances: Floats, own: Floats) -> Floats:
    """Degrees of freedom: those of all configs together where their variances scatter no more than by chance."""
    from scipy.special import digamma, polygamma

    if len(variances) == 1 or not variances.any():
        return own
    least = _STILL * max(float(np.median(variances)), float(variances.max()) * _STILL)
    logs = np.log(np.maximum(variances, least)) - digamma(own / 2) + np.log(own / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, own / 2).mean())
    shared = 2 * _inverse_trigamma(excess) if excess > 0 else math.inf
    freedom: Floats = np.minimum(shared + own, own.sum())
    return freedom


def _inverse_trigamma(value: float) -> float:
    """The number whose trigamma is `value`, above 0, by Newton's method (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    found = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(polygamma(1, found))
        found += trigamma * (1 - trigamma / value) / float(polygamma(2, found))
    return found


@cache
def _median_variance(count: int) -> float:
    """Variance of the median of so many normal values over that of their mean: 1.35 of three, 1.57 of many."""
    draws = np.random.default_rng(0).normal(size=(_DRAWS, count))
    return float(count * np.median(draws, axis=1).var())


def _lead(rounds: Floats, reach: float | None, margin: float) -> Lead:
    if not len(rounds):
        return Lead(middle=None, low=None, high=None, call=UNTOLD, rounds=0)
    middle = statistics.median(rounds.tolist())
    if reach is None:
        return Lead(middle=middle, low=None, high=None, call=UNTOLD, rounds=len(rounds))
    sure = max(reach, margin)
    call = BETTER if middle > sure else WORSE if middle < -sure else TIED
    return Lead(middle=middle, low=middle - reach, high=middle + reach, call=call, rounds=len(rounds))
