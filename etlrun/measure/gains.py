"""Comparison of configs: separates differences in speed from noise.

Every round runs each config and the reference once, so that a drift of the machine affects all of them: a round yields
the logarithm of the ratio of two rates. The gain of a config is the median over its rounds.

Its confidence interval is Student's t for a median. A few rounds are too few to estimate the noise of a single config:
its variance is taken as at least the median variance of all configs, and the degrees of freedom are moderated by the
scatter of the variances (Smyth, Linear models and empirical Bayes methods for assessing differential expression, 2004,
section 6.2). Each bound fails in at most 2.5 % of sweeps; with several configs, all upper or all lower bounds hold
simultaneously in 95 % (Šidák's correction for multiple comparisons): at most one sweep in twenty reports a tie as
better.

A config is better (or worse) if its interval is above (below) 1 and its gain is larger than the noise: the median
difference between two runs of one config, measured with pairs of the baseline. Otherwise it is tied.

For accuracies and losses a round yields the difference instead of the logarithm of a ratio; the rest is the same.

Rounds of folds, or of other splits of the same examples, share most of their training examples, and are not
independent: of these the mean is taken, and its variance is not 1/J of theirs, of J rounds, but 1/J and a part of the
examples that validate over those that train (Nadeau and Bengio, Inference for the Generalization Error, Machine
Learning 52, 2003, section 3): all of that ratio where the same examples may validate in several rounds, as they assume,
and half of it for folds, whose validations are disjoint. In simulations (`benchmarks/intervals.py`) intervals over
folds hold 93 to 95 % without that, 96 to 97 % with half of it, and 98 to 99 % with all of it; the least, for fits that
other rows change as a whole, is 90 % with half of it.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from etlrun.record.outcome import Outcome
from etlrun.system.values import frozen

BETTER, TIED, WORSE, UNTOLD = "better", "tied", "worse", "untold"
CONFIDENCE = 0.95
FEWEST_ROUNDS = 3
OF_FOLDS, OF_WINDOWS = 0.5, 1.0
"""Part of the ratio of validation to training examples by which the variance of a mean over rounds is increased."""
_DRAWS = 50_000
_STILL = 1e-5
"""Fraction of the median variance below which a variance is ignored: its rounds agree by chance."""

Rates = Mapping[int, float]
"""Examples per second, by round."""
Floats = npt.NDArray[np.float64]


@frozen
class Gain:
    """How much faster a config is than its reference.

    Attributes:
        ratio: Median of the speed ratios over the rounds; above 1 is faster. None without a round.
        low: Lower end of the 95 % interval of the ratio; None with fewer than three rounds.
        high: Upper end of the interval.
        call: Result: `better`, `tied`, `worse`, or `untold` with fewer than three rounds.
        rounds: Number of rounds in which both ran.
    """

    ratio: float | None
    low: float | None
    high: float | None
    call: str
    rounds: int

    @property
    def words(self) -> str:
        """The ratio with its interval, if there is one, as `1.30 (1.25 to 1.36)`; `-` without a ratio."""
        if self.ratio is None:
            return "-"
        return f"{self.ratio:.2f}" + ("" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})")


@frozen
class Lead:
    """Difference between a config and its reference, in the unit of the compared value.

    Attributes:
        middle: Median of the differences over the rounds; of rounds that share examples, the mean.
        low: Lower end of its 95 % interval; None with fewer than three rounds.
        high: Upper end of the interval.
        call: Result: `better`, `tied`, `worse`, or `untold` with fewer than three rounds.
        rounds: Number of rounds in which both ran.
    """

    middle: float | None
    low: float | None
    high: float | None
    call: str
    rounds: int


@frozen
class Noise:
    """Relative difference in throughput between two runs of the same config.

    Attributes:
        median: Median difference; None without pairs.
        largest: Largest difference; None without pairs.
        pairs: Number of pairs.
    """

    median: float | None
    largest: float | None
    pairs: int


def noise_of(pairs: Sequence[tuple[float, float]]) -> Noise:
    """Return the noise of the machine, from pairs of rates of two runs of the same config."""
    apart = [math.expm1(abs(math.log(one / other))) for one, other in pairs]
    median = statistics.median(apart) if apart else None
    return Noise(median=median, largest=max(apart, default=None), pairs=len(apart))


def gains(rates: Mapping[int, Rates], reference: Rates, noise: Noise, *, comparisons: int = 1) -> dict[int, Gain]:
    """Return the gain of each config over `reference`, which is not among them, by config number; see `leads`."""
    logs = {
        number: np.array([math.log(rate / reference[turn]) for turn, rate in of.items() if turn in reference])
        for number, of in rates.items()
    }
    found = {}
    for number, lead in leads(logs, math.log1p(noise.median or 0.0), comparisons=comparisons).items():
        ratio, low, high = (None if log is None else math.exp(log) for log in (lead.middle, lead.low, lead.high))
        found[number] = Gain(ratio=ratio, low=low, high=high, call=lead.call, rounds=lead.rounds)
    return found


def leads(
    rounds: Mapping[int, Floats], margin: float, *, excess: float | None = None, comparisons: int = 1
) -> dict[int, Lead]:
    """Return the lead of each config, by config number, from its difference to the reference in each round.

    Higher is better; a lead within `margin`, the noise, is a tie. If rounds share examples, `excess` is what is added
    to 1/J in the variance of their mean; None of independent rounds, whose median is taken. Intervals hold for so many
    `comparisons` at once, those of other calls included.
    """
    counted = [number for number, of in rounds.items() if len(of) >= FEWEST_ROUNDS]
    half = _reaches([rounds[number] for number in counted], excess, comparisons)
    reaches = dict(zip(counted, half.tolist(), strict=True))
    middle_of: Callable[[list[float]], float] = statistics.median if excess is None else statistics.fmean
    found = {}
    for number, of in rounds.items():
        middle, low, high, call = middle_of(of.tolist()) if len(of) else None, None, None, UNTOLD
        if middle is not None and number in reaches:
            low, high, sure = middle - reaches[number], middle + reaches[number], max(reaches[number], margin)
            call = BETTER if middle > sure else WORSE if middle < -sure else TIED
        found[number] = Lead(middle=middle, low=low, high=high, call=call, rounds=len(of))
    return found


def excess_of(outcomes: Iterable[Outcome], *, has_folds: bool) -> float:
    """Return the excess of `leads` for rounds of such runs, by their ratios of validation to training examples."""
    ratios = [of.validated / of.trained for of in outcomes if of.trained]
    return (OF_FOLDS if has_folds else OF_WINDOWS) * (statistics.median(ratios) if ratios else 0.0)


def interval_of_mean(values: Sequence[float], excess: float = 0.0) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean by Student's t; None for fewer than two values.

    Of rounds that share examples, `excess` is that of `leads`.
    """
    from scipy.special import stdtrit

    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return None
    reach = -stdtrit(len(values) - 1, (1 - CONFIDENCE) / 2) * statistics.stdev(values)
    reach /= math.sqrt(len(values) / (1 + excess * len(values)))
    return statistics.fmean(values) - reach, statistics.fmean(values) + reach


