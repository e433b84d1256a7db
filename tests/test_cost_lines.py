"""How costs are told: durations, rates, sizes."""

import pytest

from etlrun.review.cost import Cost, Estimate, Refill
from tests.costs import HERE


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "less than 0.1 s"),
        (0.25, "0.25 s (0.12 to 0.5)"),
        (99.7, "100 s (50 to 199)"),
        (1260.0, "21 minutes (10 to 42)"),
        (7200.0, "2 hours (1 to 4)"),
        (3_600_000.0, "1,000 hours (500 to 2,000)"),
    ],
)
def test_durations_are_in_the_unit_of_which_there_are_two(seconds: float, told: str) -> None:
    duration = Estimate(value=seconds, low=seconds / 2, high=seconds * 2, runs=1)
    refill = Refill(key="", pipeline="train", size_bytes=None, duration_s=duration, machine=HERE)
    assert Cost(refills=(refill,)).lines[0] == f"refills 1 cache on disk of unknown size in {told}, by 1 run on {HERE}"


def test_large_rates_have_all_digits() -> None:
    rate = Estimate(value=123_400.0, low=98_760.0, high=1_234_000.0, runs=2)
    cost = Cost(examples_per_s=(None, rate), machine=HERE, is_told=True, is_added=True)
    assert cost.rate_lines == [
        f"expected on {HERE}: examples/s 123,400 (98,760 to 1,234,000, 2 runs); AU unknown; memory unknown"
    ]
