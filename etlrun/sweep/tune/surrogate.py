"""What is expected of each config: its prediction, corrected by all windows of the race.

The logarithm of a speed is taken for a sum of effects: of the cache, of each other value, of both together and of the
config alone. So a window tells about all configs that share a value with its own. (A Gaussian process, as in Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2; what runs next has the largest expected
improvement, as in Jones, Schonlau and Welch, Efficient Global Optimization, 1998.)
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etlrun.sweep.tune.space import CACHE, CODEC, POINT, Changes

Floats = npt.NDArray[np.float64]

_CACHE, _VALUE, _BOTH, _ALONE = 0.25, 0.1, 0.05, 0.02
"""Standard deviations of effects: how wrong a prediction may be for a cache, a value, both, or a single config."""
_LEVEL = 3.0
"""Standard deviation of what all windows have in common, of which nothing is known."""
_MOST = math.log(2)
"""Largest difference to a prediction, beside that which all windows have in common, that counts."""
_NOISES, _DRIFTS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32), (0.01, 0.04, 0.16)
"""Standard deviations of a window and of a drift of the machine, of which the likeliest are taken."""
_USUAL_NOISE, _UNUSUAL = 0.03, 0.7
"""Noise of a machine of which nothing is known, and the standard deviation of the logarithm of that."""
_LASTS = 8
"""Windows over which a drift lasts."""
_LEAST = 0.001
"""Expected gain below which a config does not run."""
_FREEDOM, _TURNS = 2, 4
"""Degrees of freedom of the noise, by Student's t, and turns of the fit that weighs each window by them."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the windows so far let expect.

    Attributes:
        means: Logarithm of the speed of each config.
        noise: Standard deviation of the logarithm of a time, without the drift of the machine.
        drift: Standard deviation of that drift.
        spread: Variance of each window over that of the noise: large for one that is unlike the others.
    """

    means: Floats
    noise: float
    drift: float
    spread: Floats


class Surrogate:
    """A model of the speeds of configs, of which windows tell.

    Attributes:
        ran: The config of each window, as its place in the list of configs.
    """

    def __init__(self, configs: Sequence[Changes], predicted_s: Sequence[float]) -> None:
        self._codes, self._prior = _codes(configs), -np.log(np.asarray(predicted_s, float))
        self._logs, self.ran = list[float](), list[int]()
        self._known: Expected | None = None

    def tell(self, place: int, time_s: float) -> None:
        """Add a window, of so many seconds of all epochs."""
        self.ran.append(place)
        self._logs.append(-math.log(time_s))

    def is_near(self, one: int, other: int) -> bool:
        """Return whether two configs differ in at most one parameter."""
        return int((self._codes[one] != self._codes[other]).sum()) <= 1

    def expected(self) -> Expected:
        """Return what is expected, with the noise and the drift that explain the windows best."""
        if self._known is None or len(self._known.spread) != len(self.ran):
            self._known = self._fitted()
        return self._known

    def _fitted(self) -> Expected:
        among, surprise = self._effects(self.ran, self.ran), np.array(self._logs) - self._prior[self.ran]
        usual = statistics.median(surprise.tolist()) if self.ran else 0.0
        surprise, spread = np.clip(surprise, usual - _MOST, usual + _MOST), np.ones(len(surprise))
        for _ in range(_TURNS):
            noise, drift, weights = _likeliest(among, surprise, spread)
            spread = (_FREEDOM + (noise * spread * weights) ** 2) / (_FREEDOM + 1)
        means = self._prior + self._effects(range(len(self._prior)), self.ran) @ weights
        return Expected(means=means, noise=noise, drift=drift, spread=spread)

    def promising(self, over: int, most: int, tied: float, admitted: Callable[[int], bool]) -> list[int]:
        """Return configs that are expected to exceed the speed of `over` most, beyond a difference that is a tie.

        Each is chosen as if those before it had run as expected, so that no two of them tell the same.
        """
        from scipy.special import ndtr  # imported here, since it takes 0.1 s

        now, every, ran, chosen = self.expected(), range(len(self._prior)), [*self.ran], list[int]()
        leads = now.means - now.means[over] - tied
        whole = self._effects([over], [over])[0, 0]
        while len(chosen) < most:
            covariance = self._effects(ran, ran) + _of_machine(
                np.append(now.spread, np.ones(len(chosen))), now.noise, now.drift
            )
            told = np.linalg.solve(np.linalg.cholesky(covariance), self._effects(ran, every))
            shared = self._effects([over], every)[0] - told[:, over] @ told
            apart = np.sqrt(np.maximum(whole - (told**2).sum(axis=0) + shared[over] - 2 * shared, 1e-12))
            gains = leads * ndtr(leads / apart) + apart * np.exp(-((leads / apart) ** 2) / 2) / math.sqrt(2 * math.pi)
            gains[[over, *chosen]] = 0.0
            while gains[best := int(gains.argmax())] >= _LEAST and not admitted(best):
                gains[best] = 0.0
            if gains[best] < _LEAST:
                break
            chosen.append(best)
            ran.append(best)
        return chosen

    def _effects(self, some: Sequence[int], others: Sequence[int]) -> Floats:
        """Return the covariance of the speeds of configs before any window."""
        same = self._codes[list(some)][:, None] == self._codes[list(others)][None]
        cache, values = same[..., 0], same[..., 1:].sum(axis=2)
        found: Floats = _CACHE**2 * cache + (_VALUE**2 + _BOTH**2 * cache) * values + _ALONE**2 * same.all(axis=2)
        return found


def _likeliest(among: Floats, surprise: Floats, spread: Floats) -> tuple[float, float, Floats]:
    """Return the likeliest noise and drift, and the weights of the windows with them."""
    fits = []
    for noise, drift in itertools.product(_NOISES, _DRIFTS):
        factor = np.linalg.cholesky(among + _of_machine(spread, noise, drift))
        white = np.linalg.solve(factor, surprise)
        unusual = math.log(noise / _USUAL_NOISE) / _UNUSUAL
        unlikely = float(white @ white + 2 * np.log(factor.diagonal()).sum()) + unusual**2
        fits.append((unlikely, noise, drift, np.linalg.solve(factor.T, white)))
    return min(fits, key=lambda fit: fit[0])[1:]


def _of_machine(spread: Floats, noise: float, drift: float) -> Floats:
    """Return the covariance of windows, one after the other, that is not due to their configs."""
    apart = np.abs(np.subtract.outer(range(len(spread)), range(len(spread))))
    found: Floats = _LEVEL**2 + drift**2 * np.exp(-apart / _LASTS) + noise**2 * np.diag(spread)
    return found


def _codes(configs: Sequence[Changes]) -> npt.NDArray[np.int64]:
    """Return a number for each value of each parameter: the cache, which is one of them, and what else is changed."""
    keys = [key for key in dict.fromkeys(key for of in configs for key in of) if key not in (CACHE, POINT, CODEC)]
    columns = [[str([of.get(key, ...) for key in (CACHE, POINT, CODEC)]) for of in configs]]
    columns += [[str(of.get(key, ...)) for of in configs] for key in keys]
    return np.array([np.unique(column, return_inverse=True)[1] for column in columns]).T
