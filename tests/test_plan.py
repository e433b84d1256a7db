"""Specs and plans: the order of stages, fingerprints, and plans as text and JSON."""

import json
import re
from collections.abc import Iterable, Iterator
from pprint import pformat
from typing import Any

import pytest

from etlrun.config.request import Request, changed_from_defaults
from etlrun.planning import render
from etlrun.planning.outline import outline as printed
from etlrun.planning.plan import PlannedStage
from etlrun.planning.planner import plan
from etlrun.planning.spec import show
from etlrun.review.check import Checked, compare_plans
from etlrun.review.difference import compare
from etlrun.review.folders import working_tree
from etlrun.stages.base import Kind
from etlrun.stages.image import Decode, RandomFlip, Rescale, Resize
from tests.configs import (
    CONF,
    EXPERIMENTS,
    KINDS,
    OTHER_VALUES,
    TENSORFLOW,
    beside,
    composed,
    experiment,
    plan_of,
    refusal_of,
    refusal_of_config,
    refusal_of_spec,
    spec_of,
)
from tests.golden import MESSAGES, Case, Golden, Says, cases


def outline(stages: Iterable[PlannedStage], indent: str = "  ") -> Iterator[str]:
    for planned in stages:
        yield f"{indent}{planned.stage.path}{', at random' * planned.is_random} -> {planned.gives}"
        yield from outline(planned.steps, f"{indent}  ")


@pytest.mark.parametrize("case", cases("outlines"))
def test_the_order_of_stages(case: Case, golden: Golden) -> None:
    plan = plan_of(*case["overrides"])
    parts = {"train": plan.train, "validation": plan.evaluation, "model": plan.by_model}
    golden(case, "\n".join(line for name, stages in parts.items() for line in (name, *outline(stages))))


@pytest.mark.parametrize("case", cases("printed_plans"))
def test_a_plan_fits_a_screen(case: Case, golden: Golden) -> None:
    plan, request = plan_of(*case["overrides"]), Request(overrides=case["overrides"])
    text = printed(plan, changed_from_defaults(request, composed(*case["overrides"])))
    golden(case, text.replace(plan.fingerprint, "#"))
    assert len(lines := text.splitlines()) <= 40
    assert max(len(line) for line in lines if not line.startswith("note: ")) <= 100


@pytest.mark.parametrize("drop", ["true", "false"])
def test_validation_never_drops_the_remainder(drop: str) -> None:
    planned = plan_of(f"load.drop_remainder={drop}", "load.prefetch=0")
    assert getattr(planned.train[-1].stage, "drop_remainder", None) is (drop == "true")
    assert getattr(planned.evaluation[-1].stage, "drop_remainder", None) is False


def test_shuffling_takes_the_seed_of_the_trainer(says: Says) -> None:
    shuffle = plan_of("trainer.seed=7", "load.shuffle_buffer=9").train[4].stage
    says((shuffle.path, getattr(shuffle, "seed", None), getattr(shuffle, "buffer_size", None)))


@pytest.mark.parametrize("case", cases("notes"))
def test_a_plan_notes_what_is_worth_knowing(case: Case, golden: Golden) -> None:
    golden(case, "\n".join(plan_of(*case["overrides"]).remarks))


def fingerprint(parameter: str, *overrides: str) -> str:
    """Of a config in which the parameter can have another value."""
    return plan_of(*beside(parameter), *overrides).fingerprint


def test_every_parameter_has_another_value_to_try() -> None:
    of_other_options = {"extract.decode", "model.step_ms", "model.eval_step_ms", "profile.windows"}
    of_other_options |= {"trainer.seconds", "trainer.step_ms", "trainer.step_cores"}
    of_other_options |= {"trainer.callbacks", "trainer.loss"}  # those of packages and of numbers
    of_other_options |= {
        "model.units",
        "model.dropout",
        "model.wide",
        "model.heads",
        "model.frequencies",
        "model.layer",
        "model.base",
    }
    of_other_options |= {"load.boundaries", "load.tokens_per_batch", "load.drop_long"}
    assert OTHER_VALUES.keys() == KINDS.keys() - of_other_options


