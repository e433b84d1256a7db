"""Phases of a training in configs, plans, differences and programs."""

from __future__ import annotations

import json

import keras
import pytest
from jsonschema import Draft7Validator

from etlrun.planning import render
from etlrun.planning.schema import schema
from etlrun.review.difference import compare
from etlrun.stages import STAGES
from etlrun.stages.model import APPLICATIONS, unfreeze
from tests.configs import plan_of, refusal_of_request

FROZEN = ("model=mobilenet_v2", "trainer.epochs=null")
TWO = "trainer.phases=[{epochs: 3}, {epochs: 5, unfreeze: last_block, learning_rate: 1e-5}]"
FINE_TUNE = ("model=mobilenet_v2", "trainer=fine_tune")


def test_a_pipeline_alone_has_no_phases() -> None:
    assert refusal_of_request("trainer=drain", "trainer.phases=[{epochs: 1}]") == (
        "trainer.phases: found an unknown key; expected one of the keys seconds, epochs, seed, step_ms, step_cores\n"
        "    -> choose trainer=fit, which has it"
    )


def test_a_plan_shows_each_phase_with_all_its_values() -> None:
    third = "trainer.phases=[{epochs: 1}, {epochs: 2, unfreeze: 7}, {epochs: 3, learning_rate: 0.1}]"
    shown = render.text(plan_of(*FROZEN, third))
    assert (
        "trainer.phases[2]\n"
        "     epochs                3                    training\n"
        "     unfreeze              7 (the last 7 of 155) training\n"
        "     learning_rate         0.1                  training\n"
    ) in shown
    (*_, last) = render.as_dict(plan_of(*FROZEN, third))["trainer"]["phases"]
    assert {name: of["value"] for name, of in last.items()} == {"epochs": 3, "unfreeze": 7, "learning_rate": 0.1}
    assert json.loads(render.as_json(plan_of(*FROZEN, TWO)))["trainer"]["parameters"]["epochs"]["value"] is None


def test_a_phase_with_its_values_given_is_the_same_as_with_those_before_it() -> None:
    given = "trainer.phases=[{epochs: 1}, {epochs: 1, unfreeze: all}, {epochs: 1, unfreeze: all, learning_rate: 0.001}]"
    taken = "trainer.phases=[{epochs: 1}, {epochs: 1, unfreeze: all}, {epochs: 1}]"
    assert plan_of(*FROZEN, given).fingerprint == plan_of(*FROZEN, taken).fingerprint
    assert plan_of(*FROZEN, TWO, "trainer.keep=last").fingerprint == plan_of(*FINE_TUNE).fingerprint
    assert "trainer.phases" not in "".join(plan_of("model=mobilenet_v2").decisive)


def test_a_plan_says_which_phases_cached_features_serve() -> None:
    four = "trainer.phases=[{epochs: 1}, {epochs: 1}, {epochs: 1, unfreeze: 9}, {epochs: 1, unfreeze: all}]"
    plan = plan_of(*FROZEN, four, "cache.at=features")
    assert plan.remarks[0] == (
        "cache.at = features: the cache serves phases 1 to 2; phases 3 to 4 train layers of the base, and read images "
        "without a cache."
    )
    assert plan.unfrozen is not None
    text = render.text(plan)
    later = text[text.index("\ntrain, from phase 3 on\n") : text.index("\nmodel.mobilenet_v2\n")]
    assert "cache." not in later
    assert "\nvalidation, from phase 3 on\n" in later
    assert "model.backbone" in text
    assert [stage["stage"] for stage in render.as_dict(plan)["unfrozen"]["train"]] == [
        planned.stage.path for planned in plan_of(*FROZEN, four, "cache=none").train
    ]
    assert plan.fingerprint == plan_of(*FROZEN, four, "cache=none").fingerprint
    frozen = plan_of(*FROZEN, "trainer.phases=[{epochs: 1}, {epochs: 1}]", "cache.at=features")
    assert (frozen.unfrozen, len(frozen.remarks)) == (None, 1)


def test_a_cache_of_features_that_is_read_in_no_phase_is_noted() -> None:
    one = "trainer.phases=[{epochs: 1}, {epochs: 4, unfreeze: all}]"
    note = "cache.memory has no effect: a single epoch never reads it back."
    assert note in plan_of(*FROZEN, one, "cache.at=features").remarks
    assert note not in plan_of(*FROZEN, one).remarks


def test_a_difference_names_the_phase_or_both_lists() -> None:
    other = TWO.replace("1e-5", "0.0001")
    (one,) = compare(plan_of(*FROZEN, TWO), plan_of(*FROZEN, other)).differences
    assert (one.path, one.old, one.new, one.kind) == ("trainer.phases[1].learning_rate", "1e-05", "0.0001", "training")
    found = {
        of.path: (of.old, of.new) for of in compare(plan_of("model=mobilenet_v2"), plan_of(*FROZEN, TWO)).differences
    }
    lists = "[{epochs: 3}, {epochs: 5, unfreeze: last_block, learning_rate: 1e-05}]"
    assert found == {"trainer.epochs": ("4", "null"), "trainer.phases": ("null", lists)}


def test_last_layers_are_trained_without_their_batch_normalizations() -> None:
    base = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None, pooling="avg")
    base.trainable = False
    unfreeze(base, APPLICATIONS["MobileNetV2"].last_block)
    trained = [layer.name for layer in base.layers if layer.trainable and layer.weights]
    assert trained == ["block_16_expand", "block_16_depthwise", "block_16_project", "Conv_1"]
    unfreeze(base, len(base.layers))
    kinds = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)
    assert all(layer.trainable == isinstance(layer, kinds) for layer in base.layers if layer.weights)


@pytest.mark.parametrize(
    ("phases", "is_valid"),
    [
        (None, True),
        ("${oc.env:PHASES}", True),
        ([{"epochs": 3}, {"epochs": "${n}", "unfreeze": "last_block", "learning_rate": 1e-5}], True),
        ([{"epochs": 1, "unfreeze": 7}, {"epochs": 1, "unfreeze": "all"}], True),
        ([], False),
        ([{"epochs": 0}], False),
        ([{"epochs": 1, "unfreeze": "first"}], False),
        ([{"epochs": 1, "unfreez": "all"}], False),
        ([{"epochs": 1, "learning_rate": 0}], False),
    ],
)
def test_editors_check_phases(phases: object, *, is_valid: bool) -> None:
    assert Draft7Validator(schema(STAGES)).is_valid({"trainer": {"phases": phases}}) is is_valid
