import math
from typing import Any

import numpy as np
import pytest

from etlrun.measure.gains import Gain, Noise, gains, interval_of_ratio, noise_of

approx: Any = pytest.approx
STILL = Noise(median=0.0, largest=0.0, pairs=5)
BASE = dict.fromkeys(range(5), 100.0)


def ratios(*values: float) -> dict[int, float]:
    """Rates of one config whose rounds are these times the baseline's."""
    return {turn: 100.0 * value for turn, value in enumerate(values)}


def test_the_gain_is_the_median_of_the_rounds_with_its_interval() -> None:
    gain = gains({1: ratios(1.28, 1.30, 1.32, 1.31, 1.29)}, BASE, STILL)[1]
    assert gain.ratio == approx(1.30)
    assert gain.low is not None
    assert gain.high is not None
    assert 1.27 < gain.low < 1.30 < gain.high < 1.33
    assert (gain.call, gain.rounds) == ("better", 5)


@pytest.mark.parametrize(
    ("values", "call"),
    [
        ((1.1, 1.12, 1.09, 1.1, 1.11), "better"),
        ((0.9, 0.91, 0.89, 0.9, 0.9), "worse"),
        ((1.1, 0.92, 1.01, 0.99, 1.0), "tied"),
        ((1.0, 1.0, 1.0, 1.0, 1.0), "tied"),
    ],
)
def test_a_config_is_called_by_its_interval(values: tuple[float, ...], call: str) -> None:
    assert gains({1: ratios(*values)}, BASE, STILL)[1].call == call


def test_a_gain_within_the_noise_of_the_machine_is_a_tie() -> None:
    sure = ratios(1.05, 1.051, 1.049, 1.05, 1.05)
    assert gains({1: sure}, BASE, STILL)[1].call == "better"
    assert gains({1: sure}, BASE, Noise(median=0.06, largest=0.2, pairs=5))[1].call == "tied"


def test_a_drift_that_all_runs_of_a_round_share_is_no_noise() -> None:
    drifting = {turn: 100.0 * 0.7**turn for turn in range(5)}
    gain = gains({1: {turn: rate * 1.1 for turn, rate in drifting.items()}}, drifting, STILL)[1]
    assert gain == Gain(ratio=approx(1.1), low=approx(1.1), high=approx(1.1), call="better", rounds=5)


def test_the_noise_of_other_configs_counts_for_one_that_seems_still() -> None:
    alone = gains({1: ratios(1.1, 1.1, 1.1)}, BASE, STILL)[1]
    beside = gains({1: ratios(1.1, 1.1, 1.1), 2: ratios(0.7, 1.0, 1.4), 3: ratios(0.8, 1.1, 1.5)}, BASE, STILL)[1]
    assert (alone.call, beside.call) == ("better", "tied")


@pytest.mark.parametrize(
    ("of", "ratio", "rounds"), [({}, None, 0), ({0: 130.0}, 1.3, 1), ({0: 120.0, 4: 130.0}, math.sqrt(1.56), 2)]
)
def test_fewer_than_three_rounds_tell_nothing(of: dict[int, float], ratio: float | None, rounds: int) -> None:
    expected = None if ratio is None else approx(ratio)
    assert gains({1: of}, BASE, STILL)[1] == Gain(ratio=expected, low=None, high=None, call="untold", rounds=rounds)


def test_rounds_in_which_the_reference_is_missing_do_not_count() -> None:
    reference = {0: 100.0, 2: 100.0, 3: 100.0}
    assert gains({1: ratios(9.0, 9.0, 1.1, 1.1, 9.0)}, reference, STILL)[1].rounds == 3


def test_noise_is_what_pairs_differ_by() -> None:
    assert noise_of([(100.0, 110.0), (110.0, 100.0), (100.0, 100.0)]) == Noise(
        median=approx(0.1), largest=approx(0.1), pairs=3
    )
    assert noise_of([]) == Noise(median=None, largest=None, pairs=0)