@pytest.mark.parametrize("parameter", sorted(OTHER_VALUES))
def test_the_fingerprint_tells_what_changes_numbers_from_what_changes_only_the_speed(parameter: str) -> None:
    other = fingerprint(parameter, f"{parameter}={OTHER_VALUES[parameter]}")
    decides_nothing = parameter == "dataset.eval_splits"  # unless the monitor names one of the sets
    assert (other == fingerprint(parameter)) is (KINDS[parameter] is Kind.SPEED or decides_nothing)


def test_other_stages_are_another_fingerprint_unless_they_are_about_speed() -> None:
    same = {plan_of(*words).fingerprint for words in ((), ("cache=none",), ("cache=disk",), ("load.prefetch=0",))}
    words = ["extract=sequential", "extract=tfds", "dataset.eval_split=null", "load.shuffle_buffer=0"]
    words += ["transform.steps=[decode,center_crop,resize,scale_minus_one_one]"]
    words += ["transform.steps=[decode,resize,center_crop,scale_minus_one_one]"]
    words += ["transform.eval_steps=[decode,center_crop,resize,scale_minus_one_one]"]
    assert same == {plan(spec_of()).fingerprint}
    assert len(same | {plan_of(word).fingerprint for word in words}) == 1 + len(words)
    assert all(re.fullmatch("[0-9a-f]{16}", found) for found in same)


GOLDEN = MESSAGES.parent


@pytest.mark.smoke
def test_the_default_config_is_this_spec(golden: Golden) -> None:
    golden(GOLDEN / "spec.txt", f"{pformat(spec_of())}\n")


def test_training_and_validation_have_their_own_steps_and_share_their_parameters() -> None:
    spec = spec_of(
        "transform.steps=[decode,random_flip,resize,rescale]",
        "transform.eval_steps=[decode,resize,rescale]",
        "++transform.rescale={scale: 0.5, offset: -1}",
    )
    resize = Resize(size=(64, 64), method="bilinear", antialias=False, dtype="uint8")
    rescale = Rescale(scale=0.5, offset=-1.0)
    assert spec.transform.steps == (Decode(), RandomFlip(), resize, rescale)
    assert spec.eval_transform.steps == (Decode(), resize, rescale)


def test_parameters_of_an_unused_step_may_be_null() -> None:
    spec = spec_of("transform.steps=[decode]", "transform.eval_steps=[decode]", "transform.resize=null")
    assert spec.transform.steps == (Decode(),)


@pytest.mark.parametrize("case", cases("stages"))
def test_a_config_that_stages_refuse_is_told_why(case: Case, golden: Golden) -> None:
    golden(case, refusal_of(*case["overrides"]))


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("load.shuffle_buffer",), 100_000_000),
        (("load.prefetch",), 1_000_000),
        (("extract.cycle_length",), 10_000),
        (("extract.num_parallel_calls", "extract.cycle_length=10000"), 10_000),
        (("transform.num_parallel_calls",), 10_000),
        (("model.alpha",), 10),
        (("model.step_ms", "model=emulated"), 86_400_000),
        (("model.eval_step_ms", "model=emulated"), 86_400_000),
        (("load.batch_size",), 2**63 - 1),
        (("trainer.steps_per_epoch",), 2**63 - 1),
    ],
)
def test_numbers_that_no_machine_can_bear_are_refused(words: tuple[str, ...], limit: int) -> None:
    key, *others = words
    spec_of(*others, f"{key}={limit}")
    assert refusal_of_spec(*others, f"{key}={limit + 1}").startswith(f"{key}: found {limit + 1}; expected a")


@pytest.mark.parametrize("value", [None, "none", [1], False])
def test_a_group_must_be_a_mapping(value: object, says: Says) -> None:
    groups = ("dataset", "extract", "transform", "cache", "load", "model", "trainer", "profile", "measure")
    says([refusal_of_config(composed() | {group: value}) for group in groups])


def test_a_missing_group_is_told(says: Says) -> None:
    says(refusal_of_config({group: of for group, of in composed().items() if group != "load"}))


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), (True, "true"), ("a b", "'a b'"), (0.5, "0.5"), ((64, 64), "[64, 64]")]
)
def test_values_are_shown_as_in_yaml(value: object, text: str) -> None:
    assert show(value) == text


def test_an_integer_of_more_digits_than_python_prints_is_refused(says: Says) -> None:
    says(refusal_of_config(composed() | {"load": {**composed()["load"], "batch_size": 16**5000}}))


PLANS = CONF.parent / "tests" / "golden" / "plans"


