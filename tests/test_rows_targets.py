"""Targets of rows, one or several at once, labels and weights: heads, losses, metrics, and what can't be learned."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.eject.program import ejected
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan, given_to_model
from etlrun.record.summary import read_summary
from etlrun.run.custom_objects import R2, Scaled
from etlrun.sources.base import open_source
from etlrun.stages.columns import Labels
from etlrun.stages.keras_models import build
from etlrun.stages.keras_objects import objective, objectives
from etlrun.stages.made import make
from etlrun.stages.trainer import Trainer
from etlrun.trained.model import outputs_of
from tests.configs import plan_of, refusal_of_plan
from tests.conftest import Once
from tests.golden import Case, Golden, Says, cases
from tests.kinds import made_of
from tests.networks import compile_with
from tests.pipelines import training_pipeline
from tests.present import present
from tests.tables import LABELS, NUM_ROWS, TARGETS, houses, several, words_of
from tests.test_rows_texts import CACHES
from tests.trained import said

NAMES = ("price", "band", "garden", "tags")
INPUTS = "dataset.inputs=[area,rooms]"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    return folder


def reading(folder: Path, *others: str, target: str = TARGETS) -> tuple[str, ...]:
    return words_of(folder, INPUTS, "dataset.weight=times", *others, target=target)


def learning(folder: Path, *others: str, target: str = TARGETS) -> tuple[str, ...]:
    return reading(folder, *LEARNS, *others, target=target)


def compiled(planned: Plan) -> keras.Model:
    trainer, flow = planned.spec.fit, given_to_model(planned.train)
    assert trainer is not None
    source = open_source(planned.spec.dataset)
    model = build(planned.spec.model, flow, (), source.num_classes)
    made = objectives(trainer, flow, source.names_of_classes, planned.spec.dataset.loss_weights)
    compile_with(model, trainer, made)
    return model


def batch_of(planned: Plan) -> Any:
    """The first batch of a training."""
    with training_pipeline(planned) as pipeline:
        return next(iter(pipeline.dataset.as_numpy_iterator()))


def test_a_batch_has_inputs_and_targets_by_name_and_a_weight(rows: Path, says: Says) -> None:
    planned = plan_of(*reading(rows, "load.shuffle_buffer=0", "dataset.order=file", "load.batch_size=160"))
    inputs, targets, weights = batch_of(planned)
    table = several()[:160]
    assert [*inputs] == ["area", "area_missing", "rooms"]
    says({name: (of.dtype.name, of.shape) for name, of in targets.items()})
    np.testing.assert_array_equal(weights, table["times"].to_numpy().astype("float32"))
    np.testing.assert_array_equal(targets["garden"], table["garden"].to_numpy())
    wanted = [[float(label in (text or "")) for label in LABELS] for text in table["tags"].to_pylist()]
    np.testing.assert_array_equal(targets["tags"], wanted)
    assert str(planned.train[-1].gives).endswith(
        ", price: float32, band, garden, tags: float32 [3] in [0, 1], times: float32"
    )


def test_a_plan_tells_what_each_target_is_and_what_the_loss_is(rows: Path, says: Says) -> None:
    planned = plan_of(*learning(rows))
    says(list(planned.remarks[1:]))
    changed = plan_of(*learning(rows, target=TARGETS.replace("0.5", "0.25")))
    assert {key for key in planned.decisive if planned.decisive[key] != changed.decisive[key]} == {"dataset.target"}
    unweighted = plan_of(*learning(rows, "dataset.weight=null"))
    assert unweighted.fingerprint != planned.fingerprint


def test_all_configs_read_the_same_targets_and_weights(rows: Path, tmp_path: Path) -> None:
    digests = {name: digest_of(rows, f"cache.dir={tmp_path}", *of) for name, of in CACHES.items()}
    assert set(digests.values()) == {digest_of(rows, "load.shuffle=full")}
    others = {digest_of(rows, "dataset.weight=null"), digest_of(rows, target="{garden: binary}")}
    assert len({*digests.values(), *others}) == 3


def digest_of(folder: Path, *others: str, target: str = TARGETS) -> str:
    digest = Digest()
    with training_pipeline(plan_of(*reading(folder, *others, target=target))) as pipeline:
        for batch in pipeline.dataset:
            digest.add(*batch)
    return digest.taken()


def test_each_target_has_its_head(rows: Path, says: Says) -> None:
    model = compiled(plan_of(*learning(rows)))
    says({name: tuple(of.shape) for name, of in model.output.items()})


def test_labels_may_be_an_array_of_zeros_and_ones(tmp_path: Path) -> None:
    labels = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]] * 5, bool)
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "x.npy", np.arange(20.0))
    arrays = (
        "dataset=arrays", f"dataset.files={{x: {tmp_path}/x.npy, y: {tmp_path}/y.npy}}", f"dataset.dir={tmp_path}",
        "dataset.target={y: labels}", "transform=columns", "extract=sequential", "cache=none", "load.batch_size=20",
        "load.shuffle_buffer=0", "dataset.order=file", "dataset.split=train", "dataset.eval_split=null",
    )  # fmt: skip
    planned = plan_of(*arrays, *LEARNS, "trainer.epochs=1")
    found = batch_of(planned)[1]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, labels)
    assert compiled(planned).output_shape == (None, 3)
    assert planned.spec.fit is not None
    metrics = make(objectives(planned.spec.fit, given_to_model(planned.train), None, {"y": 1.0}))["metrics"]
    assert [metric.name for metric in metrics] == ["accuracy", "auc", "precision", "recall"]


def test_a_label_that_training_lacks_is_an_error_and_a_missing_text_has_none() -> None:
    known: dict[str, Any] = {"separator": ";", "values": ["a", "b"]}
    texts = tf.constant(["a; b;a", "", "b", b"\xff"])
    np.testing.assert_array_equal(Labels.op(texts, **known), [[1, 1], [0, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(Labels.op(texts[0], **known), [1, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a label that is in no row of the training"):
        Labels.op(tf.constant(["a;c"]), **known)


ODD = "{kind of: {steps: [lookup, embed]}, area: {steps: [{fill: median}]}, rooms: {steps: [lookup, embed]}}"


def test_columns_with_blanks_in_their_names_are_embedded(tmp_path: Path) -> None:
    table = several().rename_columns({"kind": "kind of", "garden": "garden/yard", "price": "price (EUR)"})
    pyarrow.parquet.write_table(table, tmp_path / "houses.parquet")
    given = ("dataset.inputs=null", "dataset.weight=null")
    target = "{price \\(EUR\\): number}"
    planned = plan_of(*learning(tmp_path, *given, f"transform.columns={ODD}", target=target))
    model, batch = compiled(planned), batch_of(planned)
    assert "rooms_embedding" in [layer.name for layer in model.layers]
    assert model.train_on_batch(*batch, return_dict=True)["mae"] > 0


@pytest.mark.parametrize(
    ("target", "layers", "outputs"),
    [
        ("{price: number}", ["value_"], 1),
        ("{price: {number: standardize}}", ["standardized_", "value_"], 1),
        ("{garden: binary}", ["probability_"], 2),
    ],
)
def test_columns_may_have_the_names_of_the_layers_of_a_target(
    rows: Path, target: str, layers: list[str], outputs: int
) -> None:
    names = ("value", "standardized", "probability")
    columns = ", ".join(f"{name}: {{of: area, steps: [{{fill: median}}]}}" for name in names)
    given = ("dataset.inputs=[area]", "dataset.weight=null", f"transform.columns={{{columns}}}")
    planned = plan_of(*learning(rows, *given, target=target))
    model = compiled(planned)
    assert [layer.name for layer in model.layers[-len(layers) :]] == layers
    assert [*outputs_of(model, given_to_model(planned.train)).values()] == [outputs]
    program = ejected(planned, [], {})
    assert all(f'name="{name}"' in program for name in layers)


@pytest.fixture(scope="module")
def run(once: Once) -> Path:
    """A run of four targets, whose rows are weighted."""
    return made_of("several", once).run


def test_it_records_the_measures_of_each_target_in_turn(run: Path) -> None:
    summary = present(read_summary(run))
    measured = [*summary.epochs[0].metrics]
    assert measured[:5] == ["price_mae", "price_rmse", "price_r2", "price_loss", "band_accuracy"]
    assert [name.removeprefix("val_") for name in measured[len(measured) // 2 :]] == measured[: len(measured) // 2]


def test_predictions_have_the_columns_of_each_target(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.parquet.write_table(several().drop_columns([*NAMES, "times"])[:5], tmp_path / "new.parquet")
    rows = [*csv.DictReader(io.StringIO(said(capsys, "predict", run, tmp_path / "new.parquet")))]
    assert [*rows[0]] == [
        *("row", "price_value", "band_class", "band_probability_cheap", "band_probability_dear"),
        *("garden_class", "garden_probability_false", "garden_probability_true"),
        *("tags_labels", *(f"tags_probability_{label}" for label in LABELS)),
    ]
    for row in rows:
        shares = np.array([float(row[f"tags_probability_{label}"]) for label in LABELS])
        assert row["tags_labels"] == ", ".join(np.array(LABELS)[shares > 0.5])
        assert float(row["garden_probability_false"]) + float(row["garden_probability_true"]) == pytest.approx(1)
    text = said(capsys, "predict", run, tmp_path / "new.parquet", "--format", "jsonl", "--top", "1")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["price"]["value"] for line in lines] == [float(row["price_value"]) for row in rows]
    assert [[*line["band"]["probabilities"]] for line in lines] == [[row["band_class"]] for row in rows]


LEARNS = ("model=tabular", "model.units=[4]")
NUMBERS = ["mae", "rmse", "r2"]


def words(folder: Path, *others: str, target: str) -> tuple[str, ...]:
    """Arguments of a run that trains on the houses in `folder`."""
    return words_of(folder, *LEARNS, *others, target=target)


def fit_of(*of_run: str) -> Trainer:
    return present(plan_of(*of_run).spec.fit)


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
    assert "target `band` is dear or cheap: the model gives the probability of dear." in planned.remarks
    model = compiled(plan_of(*words(table, target="{band: binary}")))
    assert (model.layers[-1].activation, model.output_shape) == (keras.activations.sigmoid, (None, 1))
    changed(tmp_path, band=["yes" if of == "cheap" else "z" for of in houses()["band"].to_pylist()])
    planned = plan_of(*words(tmp_path, target="{band: binary}"))
    assert "target `band` is yes or z: the model gives the probability of yes." in planned.remarks
    planned = plan_of(*words(table, "dataset.inputs=[area]", target="{garden: binary}"))
    assert "target `garden` is true or false: the model gives the probability of true." in planned.remarks


def test_a_standardized_target_is_learned_in_deviations_and_predicted_in_its_units(table: Path) -> None:
    planned = plan_of(*words(table, target="{price: {number: standardize}}"))
    prices = planned.train[-2].steps[-1].stage.outputs[-1].steps[0]  # type: ignore[attr-defined]
    model = compiled(plan_of(*words(table, target="{price: {number: standardize}}")))
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
    changed(tmp_path, price=np.array(PRICES) * factor)
    planned = plan_of(*words(tmp_path, "dataset.inputs=[area]", target=f"{{price: {target}}}"))
    scaled = "{price: {number: standardize}} in dataset.target learns it in fewer epochs."
    note = f"target `price` has a standard deviation of 166,124: {scaled}"
    assert [of for of in planned.remarks if "deviation" in of] == [note] * is_noted


def test_a_plan_notes_that_no_table_is_there(tmp_path: Path) -> None:
    planned = plan_of(*words(tmp_path, target="{price: number}"))
    assert (
        planned.remarks[0]
        == "houses.parquet is not on this machine: its columns are not checked, and nothing is fitted."
    )


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
    loss = Scaled.from_config(Scaled(getattr(keras.losses, name), 10.0).get_config())
    scaled = getattr(keras.losses, name)(wanted[:, None] / 10, found / 10)
    assert float(loss(wanted, found)) == pytest.approx(float(np.mean(scaled)))


@pytest.mark.parametrize("metrics", ["[mae,rmse,r2]", "[r2]"])
def test_numbers_of_other_datasets_have_the_metrics_that_a_config_names(metrics: str) -> None:
    planned = plan_of(
        "dataset=tfds", "dataset.name=own", "+dataset.features={image: image}", "+dataset.target={answer: float32}",
        f"trainer.metrics={metrics}",
    )  # fmt: skip
    trainer = present(planned.spec.fit)
    made = make(objective(trainer, None))
    assert (made["loss"], [of.name for of in made["metrics"]]) == ("mean_squared_error", metrics[1:-1].split(","))
    named = metrics[1:-1].replace(",", ", ")
    noun = "metrics" if "," in named else "metric"
    assert f"target `answer` is a number: loss mean squared error; {noun} {named}." in planned.remarks


def changed(folder: Path, **columns: Any) -> None:
    """Write the houses again, some columns of which are others."""
    found = several()
    for name, values in columns.items():
        found = found.set_column(found.column_names.index(name), name, pa.array(values))
    pyarrow.parquet.write_table(found, folder / "houses.parquet")


PRICES = houses()["price"].to_pylist()
TIMES = several()["times"].to_pylist()
CHANGED: dict[str, dict[str, Any]] = {
    "no weight": {"times": [1, None, *TIMES[2:]]},
    "NaN": {"times": [1.0, float("nan"), *map(float, TIMES[2:])]},
    "negative": {"times": [*TIMES[:5], -2, *TIMES[6:]]},
    "all 0": {"times": [0] * NUM_ROWS},
    "two labels": {"tags": ["sea,old"] * NUM_ROWS},
    "no label": {"tags": [" , "] * NUM_ROWS},
    "a label of the validation": {"tags": ["sea"] * 180 + ["sea,hill"] * 20},
    "missing": {"price": [*PRICES[:3], None, None, *PRICES[5:]]},
    "a text among numbers": {"band": ["1.5", " 2", *map(str, range(197)), "n.a."]},
    "times": {"band": np.full(200, "2020-01-01", "datetime64[us]")},
    "the same number": {"price": [7.5] * 200},
    "the same class": {"band": ["dear"] * 200},
    "four kinds": {"kind": ["flat", "loft", "hut", "hall"] * 50},
    "new classes": {"band": [*["dear", "cheap"] * 95, "free", "x" * 31, *["dear", "cheap"] * 4]},
}
"""Columns of the houses that cases of the table change."""


@pytest.mark.parametrize("case", cases("targets"))
def test_values_that_can_not_be_learned_are_refused(tmp_path: Path, case: Case, golden: Golden) -> None:
    changed(tmp_path, **CHANGED.get(case.get("houses"), {}))
    golden(case, refusal_of_plan(*words(tmp_path, *case["overrides"], target=case["target"])))


@pytest.mark.parametrize("target", ["{region: class}", "{kind: class}"])
def test_a_text_that_stands_for_none_may_be_a_value(target: str, tmp_path: Path, says: Says) -> None:
    rows = zip(["NA", "EU", "AS"] * 20, "1234" * 15, ["a", "b"] * 30, strict=True)
    (tmp_path / "a.csv").write_text("region,area,kind\n" + "".join(f"{','.join(row)}\n" for row in rows))
    of_run = (*words(tmp_path, target=target), f"dataset.files={tmp_path / 'a.csv'}", "dataset.inputs=[area]")
    of_run = (*of_run, *["dataset.split_by={stratify: region}"] * ("kind" in target))
    says(refusal_of_plan(*of_run))
    dataset = plan_of(*of_run, 'dataset.missing=["", "null"]').spec.dataset
    assert dataset.found.classes == (("AS", "EU", "NA") if "region" in target else ("a", "b"))  # type: ignore[attr-defined]


def test_smaller_errors_are_better(table: Path) -> None:
    stopping = ("trainer.early_stopping.patience=1", "trainer.early_stopping.monitor=val_rmse")
    assert fit_of(*words(table, *stopping, target="{price: number}")).early_stopping.arguments["mode"] == "min"
    stopping = ("trainer.early_stopping.patience=1", "trainer.early_stopping.monitor=val_r2")
    assert fit_of(*words(table, *stopping, target="{price: number}")).early_stopping.arguments["mode"] == "max"
