"""Several targets of rows at once, several labels of a row, and weights of rows."""

from __future__ import annotations

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
from etlrun.run import model as models
from etlrun.sources.base import open_source
from etlrun.stages.columns import Labels
from etlrun.stages.keras_objects import objectives
from etlrun.stages.made import make
from etlrun.trained.model import outputs_of
from tests.configs import plan_of, refusal_of_plan
from tests.golden import Case, Golden, cases
from tests.networks import compile_with
from tests.pipelines import training_pipeline
from tests.programs import program_of
from tests.runs import run_here
from tests.tables import NUM_ROWS, houses, words_of
from tests.trained import said

TARGETS = "{price: {number: standardize}, band: {class: {weight: 0.5}}, garden: binary, tags: {labels: ','}}"
NAMES = ("price", "band", "garden", "tags")
LABELS = ("old", "park", "sea")
INPUTS = "dataset.inputs=[area,rooms]"
MODEL = ("model=tabular", "model.units=[4]")


def several() -> pa.Table:
    """The houses, with some labels of each and how often it was seen."""
    rng = np.random.default_rng(1)
    tags = [" , ".join(rng.choice(LABELS, rng.integers(0, 4), replace=False)) or None for _ in range(NUM_ROWS)]
    rows = houses().append_column("tags", pa.array(tags))
    return rows.append_column("times", pa.array(rng.integers(0, 3, NUM_ROWS)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    return folder


def words(folder: Path, *others: str, target: str = TARGETS) -> tuple[str, ...]:
    return words_of(folder, INPUTS, "dataset.weight=times", *others, target=target)


def learning(folder: Path, *others: str, target: str = TARGETS) -> tuple[str, ...]:
    given = (word for word in words(folder, *others, target=target) if not word.startswith("model"))
    return (*given, *(() if any(word.startswith("model=") for word in others) else MODEL))


def compiled(planned: Plan) -> keras.Model:
    trainer, flow = planned.spec.fit, given_to_model(planned.train)
    assert trainer is not None
    source = open_source(planned.spec.dataset)
    model = models.build(planned.spec.model, flow, (), source.num_classes, trainer.loss)
    made = objectives(trainer, flow, source.names_of_classes, planned.spec.dataset.loss_weights)
    compile_with(model, trainer, made)
    return model


def batch_of(planned: Plan) -> Any:
    """The first batch of a training."""
    with training_pipeline(planned) as pipeline:
        return next(iter(pipeline.dataset.as_numpy_iterator()))


def test_a_batch_has_inputs_and_targets_by_name_and_a_weight(rows: Path) -> None:
    planned = plan_of(*words(rows, "load.shuffle_buffer=0", "dataset.order=file", "load.batch_size=160"))
    inputs, targets, weights = batch_of(planned)
    table = several()[:160]
    assert [*inputs] == ["area", "area_missing", "rooms"]
    assert {name: (of.dtype.name, of.shape) for name, of in targets.items()} == {
        "price": ("float32", (160,)),
        "band": ("int64", (160,)),
        "garden": ("int64", (160,)),
        "tags": ("float32", (160, 3)),
    }
    np.testing.assert_array_equal(weights, table["times"].to_numpy().astype("float32"))
    np.testing.assert_array_equal(targets["garden"], table["garden"].to_numpy())
    wanted = [[float(label in (text or "")) for label in LABELS] for text in table["tags"].to_pylist()]
    np.testing.assert_array_equal(targets["tags"], wanted)
    assert str(planned.train[-1].gives).endswith(
        ", price: float32, band, garden, tags: float32 [3] in [0, 1], times: float32"
    )


def test_a_plan_tells_what_each_target_is_and_what_the_loss_is(rows: Path) -> None:
    planned = plan_of(*learning(rows))
    assert planned.remarks[1:] == (
        "1 of 40 rows of train[80%:] have the inputs of rows in train[:80%], and another target.",
        "price is not a class: its loss is the mean squared error, and its metrics are mae, rmse, r2.",
        "garden is true or false: the model gives the probability of true.",
        "tags has 3 labels: the model gives the probability of each.",
        "The loss is the sum of those of price, 0.5 of band, garden, tags.",
        "Losses and metrics are weighted by times, also those of the validation.",
    )
    changed = plan_of(*learning(rows, target=TARGETS.replace("0.5", "0.25")))
    assert {key for key in planned.decisive if planned.decisive[key] != changed.decisive[key]} == {"dataset.target"}
    unweighted = plan_of(*learning(rows, "dataset.weight=null"))
    assert unweighted.fingerprint != planned.fingerprint


CACHES = {
    "a buffer": ("load.shuffle=buffer",),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "on disk by number": ("cache=disk", "load.shuffle=full"),
    "before the columns": ("cache=memory", "cache.at=source"),
}


def test_all_configs_read_the_same_targets_and_weights(rows: Path, tmp_path: Path) -> None:
    digests = {name: digest_of(rows, f"cache.dir={tmp_path}", *of) for name, of in CACHES.items()}
    assert set(digests.values()) == {digest_of(rows, "load.shuffle=full")}
    others = {digest_of(rows, "dataset.weight=null"), digest_of(rows, target="{garden: binary}")}
    assert len({*digests.values(), *others}) == 3


def digest_of(folder: Path, *others: str, target: str = TARGETS) -> str:
    digest = Digest()
    with training_pipeline(plan_of(*words(folder, *others, target=target))) as pipeline:
        for batch in pipeline.dataset:
            digest.add(*batch)
    return digest.taken()


def test_each_target_has_its_head_its_loss_and_its_metrics_and_rows_their_weights(rows: Path) -> None:
    planned = plan_of(*learning(rows))
    model = compiled(planned)
    assert {name: tuple(of.shape) for name, of in model.output.items()} == {
        "price": (None, 1),
        "band": (None, 2),
        "garden": (None, 1),
        "tags": (None, 3),
    }
    inputs, targets, weights = batch_of(planned)
    found = model.test_on_batch(inputs, targets, weights, return_dict=True)
    given = {name: np.asarray(of, "float64") for name, of in model.predict_on_batch(inputs).items()}
    price = given_to_model(planned.train).features["price"]
    right = np.where(targets["tags"], given["tags"], 1 - given["tags"])
    each = {
        "price": ((given["price"][:, 0] - targets["price"]) / price.std) ** 2,
        "band": -np.log(given["band"][np.arange(7), targets["band"]]),
        "garden": -np.log(np.where(targets["garden"], given["garden"][:, 0], 1 - given["garden"][:, 0])),
        "tags": -np.log(right).mean(axis=1),
    }
    losses = {name: float(np.mean(of * weights)) for name, of in each.items()}
    assert found["loss"] == pytest.approx(sum(losses.values()) - 0.5 * losses["band"], rel=1e-4)
    errors = np.abs(given["price"][:, 0] - targets["price"])
    assert found["price_mae"] == pytest.approx(np.average(errors, weights=weights), rel=1e-4)
    hits = given["band"].argmax(axis=1) == targets["band"]
    assert found["band_accuracy"] == pytest.approx(np.average(hits, weights=weights))
    assert {"garden_auc", "tags_auc", "tags_recall", "price_r2"} < found.keys()


def test_labels_may_be_an_array_of_zeros_and_ones(tmp_path: Path) -> None:
    labels = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]] * 5, bool)
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "x.npy", np.arange(20.0))
    arrays = (
        "dataset=arrays", f"dataset.files={{x: {tmp_path}/x.npy, y: {tmp_path}/y.npy}}", f"dataset.dir={tmp_path}",
        "dataset.target={y: labels}", "transform=columns", "extract=sequential", "cache=none", "load.batch_size=20",
        "load.shuffle_buffer=0", "dataset.order=file", "dataset.split=train", "dataset.eval_split=null",
    )  # fmt: skip
    planned = plan_of(*arrays, *MODEL, "trainer.epochs=1")
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


