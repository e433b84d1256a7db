"""Exports of models of rows: raw columns in, predictions out, as `predict` makes them of the same rows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.trained.formats import unfit
from etlrun.trained.load import trained
from tests.runs import run_here
from tests.tables import houses, words_of
from tests.test_rows_targets import learning, several
from tests.trained import described, said, served

STEPS = (
    "area: {of: area, steps: [{fill: {value: median, indicator: true}}, {clip: [0, 180]}, log1p, standardize]}, "
    "scaled: {of: area, steps: [{fill: mean}, minmax]}, robust: {of: area, steps: [{fill: 0}, robust]}, "
    "gone: {of: kind, steps: [missing]}, "
    "month: {of: sold, steps: [{part: month}, standardize]}, "
    "wide: {of: area, steps: [{fill: median}, {bucketize: [50, 100]}, one_hot]}, "
    "tenth: {of: area, steps: [{fill: median}, {quantiles: 10}, embed]}, "
    "place: {of: [kind, rooms], steps: [{cross: 50}, embed]}, "
    "rooms: {of: rooms, steps: [{identity: 6}, one_hot]}, "
    "kind: {of: kind, steps: [{lookup: {top: 100, oov: 2}}, embed]}, "
    "known: {of: kind, steps: [{fill: most_frequent}, {lookup: {values: [flat, house, loft], oov: error}}, one_hot]}, "
    "number: {of: rooms, steps: [{lookup: {values: [1, 2, 3]}}, one_hot]}, "
    "bin: {of: kind, steps: [{hash: 7}, embed]}, "
    "the garden: {of: garden}"
)
"""All steps on columns."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, of which a column has a name that TensorFlow does not allow, and two runs on it."""
    folder = tmp_path_factory.mktemp("exports")
    table = houses().rename_columns(["area", "rooms", "kind", "sold", "a garden", "price", "band"])
    pyarrow.parquet.write_table(table, folder / "houses.parquet")
    for name, target in (("prices", "{price: {number: standardize}}"), ("bands", "{band: binary}")):
        words = [
            of.replace("kind,garden", "kind,sold,a garden") for of in words_of(folder, "model=linear", target=target)
        ]
        columns = f"transform.columns={{{STEPS.replace('of: garden', 'of: a garden')}}}"
        (folder / name).mkdir()
        assert run_here(folder / name, [*words, columns, "trainer.epochs=1"])[0] == 0
    return folder


def given(names: dict[str, str]) -> dict[str, npt.NDArray[Any]]:
    """The columns of the table by the names of the inputs, as an export of a Parquet file takes them."""
    table = houses().rename_columns(["area", "rooms", "kind", "sold", "a garden", "price", "band"])
    plain = {
        "area": table["area"].to_numpy().astype("float64"),
        "rooms": table["rooms"].to_numpy(),
        "kind": np.array([b"\xff" if of is None else of.encode() for of in table["kind"].to_pylist()], object),
        "sold": table["sold"].cast(pa.int64()).to_numpy(),
        "a garden": table["a garden"].to_numpy(zero_copy_only=False).astype(bool),
    }
    return {name: plain[column] for name, column in names.items()}


def told(capsys: pytest.CaptureFixture[str], run: Path) -> list[dict[str, str]]:
    """What `predict` says of the table, in the order of its rows."""
    return [*csv.DictReader(said(capsys, "predict", run, run.parent / "houses.parquet").splitlines())]


def predicted(run: Path, capsys: pytest.CaptureFixture[str], *columns: str) -> npt.NDArray[Any]:
    return np.array([[np.float32(row[name]) for name in columns] for row in told(capsys, run)])


def names_in(folder: Path) -> dict[str, str]:
    return {of["name"]: of["column"] for of in described(folder)["inputs"]}


