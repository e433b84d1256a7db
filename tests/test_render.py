import json
from collections.abc import Iterable
from typing import Any

import pytest

from etlrun.planning import render
from etlrun.planning.plan import PlannedStage
from etlrun.review.evidence import GoldenPlans
from tests.configs import CONF, EXPERIMENTS, TENSORFLOW, experiment, plan_of

PLANS = CONF.parent / "tests" / "golden" / "plans"

DEFAULT_MERMAID = """\
flowchart LR
  train_0[("etlrun_sample<br/>train[:80%]")]
  train_1["extract.sequential<br/>shuffle_files=false"]
  train_0 --> train_1
  train_2["transform.map<br/>transform.parse<br/>transform.decode<br/>transform.resize\
<br/>num_parallel_calls=autotune<br/>deterministic=true"]
  train_1 --> train_2
  train_3["cache.memory<br/>at=transformed<br/>dtype=auto<br/>dir=null<br/>when_busy=uncached<br/>codec=raw"]
  train_2 --> train_3
  train_4["load.shuffle<br/>buffer_size=1024<br/>seed=0"]
  train_3 --> train_4
  train_5["load.batch<br/>batch_size=32<br/>drop_remainder=false<br/>num_parallel_calls=autotune"]
  train_4 --> train_5
  train_5 --> model
  validation_0[("etlrun_sample<br/>train[80%:]")]
  validation_1["extract.sequential<br/>shuffle_files=false"]
  validation_0 --> validation_1
  validation_2["transform.map<br/>transform.parse<br/>transform.decode<br/>transform.resize\
<br/>num_parallel_calls=autotune<br/>deterministic=true"]
  validation_1 --> validation_2
  validation_3["cache.memory<br/>at=transformed<br/>dtype=auto<br/>dir=null<br/>when_busy=uncached<br/>codec=raw"]
  validation_2 --> validation_3
  validation_4["load.batch<br/>batch_size=32<br/>drop_remainder=false<br/>num_parallel_calls=autotune"]
  validation_3 --> validation_4
  validation_4 --> model
  model["transform.scale_minus_one_one<br/>model.mobilenet_v2"]
"""


def test_plans_read_as_they_were_reviewed() -> None:
    plans = {"default": plan_of(), **{name: plan_of(*experiment(name)) for name in EXPERIMENTS}}
    faults = [*GoldenPlans(PLANS, plans, set(plans)).faults()]
    assert not faults, "review what `python -m etlrun check --update` makes of them"


def test_without_validation_the_text_says_none() -> None:
    text = render.text(plan_of("dataset.eval_split=null"))
    assert "\nvalidation\n     none\n\nmodel.mobilenet_v2\n" in text


@pytest.mark.parametrize("key", ["dataset.weight", "transform.parse_batch", "trainer.clipvalue"])
def test_an_optional_value_that_is_null_is_in_the_json_alone(key: str) -> None:
    plan, other = plan_of(), plan_of(f"{key}=null")
    name = key.rpartition(".")[2]
    assert f"{name} " not in render.text(plan)
    assert f"{name}=" not in render.mermaid(plan)
    assert f'"{name}": {{' in render.as_json(plan)
    assert (render.text(other), other.fingerprint) == (render.text(plan), plan.fingerprint)


def test_an_optional_value_that_is_set_is_shown() -> None:
    plan = plan_of("transform.parse_batch=32", "cache.dir=null")
    assert "\n       parse_batch           32                   speed\n" in render.text(plan)
    assert "<br/>parse_batch=32" in render.mermaid(plan)
    assert "\n       dir                   null                 speed\n" in render.text(plan)


def test_remarks_are_the_last_lines_of_the_text() -> None:
    plan = plan_of("transform.deterministic=false")
    assert render.text(plan).splitlines()[-2:] == [
        f"fingerprint {plan.fingerprint}",
        (
            "note: transform.deterministic = false: the order of the examples, and so every result, differs from run "
            "to run."
        ),
    ]


def _outline(stages: Iterable[PlannedStage]) -> list[tuple[str, str, list[Any]]]:
    return [(planned.stage.path, str(planned.gives), _outline(planned.steps)) for planned in stages]


def _outline_of_json(stages: list[dict[str, Any]]) -> list[tuple[str, str, list[Any]]]:
    return [(stage["stage"], stage["gives"], _outline_of_json(stage.get("steps", []))) for stage in stages]


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


def test_json_has_each_value_with_its_kind() -> None:
    document = json.loads(render.as_json(plan_of("extract.deterministic=false")))
    assert document["train"][0]["parameters"] == {
        "cycle_length": {"value": 4, "kind": "order"},
        "block_length": {"value": 1, "kind": "order"},
        "num_parallel_calls": {"value": "autotune", "kind": "speed"},
        "deterministic": {"value": False, "kind": "order"},
        "shuffle_files": {"value": False, "kind": "order"},
    }
    assert document["train"][2]["steps"][1]["parameters"]["size"] == {"value": [64, 64], "kind": "data"}
    assert document["dataset"]["data_dir"] == {"value": None, "kind": "speed"}
    assert document["model"]["parameters"]["alpha"] == {"value": 0.35, "kind": "training"}
    assert document["trainer"]["parameters"]["device"] == {"value": "auto", "kind": "training"}
    assert document["trainer"]["early_stopping"]["monitor"] == {"value": "val_loss", "kind": "training"}
    assert document["remarks"] == [
        "extract.deterministic = false: the order of the examples, and so every result, differs from run to run."
    ]


def test_mermaid_draws_a_chain_from_each_split_to_the_model() -> None:
    assert render.mermaid(plan_of("extract=sequential", "load.prefetch=0", TENSORFLOW)) == DEFAULT_MERMAID


def test_mermaid_leaves_validation_out_where_there_is_none() -> None:
    lines = render.mermaid(plan_of("dataset.eval_split=null")).splitlines()
    assert lines[0] == "flowchart LR"
    assert [line for line in lines if "validation" in line] == []


def test_mermaid_escapes_quotes() -> None:
    lines = render.mermaid(plan_of("dataset.name='a \"b\" c'")).splitlines()
    assert lines[1] == '  train_0[("a #quot;b#quot; c<br/>train[:80%]")]'