@pytest.mark.slow
@pytest.mark.parametrize("others", [("load.shuffle=full",), ("cache=memory", "cache.at=source")], ids=str)
def test_a_program_has_the_batches_of_the_run(rows: Path, tmp_path: Path, others: tuple[str, ...]) -> None:
    planned = plan_of(*words(rows, *others))
    module = program_of(planned, tmp_path)
    with training_pipeline(planned) as pipeline:
        passes = [batch for _ in range(2) for batch in pipeline.dataset.as_numpy_iterator()]
    written = [*module.train_dataset().as_numpy_iterator()]
    assert len(written) == len(passes)
    for one, other in zip(written, passes, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


ODD = "{kind of: {steps: [lookup, embed]}, area: {steps: [{fill: median}]}, rooms: {steps: [lookup, embed]}}"


def test_columns_with_blanks_in_their_names_are_embedded_and_a_slash_is_refused(tmp_path: Path) -> None:
    table = several().rename_columns({"kind": "kind of", "garden": "garden/yard", "price": "price (EUR)"})
    pyarrow.parquet.write_table(table, tmp_path / "houses.parquet")
    given = ("dataset.inputs=null", "dataset.weight=null")
    target = "{price \\(EUR\\): number}"
    planned = plan_of(*learning(tmp_path, *given, f"transform.columns={ODD}", target=target))
    model, batch = compiled(planned), batch_of(planned)
    assert "rooms_embedding" in [layer.name for layer in model.layers]
    assert model.train_on_batch(*batch, return_dict=True)["mae"] > 0
    refused = refusal_of_plan(*learning(tmp_path, *given, "transform.columns={garden/yard: {}}", target=target))
    assert refused == (
        "model.tabular: found 7 x float32, price (EUR): float32 before it; expected inputs without a slash in their "
        "names, which Keras refuses, as in garden/yard\n"
        "    -> give the output another name in transform.columns: {garden_yard: {of: garden/yard}}"
    )


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


@pytest.mark.parametrize("case", cases("several"))
def test_weights_and_targets_that_are_none_are_refused(tmp_path: Path, case: Case, golden: Golden) -> None:
    table = several()
    for name, parts in case.get("changed", {}).items():
        values = table[name].to_pylist()
        for part, value in parts.items():
            start, stop = map(int, part.split(":"))
            values[start:stop] = [value] * (stop - start)
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pyarrow.parquet.write_table(table, tmp_path / "houses.parquet")
    words = ["dataset.inputs=[rooms]", "dataset.order=file"]
    if weight := case.get("weight"):
        words.append(f"dataset.weight={weight}")
    golden(case, refusal_of_plan(*words_of(tmp_path, *words, target=case.get("target", "{price: number}"))))


UNLIKE: dict[tuple[str, ...], str] = {
    ("transform.columns={far: {of: times}}",): (
        "transform.columns.far.of: found times, which is the weight; expected inputs alone\n"
        "    -> leave it out; dataset.weight says what is made of it"
    ),
    ("transform.columns={far: {of: band}}",): (
        "transform.columns.far.of: found band, which is a target; expected inputs alone\n"
        "    -> leave it out; dataset.target says what is made of it"
    ),
}


@pytest.mark.parametrize("others", UNLIKE)
def test_values_for_other_targets_are_refused(rows: Path, others: tuple[str, ...]) -> None:
    assert refusal_of_plan(*learning(rows, *others)) == UNLIKE[others]


@pytest.fixture(scope="module")
def words_of_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("rows")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    stopping = ("trainer.early_stopping.patience=2", "trainer.early_stopping.monitor=val_price_mae")
    return learning(folder, *stopping, "load.batch_size=20")


@pytest.fixture(scope="module")
def run(words_of_rows: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four targets, whose rows are weighted."""
    folder = tmp_path_factory.mktemp("run") / "run"
    status, summary = run_here(folder, [*words_of_rows])
    assert (status, summary["status"]) == (0, "completed")
    return folder


def test_it_records_the_measures_of_each_target_in_turn(run: Path) -> None:
    summary = read_summary(run)
    assert summary is not None
    measured = [*summary.epochs[0].metrics]
    assert measured[:5] == ["price_mae", "price_rmse", "price_r2", "price_loss", "band_accuracy"]
    assert [name.removeprefix("val_") for name in measured[len(measured) // 2 :]] == measured[: len(measured) // 2]


@pytest.mark.slow
def test_its_program_trains_to_the_same_losses(
    run: Path, words_of_rows: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    summary, history = read_summary(run), program_of(plan_of(*words_of_rows), tmp_path).train().history
    assert summary is not None
    assert history["loss"] == [epoch.loss for epoch in summary.epochs]
    assert history["val_loss"] == [epoch.val_loss for epoch in summary.epochs]


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
