import re
from collections.abc import Iterable

import pytest

from etlrun.planning.plan import PlannedStage
from etlrun.planning.planner import plan
from etlrun.stages.base import Kind
from tests.configs import KINDS, OTHER_VALUES, TENSORFLOW, beside, plan_of, spec_of

SHAPE = "float32 [64, 64, 3]"


def paths(stages: Iterable[PlannedStage]) -> list[str]:
    return [planned.stage.path for planned in stages]


@pytest.mark.parametrize("cache", ["none", "memory", "disk"])
@pytest.mark.parametrize("shuffle_buffer", [0, 100])
@pytest.mark.parametrize("prefetch", ["0", "2", "autotune"])
def test_the_order_of_stages(cache: str, shuffle_buffer: int, prefetch: str) -> None:
    planned = plan_of(f"cache={cache}", f"load.shuffle_buffer={shuffle_buffer}", f"load.prefetch={prefetch}")
    shuffle = ["load.shuffle"] if shuffle_buffer else []
    decoded, ahead = ["transform.map", "transform.turbo"], [] if prefetch == "0" else ["load.prefetch"]
    if cache == "none":
        assert paths(planned.train) == ["extract.interleave", *shuffle, "load.batch", *decoded, *ahead]
        assert paths(planned.evaluation) == ["extract.interleave", "load.batch", *decoded, *ahead]
    else:
        read = ["extract.interleave", *decoded, f"cache.{cache}"]
        assert paths(planned.train) == [*read, *shuffle, "load.batch", *ahead]
        assert paths(planned.evaluation) == [*read, "load.batch", *ahead]


def test_corrupt_records_are_left_out_after_the_transformation_and_before_the_cache() -> None:
    planned = plan_of("dataset.on_corrupt=skip")
    start = ["extract.interleave", "transform.map", "transform.turbo", "dataset.skip_corrupt", "cache.memory"]
    assert paths(planned.train)[:5] == paths(planned.evaluation)[:5] == start


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        ([], ["transform.parse", "transform.decode", "transform.resize"]),
        (["extract=tfds"], ["transform.decode", "transform.resize"]),
        (["experiment=naive", "dataset.eval_split=test"], ["transform.resize", "transform.scale_zero_one"]),
    ],
)
def test_records_are_parsed_unless_tfds_does_it(overrides: list[str], steps: list[str]) -> None:
    planned = plan_of(*overrides, TENSORFLOW)
    assert paths(planned.train[1].steps) == paths(planned.evaluation[1].steps) == steps


def test_each_step_tells_what_it_gives() -> None:
    planned = plan_of("transform.resize.dtype=float32")
    assert planned.by_model == ()
    assert [str(step.gives) for step in planned.train[1].steps] == [
        "encoded image, label",
        "uint8 [?, ?, 3] in [0, 255], label",
        f"{SHAPE} in [0, 255], label",
        f"{SHAPE} in [-1, 1], label",
    ]


def test_the_model_scales_pictures_that_are_uint8() -> None:
    (scaling,) = plan_of().by_model
    assert (scaling.stage.path, str(scaling.gives)) == (
        "transform.scale_minus_one_one",
        f"32 x {SHAPE} in [-1, 1], label",
    )
    assert str(plan_of().train[2].gives) == "uint8 [64, 64, 3] in [0, 255], label"


@pytest.mark.parametrize("drop", ["true", "false"])
def test_validation_never_drops_the_remainder(drop: str) -> None:
    planned = plan_of(f"load.drop_remainder={drop}", "load.prefetch=0")
    assert getattr(planned.train[-1].stage, "drop_remainder", None) is (drop == "true")
    assert getattr(planned.evaluation[-1].stage, "drop_remainder", None) is False


def test_shuffling_takes_the_seed_of_the_trainer() -> None:
    shuffle = plan_of("trainer.seed=7", "load.shuffle_buffer=9").train[4].stage
    assert (shuffle.path, getattr(shuffle, "seed", None), getattr(shuffle, "buffer_size", None)) == (
        "load.shuffle",
        7,
        9,
    )


def test_without_an_eval_split_nothing_is_validated() -> None:
    assert plan_of("dataset.eval_split=null").evaluation == ()


