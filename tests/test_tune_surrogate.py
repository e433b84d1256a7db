import math
import random
from collections.abc import Sequence

import pytest

from etlrun.sweep.tune.predict import Surrogate
from etlrun.sweep.tune.space import Changes

MEMORY, DISK = {"cache.name": "memory"}, {"cache.name": "disk"}
BOTH = [{**cache, "load.prefetch": value} for cache in (MEMORY, DISK) for value in (2, 8)]
CONFIGS: list[Changes] = [{}, MEMORY, DISK, *BOTH, {"load.prefetch": 2}, {"load.prefetch": 8}]


def told(times_s: Sequence[tuple[int, float]], noise: float = 0.0, seed: int = 0) -> Surrogate:
    """Tell a surrogate, which expects no difference, of windows."""
    surrogate, draws = Surrogate(CONFIGS, [10.0] * len(CONFIGS)), random.Random(seed)  # noqa: S311 - no secret
    for place, time_s in times_s:
        surrogate.tell(place, time_s * math.exp(draws.gauss(0, noise)))
    return surrogate


def always(_: int) -> bool:
    return True


def test_without_a_window_the_prediction_is_expected() -> None:
    surrogate = Surrogate(CONFIGS, [10.0, 5.0, *[10.0] * 7])
    means = surrogate.expected().means
    assert means[1] - means[0] == pytest.approx(math.log(2))
    assert surrogate.promising(0, 1, 0.0, always) == [1]


def test_a_window_tells_about_configs_that_share_a_value() -> None:
    means = told([(0, 10.0), (1, 7.0)]).expected().means
    leads = means - means[0]
    assert 0.25 < leads[1] < -math.log(0.7) + 0.05
    assert 0.2 < leads[3] < leads[1]  # in memory, too, with another prefetch
    assert leads[2] < 0.6 * leads[1]  # on the disk: it may be the baseline alone that is slower than predicted


def test_what_is_chosen_tells_different_things() -> None:
    chosen = told([(0, 10.0)]).promising(0, 3, 0.0, always)
    assert len(chosen) == 3
    assert chosen[:2] == [3, 6]  # first one cache and prefetch, then the others
    assert told([(0, 10.0)]).promising(0, 3, 0.0, lambda place: place == 8) == [8]
    assert told([(0, 10.0)]).promising(0, 3, 1.0, always) == []


def test_noise_is_that_of_equal_runs() -> None:
    windows = [(place, 10.0) for _ in range(12) for place in (0, 1, 2)]
    assert told(windows, 0.04).expected().noise == 0.04
    assert told(windows, 0.005).expected().noise <= 0.01


def test_a_drift_of_the_machine_is_no_gain() -> None:
    windows = [(place, 10.0 * 1.05**number) for number, place in enumerate([0, 1, 2, 0, 3, 4, 0, 5, 6, 0, 1, 0, 2])]
    means = told(windows, 0.003).expected().means
    assert means - means[0] == pytest.approx(0.0, abs=0.04)


def test_one_slow_window_of_several_is_not_taken_for_the_config() -> None:
    windows = [(0, 10.0), (1, 9.0), (2, 10.0), (0, 10.1), (1, 9.1), (2, 10.1), (0, 9.9), (1, 16.0), (0, 10.0), (1, 8.9)]
    means = told(windows).expected().means
    assert means[1] - means[0] == pytest.approx(math.log(10 / 9), abs=0.04)


def test_neighbours_differ_in_one_parameter() -> None:
    surrogate = told([])
    assert surrogate.is_near(0, 1)
    assert surrogate.is_near(1, 2)  # another cache is one parameter
    assert surrogate.is_near(3, 1)
    assert surrogate.is_near(3, 4)
    assert not surrogate.is_near(0, 3)
    assert not surrogate.is_near(3, 2)
