"""Targets of rows: their heads, losses and metrics, and values that can't be learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.planning.plan import given_to_model
from etlrun.run import model as models
from etlrun.run.custom_objects import R2, Scaled
from etlrun.stages.keras_objects import objective
from etlrun.stages.made import make
from etlrun.stages.trainer import Trainer
from tests.configs import plan_of, refusal_of_plan
from tests.golden import Case, Golden, cases
from tests.networks import compile_with
from tests.tables import houses, words_of

LEARNS = ("model=tabular", "model.units=[4]")
NUMBERS = ["mae", "rmse", "r2"]


def words(folder: Path, *others: str, target: str) -> tuple[str, ...]:
    """Arguments of a run that trains on the houses in `folder`."""
    given = (word for word in words_of(folder, *LEARNS, *others, target=target))
    return tuple(word for word in given if word not in ("model=emulated", "model.step_ms=0"))


def fit_of(*of_run: str) -> Trainer:
    trainer = plan_of(*of_run).spec.fit
    assert trainer is not None
    return trainer


def compiled(*of_run: str) -> keras.Model:
    """The compiled model of a plan."""
    planned = plan_of(*of_run)
    trainer, flow = planned.spec.fit, given_to_model(planned.train)
    assert trainer is not None
    classes = ("cheap", "dear") if flow.features[flow.target].is_class else None
    model = models.build(planned.spec.model, flow, (), classes and len(classes), trainer.loss)
    made = objective(trainer, classes, target=flow.features[flow.target])
    compile_with(model, trainer, made)
    return model


KINDS: dict[str, tuple[str, list[str]]] = {
    "{band: class}": ("crossentropy", ["accuracy"]),
    "{band: binary}": ("crossentropy", ["accuracy", "auc", "precision", "recall"]),
    "{price: number}": ("mean_squared_error", NUMBERS),
    "{price: {number: standardize}}": ("mean_squared_error", NUMBERS),
}


@pytest.mark.parametrize("target", KINDS)
def test_the_kind_of_a_target_decides_loss_and_metrics(table: Path, target: str) -> None:
    trainer = fit_of(*words(table, target=target))
    assert (trainer.loss, [*trainer.metrics]) == KINDS[target]


def test_the_positive_class_is_told_and_is_the_last(table: Path, tmp_path: Path) -> None:
    planned = plan_of(*words(table, target="{band: binary}"))
    assert "band is dear or cheap: the model gives the probability of dear." in planned.remarks
    model = compiled(*words(table, target="{band: binary}"))
    assert (model.layers[-1].activation, model.output_shape) == (keras.activations.sigmoid, (None, 1))
    changed(tmp_path, band=pa.array(["yes" if of == "cheap" else "z" for of in houses()["band"].to_pylist()]))
    planned = plan_of(*words(tmp_path, target="{band: binary}"))
    assert "band is yes or z: the model gives the probability of yes." in planned.remarks
    planned = plan_of(*words(table, "dataset.inputs=[area]", target="{garden: binary}"))
    assert "garden is true or false: the model gives the probability of true." in planned.remarks


def test_a_standardized_target_is_learned_in_deviations_and_predicted_in_its_units(table: Path) -> None:
    planned = plan_of(*words(table, target="{price: {number: standardize}}"))
    prices = planned.train[-2].steps[-1].stage.outputs[-1].steps[0]  # type: ignore[attr-defined]
    model = compiled(*words(table, target="{price: {number: standardize}}"))
    model.layers[-2].set_weights([of * 0 for of in model.layers[-2].get_weights()])
    inputs = {of.name: np.zeros((2, *of.shape[1:]), of.dtype) for of in model.inputs}
    wanted = np.array([prices.mean + prices.std, prices.mean - prices.std], "float32")
    np.testing.assert_allclose(model.predict_on_batch(inputs), [[prices.mean]] * 2, rtol=1e-6)
    found = model.test_on_batch(inputs, wanted, return_dict=True)
    assert found["loss"] == pytest.approx(1, rel=1e-4)
    assert [found["mae"], found["rmse"]] == pytest.approx([prices.std] * 2, rel=1e-4)
    assert found["r2"] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("factor", "target", "is_noted"), [(1, "number", 1), (1e-3, "number", 0), (1, "{number: standardize}", 0)]
)
def test_a_plan_notes_a_target_of_large_numbers_that_is_not_standardized(
    factor: float, target: str, is_noted: int, tmp_path: Path
) -> None:
    changed(tmp_path, price=pa.array(np.array(PRICES) * factor))
    planned = plan_of(*words(tmp_path, "dataset.inputs=[area]", target=f"{{price: {target}}}"))
    note = (
        "price has a standard deviation of 166,124: with {price: {number: standardize}} in dataset.target it takes "
        "fewer epochs to learn."
    )
    assert [of for of in planned.remarks if "deviation" in of] == [note] * is_noted


STANDARDIZED = "transform.columns={area: {steps: [standardize]}}"


@pytest.mark.parametrize(("factor", "is_noted"), [(1e-9, 1), (1e-8, 0)])
def test_a_plan_notes_a_column_of_tiny_numbers_that_is_standardized(
    factor: float, is_noted: int, tmp_path: Path
) -> None:
    changed(tmp_path, area=pa.array(factor * np.arange(200)))
    planned = plan_of(*words(tmp_path, "dataset.inputs=[area]", STANDARDIZED, target="{price: number}"))
    note = (
        "area has a standard deviation of 5.77e-08, and standardize divides by 1e-07 at least, as Keras does: write it "
        "in a smaller unit, or use minmax."
    )
    assert [of for of in planned.remarks if "deviation of 5" in of] == [note] * is_noted


def test_a_plan_notes_that_no_table_is_there(tmp_path: Path) -> None:
    planned = plan_of(*words(tmp_path, target="{price: number}"))
    assert planned.remarks[0] == "houses.parquet is not on this machine: its columns are neither checked nor fitted."


def test_r2_is_exact_far_from_zero() -> None:
    values = np.array([2_000.0, 2_001, 2_003, 2_002], "float32")
    metric = R2(origin=2_001.5)
    metric.update_state(values, values[:, None] + 0.5)
    assert float(metric.result()) == pytest.approx(1 - 4 * 0.25 / 5)
    copy = R2.from_config(metric.get_config())
    assert (copy.origin, copy.name) == (2_001.5, "r2")


@pytest.mark.parametrize("name", ["mean_squared_error", "mean_absolute_error", "huber"])
def test_a_scaled_loss_is_that_of_scaled_numbers(name: str) -> None:
    wanted, found = np.array([10.0, 40.0], "float32"), np.array([[30.0], [0.0]], "float32")
    loss = Scaled.from_config(Scaled(name, 10.0).get_config())
    scaled = getattr(keras.losses, name)(wanted[:, None] / 10, found / 10)
    assert float(loss(wanted, found)) == pytest.approx(float(np.mean(scaled)))


def test_poisson_predicts_positive_numbers(table: Path) -> None:
    model = compiled(*words(table, "trainer.loss=poisson", target="{price: number}"))
    assert model.layers[-1].activation is keras.activations.exponential


@pytest.mark.parametrize("metrics", ["[mae,rmse,r2]", "[r2]"])
def test_numbers_of_other_datasets_have_the_metrics_that_a_config_names(metrics: str) -> None:
    planned = plan_of(
        "dataset=tfds", "dataset.name=own", "+dataset.features={image: image}", "+dataset.target={answer: float32}",
        f"trainer.metrics={metrics}",
    )  # fmt: skip
    trainer = planned.spec.fit
    assert trainer is not None
    made = make(objective(trainer, None))
    assert (made["loss"], [of.name for of in made["metrics"]]) == ("mean_squared_error", metrics[1:-1].split(","))
    named = metrics[1:-1].replace(",", ", ")
    assert f"answer is not a class: its loss is the mean squared error, and its metrics are {named}." in planned.remarks


def changed(folder: Path, **columns: Any) -> None:
    """Write the houses again, some columns of which are others."""
    found = houses()
    for name, values in columns.items():
        found = found.set_column(found.column_names.index(name), name, values)
    pyarrow.parquet.write_table(found, folder / "houses.parquet")


PRICES = houses()["price"].to_pylist()
CHANGED: dict[str, dict[str, Any]] = {
    "missing": {"price": [*PRICES[:3], None, None, *PRICES[5:]]},
    "a text among numbers": {"band": ["1.5", " 2", *map(str, range(197)), "n.a."]},
    "times": {"band": np.full(200, "2020-01-01", "datetime64[us]")},
    "the same number": {"price": [7.5] * 200},
    "the same class": {"band": ["dear"] * 200},
    "four kinds": {"kind": ["flat", "loft", "hut", "hall"] * 50},
    "new classes": {"band": [*["dear", "cheap"] * 95, "free", "given", *["dear", "cheap"] * 4]},
}
"""Columns of the houses that cases of the table change."""


@pytest.mark.parametrize("case", cases("targets"))
def test_values_that_can_not_be_learned_are_refused(tmp_path: Path, case: Case, golden: Golden) -> None:
    changed(tmp_path, **{name: pa.array(values) for name, values in CHANGED.get(case.get("houses"), {}).items()})
    golden(case, refusal_of_plan(*words(tmp_path, *case["overrides"], target=case["target"])))


IF_ALONE = """set 'dataset.missing=["", "null"]'"""
TOLD = {
    "{region: class}": (
        "dataset.target: ",
        "a value in each row to learn from\n    -> leave these rows out of the files",
    ),
    "{kind: class}": (
        "dataset.split_by.stratify: ",
        "a value in each row, which decides its split\n    -> leave these rows out of the data",
    ),
}


@pytest.mark.parametrize("others", [("1", "2", "3"), ("1", "NA", "3")], ids=["alone", "in another column, too"])
@pytest.mark.parametrize("target", TOLD)
def test_a_text_that_stands_for_none_is_told_where_it_may_be_a_value(
    target: str, others: tuple[str, ...], tmp_path: Path
) -> None:
    rows = zip(["NA", "EU", "AS"] * 20, others * 20, ["a", "b"] * 30, strict=True)
    (tmp_path / "a.csv").write_text("region,area,kind\n" + "".join(f"{','.join(row)}\n" for row in rows))
    (tmp_path / "b.csv").write_text("kind,area,region\nb,1,EU\n")
    of_run = (*words(tmp_path, target=target), f"dataset.files={{train: '{tmp_path}/*.csv'}}", "dataset.inputs=[area]")
    of_run = (*of_run, *["dataset.split_by={stratify: region}"] * ("kind" in target))
    where, what = TOLD[target]
    is_alone = "NA" not in others
    remedy = IF_ALONE if is_alone else "write another text for it, since area has it for none, too"
    assert refusal_of_plan(*of_run) == (
        f"{where}found 20 rows of region without a value, since NA stands for none, the first of which is row 0; "
        f"expected {what}, or, if that is a value, {remedy}"
    )
    if is_alone:
        dataset = plan_of(*of_run, 'dataset.missing=["", "null"]').spec.dataset
        assert dataset.found.classes == (("AS", "EU", "NA") if "region" in target else ("a", "b"))  # type: ignore[attr-defined]
        told = refusal_of_plan(
            *of_run, r"dataset.missing=['', NA, '\\N']"
        )  # which Hydra would read otherwise in an override
        assert told.endswith("or, if that is a value, leave NA out of dataset.missing")


def test_smaller_errors_are_better(table: Path) -> None:
    stopping = ("trainer.early_stopping.patience=1", "trainer.early_stopping.monitor=val_rmse")
    assert fit_of(*words(table, *stopping, target="{price: number}")).early_stopping.arguments["mode"] == "min"
    stopping = ("trainer.early_stopping.patience=1", "trainer.early_stopping.monitor=val_r2")
    assert fit_of(*words(table, *stopping, target="{price: number}")).early_stopping.arguments["mode"] == "max"