def test_stages_are_random_where_they_or_their_steps_are() -> None:
    planned = plan_of("transform=augmented_224", "cache=none")
    assert paths(stage for stage in planned.train if stage.is_random) == ["load.shuffle", "transform.after_turbo"]
    assert paths(stage for stage in planned.evaluation if stage.is_random) == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["dataset.eval_split=null"],
        ["dataset.eval_split=null", "trainer.early_stopping.patience=3", "trainer.early_stopping.monitor=loss"],
        ["trainer.early_stopping.patience=3"],
        ["dataset.on_corrupt=skip"],
        ["transform=augmented_224", "cache=none"],
        ["transform=augmented_224", "cache.at=resize"],
        ["transform.steps=[decode,center_crop,resize,scale_minus_one_one]"],
    ],
)
def test_what_fits_is_planned(overrides: list[str]) -> None:
    assert plan_of(*overrides).remarks == ()


ORDER_IS_LOOSE = "false: the order of the examples, and so every result, differs from run to run."


@pytest.mark.parametrize(
    ("overrides", "remarks"),
    [
        ([], ()),
        (["extract.deterministic=false"], (f"extract.deterministic = {ORDER_IS_LOOSE}",)),
        (["transform.deterministic=false"], (f"transform.deterministic = {ORDER_IS_LOOSE}",)),
        (
            ["extract.deterministic=false", "transform.deterministic=false"],
            (f"extract.deterministic and transform.deterministic = {ORDER_IS_LOOSE}",),
        ),
        (["extract=sequential"], ()),
    ],
)
def test_a_loose_order_is_remarked(overrides: list[str], remarks: tuple[str, ...]) -> None:
    assert plan_of(*overrides).remarks == remarks


def fingerprint(parameter: str, *overrides: str) -> str:
    """Of a config in which the parameter can have another value."""
    return plan_of(*beside(parameter), *overrides).fingerprint


def test_every_parameter_has_another_value_to_try() -> None:
    of_other_options = {"extract.decode", "model.step_ms", "model.eval_step_ms", "profile.windows"}
    of_other_options |= {"trainer.seconds", "trainer.step_ms", "trainer.step_cores"}
    of_other_options |= {"trainer.callbacks", "trainer.arguments"}  # those of packages
    of_other_options |= {"model.units", "model.dropout", "model.wide", "model.layer"}
    of_other_options |= {"load.boundaries", "load.batch_sizes", "load.tokens_per_batch", "load.drop_long"}
    assert OTHER_VALUES.keys() == KINDS.keys() - of_other_options


@pytest.mark.parametrize("parameter", sorted(OTHER_VALUES))
def test_the_fingerprint_tells_what_changes_numbers_from_what_changes_only_the_speed(parameter: str) -> None:
    other = fingerprint(parameter, f"{parameter}={OTHER_VALUES[parameter]}")
    assert (other == fingerprint(parameter)) is (KINDS[parameter] is Kind.SPEED)


@pytest.mark.parametrize(
    "override", ["cache=none", "cache=disk", "load.prefetch=0", "load.prefetch=3", "load.prefetch=autotune"]
)
def test_neither_caches_nor_prefetching_change_the_fingerprint(override: str) -> None:
    assert plan_of(override).fingerprint == plan_of("cache=memory").fingerprint


@pytest.mark.parametrize(
    "overrides",
    [
        ["extract=sequential"],
        ["extract=tfds"],
        ["dataset.eval_split=null"],
        ["load.shuffle_buffer=0"],
        ["transform.steps=[decode,center_crop,resize,scale_minus_one_one]"],
        ["transform.steps=[decode,resize,center_crop,scale_minus_one_one]"],
        ["transform.eval_steps=[decode,center_crop,resize,scale_minus_one_one]"],
    ],
)
def test_other_stages_are_another_fingerprint(overrides: list[str]) -> None:
    assert plan_of(*overrides).fingerprint != plan_of().fingerprint


def test_a_fingerprint_is_16_hex_digits_and_the_same_each_time() -> None:
    assert re.fullmatch("[0-9a-f]{16}", plan_of().fingerprint)
    assert plan(spec_of()).fingerprint == plan(spec_of()).fingerprint