def call_of_shares(new: float, old: float, of: float) -> str:
    """Return whether a share of so many is better than another one, worse or tied, by the 95 % interval between them.

    It is that of independent shares, each with a success and a failure more (Agresti and Caffo, The American
    Statistician 2000). Shares of the same examples mostly agree: for them it is too wide.
    """
    first, second = ((share * of + 1) / (of + 2) for share in (new, old))
    spread = math.sqrt((first * (1 - first) + second * (1 - second)) / (of + 2))
    is_tied = abs(first - second) <= statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * spread
    return TIED if is_tied else BETTER if first > second else WORSE


def itself(reference: Rates) -> Gain:
    """Return the gain of the reference over itself, which has no interval."""
    call = TIED if len(reference) >= FEWEST_ROUNDS else UNTOLD
    return Gain(ratio=1.0 if reference else None, low=None, high=None, call=call, rounds=len(reference))


def interval_of_ratio(old: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of two medians, new to old, of at least two positive values each.

    The values come from runs that were not made in pairs: Welch's t over their logarithms, with the variance of each
    side taken as at least the mean of both.
    """
    from scipy.special import stdtrit

    logs = [np.log(np.asarray(values, float)) for values in (old, new)]
    variances = np.array([log.var(ddof=1) for log in logs])
    errors = np.maximum(variances, variances.mean()) * [_median_variance(len(log)) / len(log) for log in logs]
    freedom = errors.sum() ** 2 / max(sum(e**2 / (len(log) - 1) for e, log in zip(errors, logs, strict=True)), 1e-300)
    middle = math.log(statistics.median(new) / statistics.median(old))
    reach = -stdtrit(max(freedom, 1.0), (1 - CONFIDENCE) / 2) * math.sqrt(errors.sum())
    return math.exp(middle - reach), math.exp(middle + reach)


def _reaches(logs: Sequence[Floats], excess: float | None, comparisons: int) -> Floats:
    """Return the half-width of the confidence interval of each config's median, or mean; see `leads`."""
    if not logs:
        return np.zeros(0)
    from scipy.special import stdtrit  # imported here, since it takes 0.1 s

    rounds = np.array([len(log) for log in logs])
    variances = np.array([log.var(ddof=1) for log in logs])
    errors = np.maximum(variances, np.median(variances)) / rounds
    medians = np.array([_median_variance(int(number)) for number in rounds])
    factors = medians if excess is None else 1 + excess * rounds
    each_end = min((1 - CONFIDENCE) / 2, -math.expm1(math.log(CONFIDENCE) / max(len(logs), comparisons)))
    reaches: Floats = -stdtrit(_freedom(variances, rounds - 1.0), each_end) * np.sqrt(errors * factors)
    return reaches


def _freedom(variances: Floats, own: Floats) -> Floats:
    """Return the degrees of freedom: those of all configs together if their variances differ by chance alone."""
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
    """Return the number whose trigamma is `value` > 0, by Newton's method (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    found = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(polygamma(1, found))
        found += trigamma * (1 - trigamma / value) / float(polygamma(2, found))
    return found


@cache
def _median_variance(count: int) -> float:
    """Return the variance of the median of `count` normal values over that of the mean: 1.35 for 3, 1.57 for many."""
    draws = np.random.default_rng(0).normal(size=(_DRAWS, count))
    return float(count * np.median(draws, axis=1).var())
