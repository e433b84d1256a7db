"""What a decision says of the data that a config trains on."""

from typing import Any

import pytest

from etlrun.results.decision import decide
from tests.test_collect import as_planned, changed, config

BY_DIGESTS = "same data as the baseline, by the digests of their common epochs"


@pytest.mark.parametrize(
    ("chosen", "baseline", "words"),
    [
        ({}, {}, "same data as the baseline, by its plan and the records read; only the speed differs"),
        ({"records": {}}, {}, "not known to be the same data: the plans agree, but the records read may differ"),
        ({"records": {"train": "b"}}, {}, "NOT the same data as the baseline: its splits hold other records"),
        (
            {"records": {"train": "b"}, "fingerprint": "other"},
            {},
            "NOT the same data as the baseline: its splits hold other records",
        ),
        ({"records": {"train": "b"}, "data": "same"}, {"data": "same"}, BY_DIGESTS),
        ({"data": "same"}, {"data": "same"}, BY_DIGESTS),
        ({"data": "differs: B"}, {"data": "differs: A"}, "NOT the same data as the baseline"),
        ({"fingerprint": "other", "data": "same"}, {"data": "same"}, BY_DIGESTS),
    ],
)
def test_whether_the_data_is_the_same_is_said_with_how_that_is_known(
    chosen: dict[str, Any], baseline: dict[str, Any], words: str
) -> None:
    configs = [config(1, 130.0, "better", 1.3, **chosen), config(0, 100.0, **baseline)]
    assert decide(configs, [1], as_planned).same_data == words


REORDERED = "same examples as the baseline in another order, by its plan and the records read"
TRAINED = "same data as the baseline, by its plan and the records read; the training differs"
FLIPPED = "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"
UNKNOWN = "not known to be the same data: "
CUT = "with a different order or different batches, a pass drops different examples; measure.digest was not set"
ENDS = "if training ends after a different step, it drops different examples; measure.digest was not set"


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        ([], ["load.shuffle_buffer=7"], f"{REORDERED}; the training differs"),
        ([], ["load.batch_size=7"], f"{REORDERED}; the training differs"),
        (["load.shuffle_buffer=0"], ["load.shuffle_buffer=9"], f"{REORDERED}; the training differs"),
        (["experiment=parallel"], ["extract.cycle_length=2"], REORDERED),
        ([], ["transform.deterministic=false"], REORDERED),
        (["transform.deterministic=false"], ["load.prefetch=7"], REORDERED),
        ([], ["trainer.seed=7"], f"{REORDERED}; the training differs"),
        ([], ["load.batch_size=7", "trainer.learning_rate=0.5"], f"{REORDERED}; the training differs"),
        ([], ["trainer.learning_rate=0.5"], TRAINED),
        ([], ["trainer.epochs=9"], TRAINED),
        (["load.drop_remainder=true"], ["trainer.epochs=9"], TRAINED),
        (["load.shuffle_buffer=0"], ["trainer.seed=7"], TRAINED),
        (["cache=none", FLIPPED], ["trainer.learning_rate=0.5"], TRAINED),
        (["trainer.steps_per_epoch=3"], ["trainer.learning_rate=0.5"], TRAINED),
        (
            ["cache=none", FLIPPED],
            ["trainer.seed=7"],
            f"{UNKNOWN}its plan changes the data from transform.random_flip on, and measure.digest was not set",
        ),
        (["load.drop_remainder=true"], ["load.batch_size=7"], f"{UNKNOWN}load.drop_remainder=true: {CUT}"),
        (["load.drop_remainder=true"], ["trainer.seed=7"], f"{UNKNOWN}load.drop_remainder=true: {CUT}"),
        (
            [],
            ["load.drop_remainder=true"],
            f"{UNKNOWN}its plan changes the data from load.batch on, and measure.digest was not set",
        ),
        (["trainer.steps_per_epoch=3"], ["load.shuffle_buffer=7"], f"{UNKNOWN}trainer.steps_per_epoch=3: {CUT}"),
        (["trainer.steps_per_epoch=3"], ["trainer.epochs=9"], f"{UNKNOWN}trainer.steps_per_epoch=3: {ENDS}"),
        ([], ["trainer.steps_per_epoch=3"], f"{UNKNOWN}trainer.steps_per_epoch=3: {ENDS}"),
        (
            ["trainer.steps_per_epoch=3", "transform.deterministic=false"],
            ["load.prefetch=7"],
            (
                f"{UNKNOWN}without a fixed order, trainer.steps_per_epoch=3 drops different examples in each pass "
                "and in each run; measure.digest was not set"
            ),
        ),
        (
            ["trainer=drain", "trainer.seconds=2"],
            ["load.prefetch=7"],
            (
                f"{UNKNOWN}trainer.seconds=2 ends a run within a pass: the number of examples depends on the speed; "
                "measure.digest was not set"
            ),
        ),
        (
            [],
            ["transform.resize.size=[48,48]"],
            f"{UNKNOWN}its plan changes the data from transform.resize on, and measure.digest was not set",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_plan_shows_of_the_data_is_said_and_no_more(base: list[str], change: list[str], words: str) -> None:
    configs = [config(1, 130.0, "better", 1.3, fingerprint="other"), config(0, 100.0)]
    assert decide(configs, [1], lambda _number: changed(base, change)).same_data == words


def test_the_same_digests_of_another_order_are_said_to_be_that() -> None:
    configs = [config(1, 130.0, "better", 1.3, data="same"), config(0, 100.0, data="same")]
    assert decide(configs, [1], lambda _number: changed([], ["load.batch_size=7"])).same_data == (
        "same examples as the baseline in another order, by the digests of their common epochs; the training differs"
    )


def test_configs_that_can_not_be_planned_any_more_show_nothing() -> None:
    configs = [config(1, 130.0, "better", 1.3), config(0, 100.0)]
    assert decide(configs, [1], lambda _number: None).same_data == (
        "not known to be the same data: their configs can no longer be planned, and measure.digest was not set"
    )


def test_the_baseline_has_its_own_data() -> None:
    assert decide([config(0, 100.0)], [0], as_planned).same_data == "it is the baseline"
