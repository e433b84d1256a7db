from typing import Any

import pytest

from etlrun.sweep.compare import Gain, Noise
from etlrun.sweep.decision import decide, tied_with_best
from etlrun.sweep.results import ConfigResult

STILL = Noise(median=0.0, largest=0.0, pairs=3)
EVEN = Gain(ratio=1.0, low=0.98, high=1.02, call="tied", rounds=3)


def config(number: int, rate: float | None, call: str = "tied", ratio: float = 1.0, **values: Any) -> ConfigResult:
    gain = Gain(ratio=ratio, low=ratio - 0.02, high=ratio + 0.02, call=call, rounds=3)
    known: dict[str, Any] = {
        "overrides": ("model=emulated", f"load.prefetch={number}"),
        "own": (f"load.prefetch={number}",),
        "swept": {"load.prefetch": str(number)},
        "status": "completed",
        "runs": (str(number),),
        "state": "warm",
        "first_examples_per_s": None,
        "gain": gain,
        "au": None,
        "max_gain": None,
        "bound_by": "model",
        "peak_rss_bytes": 1e9,
        "cores_used": 1.0,
        "wall_s": 3.0,
        "val_accuracy": None,
        "data": "",
        "fingerprint": "same",
        "error": "",
    }
    return ConfigResult(number=number, examples_per_s=rate, **{**known, **values})


@pytest.mark.parametrize(
    ("configs", "tied", "taken", "words"),
    [
        (
            [config(1, 130.0, "better", 1.3), config(0, 100.0)],
            [1],
            1,
            "Take load.prefetch=1: 1.30 (1.28 to 1.32) times as fast as the baseline.",
        ),
        (
            [config(1, 131.0, "better", 1.31), config(2, 130.0, "better", 1.3, peak_rss_bytes=5e8), config(0, 100.0)],
            [1, 2],
            2,
            ("Take load.prefetch=2: 1.30 (1.28 to 1.32) times as fast as the baseline. "
            "It is the cheapest of 2 that are tied with the best."),
        ),
        (
            [config(1, 131.0, "better", 1.31), config(2, 130.0, "better", 1.3, cores_used=0.5), config(0, 100.0)],
            [1, 2],
            2,
            ("Take load.prefetch=2: 1.30 (1.28 to 1.32) times as fast as the baseline. "
            "It is the cheapest of 2 that are tied with the best."),
        ),
        (
            [config(1, 101.0), config(0, 100.0, peak_rss_bytes=8e8), config(2, 99.0)],
            [1, 0, 2],
            0,
            ("Keep the baseline, load.prefetch=0: nothing is better. "
            "It is the cheapest of 3 that are tied with the best."),
        ),
        (
            [config(1, 101.0, ratio=1.01, peak_rss_bytes=9.9e8, cores_used=0.9), config(0, 100.0)],
            [1, 0],
            0,
            ("Keep the baseline, load.prefetch=0: nothing is better. "
            "It is the cheapest of 2 that are tied with the best."),
        ),
        (
            [config(1, 101.0, ratio=1.01, peak_rss_bytes=8e8), config(0, 100.0)],
            [1, 0],
            1,
            ("Nothing is better than the baseline; load.prefetch=1 is tied with it, at 1.01 (0.99 to 1.03), and "
            "cheaper. It is the cheapest of 2 that are tied with the best."),
        ),
        (
            [config(1, 130.0, "untold", 1.3), config(0, 100.0, "untold")],
            [1],
            1,
            ("Fastest: load.prefetch=1. So few runs tell no difference from noise; "
            "a grid with sweep.repeats=3 or more does."),
        ),
    ],
)  # fmt: skip
def test_the_cheapest_of_those_tied_with_the_best_is_taken(
    configs: list[ConfigResult], tied: list[int], taken: int, words: str
) -> None:
    decision = decide(configs, tied)
    assert (decision.config, decision.words) == (taken, words)
    assert decision.overrides == ("model=emulated", f"load.prefetch={taken}")
    assert decision.tied == tuple(tied)


def test_nothing_is_taken_where_nothing_has_completed() -> None:
    decision = decide([config(0, None)], tied_with_best([config(0, None)], {0: {}}, STILL))
    assert (decision.config, decision.overrides, decision.words) == (None, (), "No run has completed.")


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


@pytest.mark.parametrize(
    ("chosen", "baseline", "words"),
    [
        ({}, {}, "same data as the baseline, by its plan: nothing but the speed differs"),
        ({"data": "same"}, {"data": "same"}, "same data as the baseline, by the digests of all epochs"),
        ({"data": "differs: B"}, {"data": "differs: A"}, "NOT the data of the baseline"),
        (
            {"fingerprint": "other"},
            {},
            "not known to be the same data: the plans differ in more than speed, and measure.digest was not set",
        ),
        (
            {"fingerprint": "other", "data": "same"},
            {"data": "same"},
            "same data as the baseline, by the digests of all epochs",
        ),
    ],
)
def test_whether_the_data_is_the_same_is_said_with_how_that_is_known(
    chosen: dict[str, Any], baseline: dict[str, Any], words: str
) -> None:
    configs = [config(1, 130.0, "better", 1.3, **chosen), config(0, 100.0, **baseline)]
    assert decide(configs, [1]).same_data == words


def test_the_baseline_has_its_own_data() -> None:
    assert decide([config(0, 100.0)], [0]).same_data == "it is the baseline"