def test_plans_read_as_they_were_reviewed() -> None:
    plans = {"default": plan_of(), **{name: plan_of(*experiment(name)) for name in EXPERIMENTS}}
    checked = Checked(folders=working_tree(None), plans=plans, experiments=[*plans])
    assert [*compare_plans(checked, PLANS, update=False)] == []
    assert not checked.faults, "review what `python -m etlrun check --update` makes of them"


def test_without_validation_the_text_says_none() -> None:
    text = render.text(plan_of("dataset.eval_split=null"))
    assert "\nvalidation\n     none\n\nmodel.mobilenet_v2\n" in text


@pytest.mark.parametrize("key", ["dataset.weight", "trainer.ema_momentum", "trainer.global_clipnorm"])
def test_an_optional_value_that_is_null_is_in_the_json_alone(key: str) -> None:
    plan, other = plan_of(), plan_of(f"{key}=null")
    name = key.rpartition(".")[2]
    assert f"{name} " not in render.text(plan)
    assert f'"{name}": {{' in render.as_json(plan)
    assert (render.text(other), other.fingerprint) == (render.text(plan), plan.fingerprint)


def test_an_optional_value_that_is_set_is_shown() -> None:
    plan = plan_of("trainer.weight_decay=0.5", "cache.dir=null")
    assert "\n     weight_decay          0.5                  training\n" in render.text(plan)
    assert "\n       dir                   null                 speed\n" in render.text(plan)


def test_remarks_are_the_last_lines_of_the_text() -> None:
    plan = plan_of("transform.deterministic=false")
    assert render.text(plan).splitlines()[-2:] == [f"fingerprint {plan.fingerprint}", f"note: {plan.remarks[0]}"]


def _outline(stages: Iterable[PlannedStage]) -> list[tuple[str, str, list[Any]]]:
    return [(planned.stage.path, str(planned.gives), _outline(planned.steps)) for planned in stages]


def _outline_of_json(stages: list[dict[str, Any]]) -> list[tuple[str, str, list[Any]]]:
    return [(stage["stage"], stage["gives"], _outline_of_json(stage.get("steps", []))) for stage in stages]


@pytest.mark.smoke
@pytest.mark.parametrize("overrides", [[], ["experiment=naive"], ["dataset.eval_split=null"]])
def test_json_has_the_stages_of_the_plan(overrides: list[str]) -> None:
    plan = plan_of(*overrides)
    document = json.loads(render.as_json(plan))
    assert _outline_of_json(document["train"]) == _outline(plan.train)
    assert _outline_of_json(document["validation"]) == _outline(plan.evaluation)
    assert document["model"]["stage"] == "model.mobilenet_v2"
    assert _outline_of_json(document["model"]["steps"]) == _outline(plan.by_model)
    assert document["trainer"]["stage"] == "trainer.fit"
    assert (document["format"], document["fingerprint"]) == (1, plan.fingerprint)


def test_json_has_each_value_with_its_kind(says: Says) -> None:
    document = json.loads(render.as_json(plan_of("extract.deterministic=false")))
    says(document["train"][0]["parameters"])
    assert document["train"][2]["steps"][1]["parameters"]["size"] == {"value": [64, 64], "kind": "data"}
    assert document["dataset"]["data_dir"] == {"value": None, "kind": "speed"}
    assert document["model"]["parameters"]["alpha"] == {"value": 0.35, "kind": "training"}
    assert document["trainer"]["parameters"]["device"] == {"value": "auto", "kind": "training"}
    assert document["trainer"]["early_stopping"]["monitor"] == {"value": "val_loss", "kind": "training"}
    says(document["remarks"])


SERVICE = ("load=service", "load.service.address=cpu1:5050", "load.service.trusted_network=true", "cache=none")


def test_a_service_changes_no_result() -> None:
    plan, local = plan_of(*SERVICE), plan_of("cache=none", TENSORFLOW)
    assert plan.fingerprint == local.fingerprint
    assert spec_of(*SERVICE).has_order


def test_a_diff_tells_the_kinds(says: Says) -> None:
    old, new = ("cache=none", TENSORFLOW), (*SERVICE, TENSORFLOW)
    told = compare(plan_of(*old), plan_of(*new), (composed(*old), composed(*new)))
    assert told.headline == "changes only the speed"
    says([(of.path, of.old, of.new, of.kind) for of in told.differences])