@pytest.mark.slow
def test_a_saved_model_takes_columns_in_a_process_without_etlrun(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = tmp_path / "saved", runs / "bands"
    (run.parent / "houses.parquet").rename(tmp_path / "away.parquet")  # which no export needs
    try:
        lines = said(capsys, "export", run, "--format", "saved_model", "--output", folder).splitlines()
    finally:
        (tmp_path / "away.parquet").rename(run.parent / "houses.parquet")
    assert lines[0] == "format    saved_model: columns to predictions"
    assert lines[1].startswith("check     4 rows, predictions differ from the model's by up to ")
    found = served(folder, given(names_in(folder)), tmp_path)
    wanted = predicted(run, capsys, "probability_cheap", "probability_dear")
    np.testing.assert_allclose(found["probabilities"], wanted, rtol=0, atol=1e-6)
    assert [of.decode() for of in found["class"]] == [["cheap", "dear"][of] for of in wanted.argmax(axis=1)]


def test_a_keras_model_takes_columns_and_predicts_in_units_of_the_target(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = tmp_path / "keras", runs / "prices"
    said(capsys, "export", run, "--format", "keras", "--output", folder)
    model = keras.saving.load_model(folder / "model.keras", compile=False)
    inputs = {name: tf.constant(of) for name, of in given(names_in(folder)).items()}
    np.testing.assert_allclose(model(inputs), predicted(run, capsys, "value"), rtol=1e-5)


def test_the_columns_of_an_export_are_those_of_the_pipeline_to_the_bit(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = tmp_path / "keras", runs / "bands"
    said(capsys, "export", run, "--format", "keras", "--output", folder)
    layer = keras.saving.load_model(folder / "model.keras", compile=False).get_layer("columns")
    planned = trained(run).then
    source = open_source(planned.spec.dataset)
    context = contexts_of(planned, source)["validation"]
    wanted = [*Pipeline(planned.evaluation, context).dataset]
    rows = context.split.rows  # type: ignore[attr-defined] # it is one of rows
    found = layer({name: tf.constant(of[rows]) for name, of in given(names_in(folder)).items()})
    assert len(found) == 15
    for name in found:
        whole = np.concatenate([inputs[name] for inputs, _ in wanted])
        assert found[name].numpy().tobytes() == whole.tobytes(), name


@pytest.mark.slow
def test_an_export_describes_its_columns(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saved"
    said(capsys, "export", runs / "bands", "--format", "saved_model", "--output", folder)
    of = described(folder)
    assert [[each[key] for key in ("name", "column", "dtype", "content", "missing")] for each in of["inputs"]] == [
        ["area", "area", "float64", "numbers", "NaN"],
        ["kind", "kind", "string", "texts", "the byte 0xFF"],
        ["sold", "sold", "int64", "times, in microseconds since 1970 in UTC", None],
        ["rooms", "rooms", "int64", "numbers", None],
        ["a_garden", "a garden", "bool", "truth values", None],
    ]
    assert (of["before"], of["inside"], of["classes"]) == ([], ["transform.columns"], ["cheap", "dear"])
    assert of["output"] == {"name": "probabilities", "dtype": "float32", "content": "a probability of each class"}
    card = (folder / "model_card.md").read_text().splitlines()
    assert any(line.startswith("| `rooms` | `rooms` | `int64` | `[null]` | `numbers` |") for line in card)


@pytest.mark.needs("onnx", "onnxruntime", "tf2onnx")
def test_onnx_takes_what_the_steps_on_columns_give(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnxruntime

    folder, run = tmp_path / "onnx", runs / "prices"
    lines = said(capsys, "export", run, "--format", "onnx", "--output", folder).splitlines()
    assert lines[0] == "format    onnx: what transform.columns gives to predictions"
    planned = trained(run).then
    context = contexts_of(planned, open_source(planned.spec.dataset))["validation"]
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    batches = Pipeline(planned.evaluation, context).dataset.as_numpy_iterator()
    plain = [{of.replace(" ", "_"): values for of, values in inputs.items()} for inputs, _ in batches]
    found = np.concatenate([session.run(None, inputs)[0] for inputs in plain])
    rows = context.split.rows  # type: ignore[attr-defined] # it is one of rows
    np.testing.assert_allclose(found, predicted(run, capsys, "value")[rows], rtol=1e-5)
    of = described(folder)
    inputs = {each["name"]: each for each in of["inputs"]}
    assert [inputs["the_garden"][key] for key in ("column", "dtype", "content")] == ["a garden", "float32", "numbers"]
    assert [inputs["kind"][key] for key in ("column", "content", "range", "vocabulary")] == [
        "kind",
        "indices of categories",
        [0, 4],
        {"file": "kind.vocabulary.jsonl", "padding": None, "unknown": [0, 1]},
    ]
    assert inputs["place"]["column"] == "kind, rooms"
    assert [[step["step"], step["parameters"]] for step in of["before"] if step["input"] == "known"] == [
        ["NFC", {}],
        ["fill", {"filled": "flat"}],
        ["lookup", {"values": "known.vocabulary.jsonl", "oov": "error"}],
        ["one_hot", {"categories": 3}],
    ]
    lines = (folder / "kind.vocabulary.jsonl").read_text().splitlines()
    assert (lines[:2], sorted(lines[2:])) == (["null", "null"], ['"flat"', '"house"', '"loft"'])
    card = (folder / "model_card.md").read_text().splitlines()
    assert any('| `{"file": "kind.vocabulary.jsonl", "padding": null, "unknown": [0, 1]}` |' in line for line in card)
    steps = [line for line in card if line.startswith("| `number` |")]
    assert "| `one_hot` |" in steps[-1]
    assert steps[-1].endswith('| `{"categories": 4}` |')


@pytest.mark.slow
def test_an_export_without_its_rows_says_that_it_was_not_compared_on_them(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "export", runs / "bands", "--format", "keras", "--output", tmp_path / "there").splitlines()
    assert lines[2].startswith("examples  40 of train[80%:], predictions differ from those of predict by up to ")
    assert described(tmp_path / "there")["check"]["validation"]["largest_difference"] < 1e-5
    (runs / "houses.parquet").rename(runs / "moved.parquet")
    lines = said(capsys, "export", runs / "bands", "--format", "keras", "--output", tmp_path / "gone").splitlines()
    (runs / "moved.parquet").rename(runs / "houses.parquet")
    reason = f"its dataset can't be read here: no file {runs / 'houses.parquet'} for train"
    assert lines[2] == f"examples  not compared on examples of the validation: {reason}"
    assert described(tmp_path / "gone")["check"]["validation"] == reason


@pytest.mark.parametrize("name", ["litert", "torch"])
def test_a_format_without_columns_is_refused(name: str, runs: Path) -> None:
    expected = (
        "expected a model of one image or array\n    -> choose a format that holds them: saved_model, onnx, keras"
    )
    assert [str(of) for of in unfit(trained(runs / "bands", reads_split=False), name)] == [
        f"{runs / 'bands'}: found a model of columns, or of several inputs, which {name} can't hold; {expected}"
    ]


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses and their labels, and two runs: of several targets, with weights, and of the labels."""
    folder = tmp_path_factory.mktemp("heads")
    pyarrow.parquet.write_table(several(), folder / "houses.parquet")
    for name, others in (("several", {}), ("labels", {"target": "{tags: {labels: ','}}"})):
        (folder / name).mkdir()
        words = learning(folder, "trainer.epochs=1", "transform=columns", **others)
        status, _ = run_here(folder / name, [*words])
        assert status == 0
    return folder


NUMBERS = [
    "price_value",
    *(f"band_probability_{name}" for name in ("cheap", "dear")),
    *(f"garden_probability_{name}" for name in ("false", "true")),
    *(f"tags_probability_{name}" for name in ("old", "park", "sea")),
]


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    table = several()
    return {
        "area": tf.constant(table["area"].to_numpy().astype("float64")),
        "rooms": tf.constant(table["rooms"].to_numpy()),
    }


def test_a_saved_model_gives_each_target_by_name(
    heads: Path, tmp_path: Path, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", heads / "several", "--format", "saved_model", "--output", tmp_path / "saved")
    found = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"](**inputs)
    wanted = told(capsys, heads / "several")
    names = ["price_value", "band_probabilities", "garden_probabilities", "tags_probabilities"]
    together = np.concatenate([found[name].numpy() for name in names], axis=1)
    exact = np.array([[np.float32(row[name]) for name in NUMBERS] for row in wanted])
    np.testing.assert_allclose(together, exact, rtol=1e-5, atol=1e-6)
    for name in ("band_class", "garden_class"):
        assert [of.decode() for of in found[name].numpy()] == [row[name] for row in wanted]
    assert {*found} == {*names, "band_class", "garden_class"}  # of weights nothing is taken or given
    of_export = described(tmp_path / "saved")
    assert [of["name"] for of in of_export["inputs"]] == ["area", "rooms"]
    assert [(of["name"], of["target"], of["classes"]) for of in of_export["outputs"]] == [
        ("price_value", "price", None),
        ("band_probabilities", "band", ["cheap", "dear"]),
        ("garden_probabilities", "garden", ["false", "true"]),
        ("tags_probabilities", "tags", ["old", "park", "sea"]),
    ]
    card = (tmp_path / "saved" / "model_card.md").read_text()
    assert '| `band` | `["cheap", "dear"]` |' in card


def test_a_keras_model_gives_each_target_by_name(
    heads: Path, tmp_path: Path, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", heads / "several", "--format", "keras", "--output", tmp_path / "keras")
    found = keras.saving.load_model(tmp_path / "keras" / "model.keras", compile=False)(inputs)
    wanted = [float(row["tags_probability_sea"]) for row in told(capsys, heads / "several")]
    np.testing.assert_allclose(found["tags_probabilities"][:, 2], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_an_export_of_labels_gives_the_probability_of_each(
    heads: Path, tmp_path: Path, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", heads / "labels", "--format", "saved_model", "--output", tmp_path / "saved")
    found = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"](**inputs)
    wanted = [float(row["probability_sea"]) for row in told(capsys, heads / "labels")]
    np.testing.assert_allclose(found["probabilities"][:, 2], wanted, rtol=1e-5, atol=1e-6)
    of_export = described(tmp_path / "saved")
    assert (of_export["output"]["content"], of_export["classes"]) == (
        "a probability of each label",
        ["old", "park", "sea"],
    )
