"""Intervals hold the truth as often as they say, in simulations."""

import numpy as np
import pytest

from benchmarks import intervals
from etlrun.trained.scores import f1


def test_f1_has_an_interval_at_its_border() -> None:
    right = f1(10, 0, 0)
    assert right.value == right.high == 1
    assert right.low == pytest.approx(0.8389, abs=1e-4)
    wrong = f1(0, 5, 5)
    assert wrong.value == wrong.low == 0
    assert wrong.high == pytest.approx(0.4345, abs=1e-4)


@pytest.mark.parametrize("name", intervals.KINDS)
def test_an_interval_holds_the_truth_as_often_as_it_says(name: str) -> None:
    shares = [found.held for found in intervals.KINDS[name](np.random.default_rng(0), 300)]
    assert np.mean(shares) >= 0.935
    assert min(shares) >= 0.8
