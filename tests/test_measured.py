"""What runs of two sides have measured: ratios of medians, and differences of equal seeds."""

import pytest

from etlrun.review.runs import measured, qualities


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            (100.0, 102.0, 98.0, 101.0),
            (150.0, 153.0, 147.0, 151.5),
            "100.5 (4 runs) -> 150.8 (4 runs), 1.50x (95% interval 1.45 to 1.55)",
        ),
        ((0.5,) * 4, (0.5,) * 4, "0.5 (4 runs) -> 0.5 (4 runs), 1.00x (95% interval 1.00 to 1.00)"),
        ((100.0,), (90.0,), "100 (1 run) -> 90 (1 run), 0.90x; a single run has no spread"),
        ((1.0, 2.0), (0.0, 1.0), "1.5 (2 runs) -> 0.5 (2 runs), 0.33x; a value is zero"),
        ((0.0,) * 4, (0.0,) * 4, "0 (4 runs) -> 0 (4 runs)"),
    ],
)
def test_a_ratio_has_an_interval_where_both_sides_have_a_spread(
    old: tuple[float, ...], new: tuple[float, ...], told: str
) -> None:
    assert measured("examples/s", old, new).told() == f"examples/s: {told}"


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        (range(4), "4.5 (4 runs) -> 3.95 (4 runs), -0.55 (95% interval -0.7753 to -0.3247, 4 seeds)"),
        (range(2), "3.5 (2 runs) -> 3.05 (2 runs), -0.45; fewer than 3 seeds on both sides have no interval"),
    ],
)
def test_losses_are_compared_by_seed(seeds: range, told: str) -> None:
    old = [(seed, {"val_loss": 3.0 + seed, "loss": 1.0}) for seed in seeds]
    new = [(seed, {"val_loss": 2.6 + 0.9 * seed}) for seed in seeds]
    assert [of.told() for of in qualities(old, new)] == [f"val_loss: {told}"]
    others = [(seed + 9, of) for seed, of in new]
    (apart,) = (of.told() for of in qualities(old, others))
    assert apart.endswith(", no run of one seed on both sides")
