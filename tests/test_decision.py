from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from etlrun.measure.gains import Gain, Noise, gains, itself
from etlrun.results.decision import decide, tied_with_best
from etlrun.results.results import ConfigResult
from etlrun.review.difference import Comparison, compare
from tests.configs import plan_of

STILL = Noise(median=0.0, largest=0.0, pairs=3)
EVEN = Gain(ratio=1.0, low=0.98, high=1.02, call="tied", rounds=3)


def as_planned(_number: int) -> Comparison:
    """A config that differs from the baseline in speed alone."""
    return changed([], ["load.prefetch=1"])


@cache
def _changed(old: tuple[str, ...], new: tuple[str, ...]) -> Comparison:
    return compare(plan_of(*old), plan_of(*new))


def changed(old: Sequence[str], new: Sequence[str]) -> Comparison:
    """What the config with the overrides `old` and `new` changes in the one with `old`."""
    return _changed(tuple(old), (*old, *new))


def config(
    number: int, rate: float | None, call: str = "tied", ratio: float = 1.0, rounds: int = 3, **values: Any
) -> ConfigResult:
    gain = Gain(ratio=ratio, low=ratio - 0.02, high=ratio + 0.02, call=call, rounds=rounds)
    known: dict[str, Any] = {
        "overrides": ("model=emulated", f"load.prefetch={number}"),
        "own": (f"load.prefetch={number}",),
        "swept": {"load.prefetch": str(number)},
        "status": "completed",
        "runs": (str(number),),
        "state": "warm",
        "first_examples_per_s": None,
        "fill_s": None,
        "overall_examples_per_s": rate,
        "gain": gain,
        "au": None,
        "max_gain": None,
        "bound_by": "model",
        "peak_rss_bytes": 1e9,
        "cores_used": 1.0,
        "wall_s": 3.0,
        "val_accuracy": None,
        "quality": {},
        "data": "",
        "records": {"train": "a"},
        "fingerprint": "same",
        "error": "",
    }
    return ConfigResult(number=number, examples_per_s=rate, **{**known, **values})


def first_of(eligible: int) -> str:
    return (
        f"It is the cheapest of {eligible} configs tied with the best: by memory (within 2%), then by the number of "
        "changed values, then by cores."
    )


@pytest.mark.parametrize(
    ("configs", "tied", "taken", "words"),
    [
        (
            [config(1, 130.0, "better", 1.3), config(0, 100.0)],
            [1],
            1,
            "Use load.prefetch=1: 1.30 (1.28 to 1.32) times as fast as the baseline.",
        ),
        (
            [config(1, 131.0, "better", 1.31), config(2, 130.0, "better", 1.3, peak_rss_bytes=5e8), config(0, 100.0)],
            [1, 2],
            2,
            f"Use load.prefetch=2: 1.30 (1.28 to 1.32) times as fast as the baseline. {first_of(2)}",
        ),
        (
            [config(1, 131.0, "better", 1.31), config(2, 130.0, "better", 1.3, cores_used=0.5), config(0, 100.0)],
            [1, 2],
            2,
            f"Use load.prefetch=2: 1.30 (1.28 to 1.32) times as fast as the baseline. {first_of(2)}",
        ),
        (
            [config(1, 101.0), config(0, 100.0, peak_rss_bytes=8e8), config(2, 99.0)],
            [1, 0, 2],
            0,
            f"Keep the baseline, load.prefetch=0: nothing is better. {first_of(3)}",
        ),
        (
            [config(1, 101.0, ratio=1.01, peak_rss_bytes=9.9e8, cores_used=0.9), config(0, 100.0)],
            [1, 0],
            0,
            f"Keep the baseline, load.prefetch=0: nothing is better. {first_of(2)}",
        ),
        (
            [config(1, 101.0, ratio=1.01, peak_rss_bytes=8e8), config(0, 100.0)],
            [1, 0],
            1,
            ("Nothing is better than the baseline; load.prefetch=1 is tied with it, at 1.01 (0.99 to 1.03), and uses "
            f"less memory. {first_of(2)}"),
        ),
        (
            [
                config(1, 130.0, "better", 1.3, own=("load.prefetch=1", "load.batch_size=8"), cores_used=0.5),
                config(2, 129.0, "better", 1.29, peak_rss_bytes=1.01e9),
                config(0, 100.0, own=("load.prefetch=0", "load.batch_size=4")),
            ],
            [1, 2],
            2,
            f"Use load.prefetch=2: 1.29 (1.27 to 1.31) times as fast as the baseline. {first_of(2)}",
        ),
        (
            [config(1, 130.0, "untold", 1.3, rounds=2), config(0, 100.0, "untold")],
            [1],
            1,
            ("Fastest: load.prefetch=1. Too few runs to separate a difference from noise (2 of at least 3 rounds "
            "with the baseline); use sweep.repeats=3 or more."),
        ),
        (
            [config(0, 100.0, "untold", rounds=1)],
            [0],
            0,
            "Fastest: load.prefetch=0.",
        ),
        (
            [config(1, 130.0, "untold", 1.3, rounds=0), config(0, None, "untold", status="failed", rounds=0)],
            [1],
            1,
            "Fastest: load.prefetch=1. No comparable run of the baseline, load.prefetch=0, has completed.",
        ),
    ],
)  # fmt: skip
def test_the_cheapest_of_those_tied_with_the_best_is_taken(
    configs: list[ConfigResult], tied: list[int], taken: int, words: str
) -> None:
    decision = decide(configs, tied, as_planned)
    assert (decision.config, decision.words) == (taken, words)
    assert decision.overrides == ("model=emulated", f"load.prefetch={taken}")
    assert decision.tied == tuple(tied)


