"""Heads that share the layers of a tabular model: what they learn and what they can't."""

import json
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.planning.plan import Plan, given_to_model
from etlrun.sources.base import open_source
from etlrun.stages.keras_models import build
from etlrun.stages.keras_objects import objectives
from tests.configs import plan_of
from tests.forked import Forked
from tests.golden import Says
from tests.networks import compile_with
from tests.pipelines import training_pipeline
from tests.runs import finish_well
from tests.tables import TARGETS, houses, several, words_of

HEADS = 3
EACH = {
    "class": "{kind: class}",
    "binary": "{garden: binary}",
    "number": "{rooms: number}",
    "standardized": "{price: {number: standardize}}",
    "labels": "{tags: {labels: ','}}",
    "several": TARGETS,
}
"""Targets of each kind."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, table = tmp_path_factory.mktemp("heads"), several()
    kinds = pa.array([of or "flat" for of in houses()["kind"].to_pylist()])
    table = table.set_column(table.column_names.index("kind"), "kind", kinds)
    pyarrow.parquet.write_table(table, folder / "houses.parquet")
    return folder


def planned(folder: Path, target: str, *others: str) -> Plan:
    small = (
        "model=tabular",
        "model.units=[5]",
        f"model.heads={HEADS}",
        "model.frequencies=2",
        "model.wide=true",
        "dataset.inputs=[area]",
    )
    return plan_of(*words_of(folder, *small, "load.batch_size=160", *others, target=target))


def built(plan: Plan) -> keras.Model:
    flow, trainer, weights = given_to_model(plan.train), plan.spec.fit, plan.spec.dataset.loss_weights
    assert trainer is not None
    source = open_source(plan.spec.dataset)
    keras.utils.set_random_seed(0)
    model = build(plan.spec.model, flow, (), source.num_classes, weights)
    compile_with(model, trainer, objectives(trainer, flow, source.names_of_classes, weights))
    return model


def losses_of_heads(plan: Plan) -> dict[str, float]:
    """The loss of a step of training, that of the validation, and the mean of those of each head as the only one."""
    model = built(plan)
    with training_pipeline(plan) as pipeline:
        batch = next(iter(pipeline.dataset.as_numpy_iterator()))
    before, each = model.get_weights(), []
    dense = [layer for layer in model.layers if isinstance(layer, keras.layers.EinsumDense) and "k" in layer.equation]
    of_heads = [of.path for layer in dense for of in layer.weights]
    for place in range(HEADS):
        same = [
            np.repeat(value[place : place + 1], HEADS, axis=0) if of.path in of_heads else value
            for of, value in zip(model.weights, before, strict=True)
        ]
        model.set_weights(same)
        each.append(float(model.test_on_batch(*batch, return_dict=True)["loss"]))
    model.set_weights(before)
    validation = float(model.test_on_batch(*batch, return_dict=True)["loss"])
    model.reset_metrics()
    training = float(model.train_on_batch(*batch, return_dict=True)["loss"])
    return {"training": training, "validation": validation, "mean of heads": float(np.mean(each))}


@pytest.mark.parametrize("kind", EACH)
def test_the_mean_of_the_losses_is_trained_and_the_loss_of_the_mean_is_that_of_the_validation(
    kind: str, rows: Path
) -> None:
    found = losses_of_heads(planned(rows, EACH[kind]))
    assert found["training"] == pytest.approx(found["mean of heads"], rel=1e-5)
    assert found["validation"] < found["training"] * (1 - 1e-3)


def test_smoothed_labels_have_the_same_second_term(rows: Path) -> None:
    found = losses_of_heads(planned(rows, EACH["class"], "trainer.label_smoothing=0.1"))
    assert found["training"] == pytest.approx(found["mean of heads"], rel=1e-5)


def test_one_head_is_the_model_without_heads(rows: Path) -> None:
    plan = planned(rows, EACH["standardized"], "model.heads=1")
    assert not [key for key in plan.decisive if "heads" in key]
    assert [of.name for of in built(plan).layers][-2:] == ["standardized", "value"]
    assert plan.fingerprint != planned(rows, EACH["standardized"]).fingerprint


def test_a_plan_notes_that_weights_of_rows_are_not_those_of_the_second_term(rows: Path, says: Says) -> None:
    noted = [planned(rows, EACH["number"], "dataset.weight=times", *of) for of in ((), ("model.heads=1",))]
    says([[of for of in plan.remarks if "weighs" in of] for plan in noted])


def print_losses(folder: Path) -> None:
    print(json.dumps({"backend": keras.backend.backend(), **losses_of_heads(planned(folder, EACH["several"]))}))


@pytest.mark.needs("jax")
def test_heads_learn_the_same_on_jax(rows: Path, tmp_path: Path) -> None:
    found = json.loads(finish_well(Forked(partial(print_losses, rows), tmp_path, on_jax=True))[0])
    assert found["backend"] == "jax"
    assert found["training"] == pytest.approx(found["mean of heads"], rel=1e-5)
    assert found["validation"] < found["training"]