@pytest.mark.parametrize("rounds", [3, 5, 7])
def test_of_ties_at_most_one_in_twenty_is_called_better_and_large_gains_are_found(rounds: int) -> None:
    """On noise with outliers and drift; what real machines do is measured in benchmarks/results/sweeps.md."""
    random, found = np.random.default_rng(rounds), {"tie": 0, "gain": 0}
    for _ in range(300):
        outliers = (random.random((5, rounds)) < 0.05) * random.uniform(0.1, 0.5, (5, rounds))
        logs = random.normal(0, 0.05, (5, rounds)) - outliers + np.cumsum(random.normal(0, 0.03, rounds))
        logs[3] += math.log(1.3)
        rates = {number: dict(enumerate(np.exp(log).tolist())) for number, log in enumerate(logs)}
        baseline = {turn: math.sqrt(rates[0][turn] * rates[1][turn]) for turn in range(rounds)}
        noise = noise_of([(rates[0][turn], rates[1][turn]) for turn in range(rounds)])
        told = gains({2: rates[2], 3: rates[3], 4: rates[4]}, baseline, noise)
        found["tie"] += told[2].call == "better"
        found["gain"] += told[3].call == "better"
    assert found["tie"] <= 0.05 * 300
    assert found["gain"] >= (0.9 if rounds > 3 else 0.8) * 300


def simulated(random: np.random.Generator, spreads: list[float], rounds: int) -> dict[int, Gain]:
    """Gains of equal configs; the first of `spreads` is the baseline's, which runs twice in each round."""
    logs = [random.normal(0, spread, rounds) for spread in [spreads[0], *spreads]]
    rates = [dict(enumerate(np.exp(log).tolist())) for log in logs]
    baseline = {turn: math.sqrt(rates[0][turn] * rates[1][turn]) for turn in range(rounds)}
    noise = noise_of([(rates[0][turn], rates[1][turn]) for turn in range(rounds)])
    return gains(dict(enumerate(rates[2:])), baseline, noise)


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("spreads", [[0.01, 0.01, 0.01, 0.08], [0.03, 0.03], [0.02, 0.02, 0.02, 0.08, 0.08, 0.08]])
def test_an_interval_holds_the_truth_however_unlike_the_noise_of_the_configs(spreads: list[float], rounds: int) -> None:
    random, sweeps = np.random.default_rng(rounds), 400
    held = np.zeros(len(spreads) - 1)
    for _ in range(sweeps):
        told = simulated(random, spreads, rounds)
        held += [(gain.low or 0.0) <= 1.0 <= (gain.high or 0.0) for gain in told.values()]
    # Three rounds that agree by chance look like those of a quiet config.
    assert held.min() >= (0.93 if rounds > 3 else 0.9) * sweeps


@pytest.mark.parametrize("rounds", [3, 5])
@pytest.mark.parametrize("configs", [20, 40])
def test_in_one_sweep_of_twenty_at_most_some_tie_is_called_better_however_many_configs(
    configs: int, rounds: int
) -> None:
    random, sweeps = np.random.default_rng(configs), 200
    found = sum(
        any(gain.call == "better" for gain in simulated(random, [0.03] * configs, rounds).values())
        for _ in range(sweeps)
    )
    assert found <= 0.05 * sweeps


@pytest.mark.parametrize("runs", [(2, 2), (3, 3), (2, 8), (5, 5)])
def test_the_interval_of_unpaired_runs_holds_the_true_ratio(runs: tuple[int, int]) -> None:
    random, sweeps = np.random.default_rng(0), 600
    held = 0
    for _ in range(sweeps):
        old, new = (np.exp(random.normal(0, 0.05, count)).tolist() for count in runs)
        low, high = interval_of_ratio(old, new)
        held += low <= 1.0 <= high
    assert held >= 0.93 * sweeps


def test_rounds_that_agree_by_chance_are_believed_no_more_than_those_of_the_others() -> None:
    told = gains({1: ratios(1.1, 1.1, 1.1), 2: ratios(1.0, 1.2, 1.1), 3: ratios(1.15, 1.05, 1.1)}, BASE, STILL)
    assert told[1].call == "tied"