@pytest.mark.parametrize(
    ("configs", "tied", "taken", "eligible"),
    [
        # The baseline is tied with the fastest, and cheaper; the table calls another one better than it.
        ([config(1, 131.0), config(2, 130.0, "better", 1.3), config(0, 100.0, peak_rss_bytes=5e8)], [1, 2, 0], 2, 1),
        # The cheapest of those tied with the best is worse than the baseline.
        ([config(1, 101.0), config(0, 100.0), config(2, 90.0, "worse", 0.9, peak_rss_bytes=5e8)], [1, 2], 0, 2),
        # Nothing is better than the baseline, which the fastest one leaves behind by chance.
        ([config(1, 101.0), config(0, 100.0)], [1], 0, 2),
    ],
)
def test_what_is_taken_agrees_with_what_the_table_says(
    configs: list[ConfigResult], tied: list[int], taken: int, eligible: int
) -> None:
    decision = decide(configs, tied, as_planned)
    assert decision.config == taken
    start = "Use load.prefetch=2: 1.30" if taken else "Keep the baseline, load.prefetch=0: nothing is better."
    assert decision.words.startswith(start)
    assert (first_of(eligible) in decision.words) == (eligible > 1)


@pytest.mark.parametrize("rounds", [3, 5])
def test_no_decision_contradicts_the_table_in_simulated_sweeps(rounds: int) -> None:
    random = np.random.default_rng(rounds)
    for _ in range(200):
        logs = random.normal(0, 0.03, (6, rounds)) + random.normal(0, 0.03, (6, 1))
        rates = {number: dict(enumerate((100 * np.exp(log)).tolist())) for number, log in enumerate(logs)}
        over = gains({number: of for number, of in rates.items() if number}, rates[0], STILL) | {0: itself(rates[0])}
        configs = [
            config(number, float(np.median(list(of.values()))), gain=over[number], peak_rss_bytes=1e9 + 5e7 * number)
            for number, of in rates.items()
        ]
        configs.sort(key=lambda one: -(one.examples_per_s or 0.0))
        decision = decide(configs, tied_with_best(configs, rates, STILL), as_planned)
        calls = {one.number: one.gain.call for one in configs}
        assert decision.config is not None
        assert calls[decision.config] == ("better" if "better" in calls.values() else "tied")
        assert ("nothing is better" in decision.words.lower()) == ("better" not in calls.values())


def test_a_config_with_too_few_rounds_is_not_taken_for_the_best_beside_one_that_was_compared() -> None:
    rates = {0: dict.fromkeys(range(3), 100.0), 1: {0: 140.0}, 2: dict.fromkeys(range(3), 130.0)}
    ranked = [config(1, 140.0, "untold", 1.4, rounds=1), config(2, 130.0, "better", 1.3), config(0, 100.0)]
    assert tied_with_best(ranked, rates, STILL) == [2]


def test_nothing_is_taken_where_nothing_has_completed() -> None:
    decision = decide([config(0, None)], tied_with_best([config(0, None)], {0: {}}, STILL), as_planned)
    assert (decision.config, decision.overrides, decision.words) == (None, (), "No comparable run has completed.")


def test_tied_with_the_best_is_what_rounds_beside_it_do_not_show_to_be_slower() -> None:
    rates = {
        0: dict.fromkeys(range(5), 100.0),
        1: dict.fromkeys(range(5), 130.0),
        2: {0: 131.0, 1: 128.0, 2: 130.0, 3: 129.0, 4: 132.0},
    }
    ranked = [config(2, 130.5), config(1, 130.0), config(0, 100.0)]
    assert tied_with_best(ranked, rates, STILL) == [2, 1]


def test_single_runs_are_tied_with_nothing() -> None:
    assert tied_with_best([config(1, 130.0), config(0, 129.0)], {1: {0: 130.0}, 0: {0: 129.0}}, STILL) == [1]
