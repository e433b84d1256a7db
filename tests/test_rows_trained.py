"""What models of rows and of arrays have learned: evaluated, predicted and exported in the units of their tables."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import tensorflow as tf

import etlrun
from etlrun.cli import main as cli
from etlrun.graph.build import Pipeline
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.system.errors import ConfigError
from etlrun.trained.formats import unfit
from etlrun.trained.load import trained
from tests import kinds
from tests.configs import raised
from tests.conftest import Once
from tests.golden import Case, Golden, Says, cases
from tests.kinds import made_of
from tests.runs import complete_here, run_here
from tests.servers import serving
from tests.tables import COLUMNS, houses, several, words_of, write_houses
from tests.trained import described, refusal, refused, said, served


@pytest.fixture(scope="module")
def run(once: Once) -> Path:
    """A run on houses, of which a column has a name that TensorFlow does not allow, with all steps on columns."""
    return made_of("rows", once).run


def given(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """The columns of the table by the names of the inputs, as an export of a Parquet file takes them."""
    table = kinds.rows()
    plain = {
        "area": table["area"].to_numpy().astype("float64"),
        "rooms": table["rooms"].to_numpy(),
        "kind": np.array([b"\xff" if of is None else of.encode() for of in table["kind"].to_pylist()], object),
        "sold": table["sold"].cast(pa.int64()).to_numpy(),
        "a garden": table["a garden"].to_numpy(zero_copy_only=False).astype(bool),
    }
    return {of["name"]: plain[of["column"]] for of in described(folder)["inputs"]}


def validated(run: Path) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """The batches of its validation, and the numbers of their rows."""
    planned = trained(run).then
    context = contexts_of(planned, open_source(planned.spec.dataset))["validation"]
    rows = context.split.numbers
    return [*Pipeline(planned.evaluation, context).dataset], rows


def predicted(run: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> npt.NDArray[Any]:
    rows = csv.DictReader(said(capsys, "predict", run, path).splitlines())
    return np.array([[np.float32(row[f"probability_{name}"]) for name in ("cheap", "dear")] for row in rows])


@pytest.mark.slow
def test_a_saved_model_describes_columns_and_takes_them_in_a_process_without_etlrun(
    once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    folder, made = tmp_path / "saved", made_of("rows", once)
    lines = said(capsys, "export", made.run, "--format", "saved_model", "--output", folder).splitlines()
    assert lines[0] == "format    saved_model: columns to predictions"
    assert lines[1] == "check     40 examples of train[80%:]"
    assert lines[3].startswith("predict   largest difference of a probability ")
    found = served(folder, given(folder), tmp_path)
    wanted = predicted(made.run, made.files / "houses.parquet", capsys)
    np.testing.assert_allclose(found["probabilities"], wanted, rtol=0, atol=1e-6)
    assert [of.decode() for of in found["class"]] == [["cheap", "dear"][of] for of in wanted.argmax(axis=1)]
    of = described(folder)
    says([[each[key] for key in ("name", "column", "dtype", "content", "missing")] for each in of["inputs"]])
    assert (of["before"], of["inside"], of["classes"]) == ([], ["transform.columns"], ["cheap", "dear"])
    assert of["output"] == {"name": "probabilities", "dtype": "float32", "content": "a probability of each class"}


def test_the_columns_of_an_export_are_those_of_the_pipeline_to_the_bit(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "keras"
    said(capsys, "export", run, "--format", "keras", "--output", folder)
    layer = keras.saving.load_model(folder / "model.keras", compile=False).get_layer("columns")
    wanted, rows = validated(run)
    found = layer({name: tf.constant(of[rows]) for name, of in given(folder).items()})
    assert len(found) == 14
    for name in found:
        assert found[name].numpy().tobytes() == np.concatenate([inputs[name] for inputs, _ in wanted]).tobytes(), name


@pytest.mark.needs("onnx", "onnxruntime", "tf2onnx")
def test_onnx_takes_what_the_steps_on_columns_give(
    once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    import onnxruntime

    folder, made = tmp_path / "onnx", made_of("rows", once)
    lines = said(capsys, "export", made.run, "--format", "onnx", "--output", folder).splitlines()
    assert lines[0] == "format    onnx: what transform.columns gives to predictions"
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    batches, rows = validated(made.run)
    plain = [{of.replace(" ", "_"): values.numpy() for of, values in inputs.items()} for inputs, _ in batches]
    found = np.concatenate([session.run(None, inputs)[0] for inputs in plain])
    wanted = predicted(made.run, made.files / "houses.parquet", capsys)[rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    of = described(folder)
    inputs = {each["name"]: each for each in of["inputs"]}
    assert [inputs["the_garden"][key] for key in ("column", "dtype", "content")] == ["the garden", "float32", "numbers"]
    assert [inputs["kind"][key] for key in ("column", "content", "range")] == ["kind", "indices of categories", [0, 4]]
    (columns,) = of["before"]
    says((columns["step"], columns["parameters"]["outputs"]["known"]))


def test_an_export_without_its_rows_says_that_it_was_not_compared_on_them(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rows / "houses.parquet").rename(rows / "moved.parquet")
    lines = said(capsys, "export", rows / "bands", "--format", "keras", "--output", tmp_path / "gone").splitlines()
    (rows / "moved.parquet").rename(rows / "houses.parquet")
    reason = f"its dataset can't be read here: no file {rows / 'houses.parquet'} for train"
    assert lines[1] == f"check     not compared with the model on examples of the validation: {reason}"
    assert described(tmp_path / "gone")["check"] == {"none": reason, "tolerance": 1e-5}


@pytest.mark.parametrize("name", ["litert", "torch"])
def test_a_format_without_columns_is_refused(name: str, run: Path) -> None:
    expected = (
        "expected a model of one image or array\n    -> choose a format that holds them: saved_model, onnx, keras"
    )
    assert [str(of) for of in unfit(trained(run, reads_split=False), name)] == [
        f"{run}: found a model of columns, or of several inputs, which {name} can't hold; {expected}"
    ]


def test_a_saved_model_names_what_it_gives_of_each_target(
    once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    made, table = made_of("several", once), several()
    said(capsys, "export", made.run, "--format", "saved_model", "--output", tmp_path / "saved")
    inputs = {"area": tf.constant(table["area"].to_numpy().astype("float64")), "rooms": table["rooms"].to_numpy()}
    found = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"](**inputs)
    wanted = [*csv.DictReader(said(capsys, "predict", made.run, made.files / "houses.parquet").splitlines())]
    for name in ("band_class", "garden_class"):
        assert [of.decode() for of in found[name].numpy()] == [row[name] for row in wanted]
    of_export = described(tmp_path / "saved")
    assert [of["name"] for of in of_export["inputs"]] == ["area", "rooms"]  # of weights nothing is taken or given
    outputs = [(of["name"], of["target"], of["content"], of["classes"]) for of in of_export["outputs"]]
    assert {*found} == {*(of[0] for of in outputs), "band_class", "garden_class"}
    says(outputs)


INPUTS = ["kind", "garden", "rooms", "area"]


@pytest.mark.parametrize("name", ["fit", "drain"])
def test_runs_of_rows_speak_of_no_images(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_houses(tmp_path)
    others = ("trainer=drain", "trainer.step_ms=10") if name == "drain" else ("model.step_ms=10", "cache.codec=jpeg90")
    given = [word for word in words_of(tmp_path, *others) if word != "model.step_ms=0"]  # too short to be measured
    assert run_here(tmp_path / "run", given)[0] == 0
    printed = "".join(capsys.readouterr())
    page = re.sub("<style.*?</style>", "", (tmp_path / "run" / "report.html").read_text(), flags=re.DOTALL)
    told = [printed, page, *((tmp_path / "run" / each).read_text() for each in ("report.md", "plan.txt"))]
    assert [re.findall("(?i).*(?:image|picture|photo).*", text) for text in told] == [[]] * len(told)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the houses, and two runs on them: of their prices, and of their bands."""
    folder = tmp_path_factory.mktemp("rows")
    write_houses(folder)
    pyarrow.csv.write_csv(houses().select(INPUTS), folder / "rows.csv")
    for name, target, *words in (
        ("prices", "{price: {number: standardize}}"),
        ("bands", "{band: binary}", "dataset.inputs=null", COLUMNS),
    ):
        learned(folder, name, "trainer.epochs=1", *words, target=target)
    return folder


@pytest.fixture(scope="module")
def of_arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with arrays, and two runs on them: on some of the columns, and on all."""
    folder = tmp_path_factory.mktemp("arrays")
    some = np.random.default_rng(0).random((60, 2, 3)).astype("float32")
    found: dict[str, Any] = {"x": some[:, 0, 0], "wide": some, "kind": np.array(["a", "b", "c"])[np.arange(60) % 3]}
    np.savez(folder / "whole.npz", **found, y=np.arange(60))
    np.savez(folder / "narrow.npz", x=found["x"], kind=found["kind"])
    pyarrow.parquet.write_table(pyarrow.table({"x": found["x"], "kind": found["kind"]}), folder / "all.parquet")
    for name, values in found.items():
        np.save(folder / f"{name}.npy", values)
    files = f"dataset.files={folder / 'whole.npz'}"
    np.savez(folder / "other.npz", x=np.zeros(3), wide=np.zeros((3, 2)), kind=np.array(["a"] * 3))
    words = [of for of in words_of(folder, "model=linear", target="{y: number}") if not of.startswith("dataset.files")]
    for name, inputs in (("narrow", "[x,kind]"), ("whole", "[x,kind,wide]")):
        own = (files, "dataset=arrays", f"dataset.inputs={inputs}", "trainer.epochs=1")
        (folder / name).mkdir()
        assert run_here(folder / name, [*words, *own])[0] == 0
    return folder


def learned(rows: Path, name: str, *words: str, target: str) -> dict[str, Any]:
    """The summary of a run on the houses in `rows`, in a folder of that name there."""
    (rows / name).mkdir()
    return complete_here(rows / name, [*words_of(rows, "model=linear", *words, target=target)])


def test_an_evaluation_of_numbers_is_in_their_units(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", rows / "prices", "--format", "json"))
    assert found["method"] == (
        "95 % intervals: percentiles of 1,000 bootstrap samples of the examples, drawn with seed 0"
    )
    prices = houses()["price"].to_pylist()
    for mistake in found["mistakes"]:
        path, row = mistake["place"].split(", row ")
        assert path == str(rows / "houses.parquet")
        assert float(mistake["target"]) == pytest.approx(prices[int(row)], rel=1e-4)
        assert mistake["columns"] == houses().select(["area", "rooms", "kind", "garden"]).to_pylist()[int(row)]
    worth = found["importance"]
    assert (worth["measure"], worth["value"]) == ("mae", pytest.approx(found["mae"]["value"], rel=1e-5))
    assert {of["name"] for of in worth["columns"]} == {*INPUTS}
    assert (worth["examples"], worth["repeats"], worth["predictions"]) == (40, 5, 40 * 21)
    page = (rows / "prices" / "evaluations" / "train[80%:].html").read_text()
    assert "<dt>R2</dt>" in page
    assert "image" not in page.partition("<main>")[2]


def test_an_evaluation_of_two_classes_has_an_area_under_the_curve_and_a_threshold(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("evaluate", rows / "bands", "--importance", "0")
    found = json.loads(said(capsys, *words, "--format", "json"))
    last = json.loads((rows / "bands" / "summary.json").read_text())["epochs"][-1]
    assert found["auc"]["value"] == pytest.approx(last["metrics"]["val_auc"], abs=0.02)
    assert (found["threshold"], found["importance"]) == (0.5, None)
    assert "threshold dear is predicted above a probability of 0.5" in said(capsys, *words)
    found = json.loads(said(capsys, *words, "--threshold", "0.9", "--format", "json"))
    of_split = said(capsys, "predict", rows / "bands", 'dataset.split="train[80%:]"').splitlines()
    above = sum(float(of["probability_dear"]) > 0.9 for of in csv.DictReader(of_split))
    assert found["classes"][1]["predicted"] == above == sum(row[1] for row in found["confusion"])


@pytest.mark.parametrize("case", cases("rows_trained"))
def test_what_a_run_of_rows_can_not_read_is_refused(
    rows: Path, of_arrays: Path, case: Case, golden: Golden, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    golden(case, refusal(capsys, case, RUNS=rows, ARRAYS=of_arrays, DIR=tmp_path))


def test_other_rows_have_the_columns_that_the_training_has_fitted(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.parquet.write_table(houses().slice(150), rows / "others.parquet")
    words = (f"dataset.files={rows / 'others.parquet'}", 'dataset.split="train[:50]"')
    found = json.loads(said(capsys, "evaluate", rows / "prices", *words, "--format", "json"))
    whole = json.loads(said(capsys, "evaluate", rows / "prices", 'dataset.split="train"', "--format", "json"))
    wanted = {of["target"]: of["predicted"] for of in whole["mistakes"]}
    both = [of for of in found["mistakes"] if of["target"] in wanted]
    assert both
    assert all(of["predicted"] == wanted[of["target"]] for of in both)


@pytest.mark.parametrize(("name", "files"), [("whole", ["x.npy", "kind.npy", "wide.npy"]), ("narrow", ["all.parquet"])])
def test_arrays_of_other_files_are_predicted_as_those_of_the_training(
    of_arrays: Path, name: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, whole = (
        [row["value"] for row in csv.DictReader(said(capsys, "predict", of_arrays / name, *paths).splitlines())]
        for paths in ([of_arrays / of for of in files], [of_arrays / f"{name}.npz"])
    )
    assert len(found) == 60
    np.testing.assert_allclose(np.array(found, float), np.array(whole, float), rtol=1e-5, atol=1e-6)


def test_tables_of_another_dialect_are_predicted_and_evaluated(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    pyarrow.csv.write_csv(houses(), plain)
    pyarrow.csv.write_csv(houses(), other, pyarrow.csv.WriteOptions(delimiter=";"))
    csv_is = 'dataset.csv={separator: ";"}'
    assert said(capsys, "predict", rows / "prices", other, csv_is) == said(capsys, "predict", rows / "prices", plain)
    of_files = [
        json.loads(said(capsys, "evaluate", rows / "prices", f"dataset.files={path}", *words, "--format", "json"))[
            "loss"
        ]
        for path, words in ((plain, ()), (other, (csv_is,)))
    ]
    assert of_files[0] == of_files[1]


def test_tables_of_urls_are_predicted_as_the_same_files(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for place, path in enumerate(paths):
        pyarrow.csv.write_csv(houses().select(INPUTS).slice(5 * place, 5), path)
    with serving() as server:
        urls = [server.put(path.name, path.read_bytes()) for path in paths]
        there = said(capsys, "predict", rows / "prices", *urls)
        bad = server.put("bad.csv", b"area,rooms\n1,2\n")
        assert refused(capsys, "predict", rows / "prices", bad, status=2)[0].startswith(f"  {bad}: found no column ")
        other = server.put("houses.parquet", (rows / "houses.parquet").read_bytes())
        of_other = ("evaluate", rows / "prices", f"dataset.files={other}", "dataset.split=train", "--format", "json")
        found = json.loads(said(capsys, *of_other))
        assert found["mistakes"][0]["place"].startswith(f"{other}, row ")
        ragged = server.put("ragged.csv", paths[0].read_bytes() + b"1\n")
        assert refused(capsys, "predict", rows / "prices", ragged)[0].startswith(f"  {ragged}, line 7: found ")
    here = said(capsys, "predict", rows / "prices", *paths)
    assert there == here.replace(f"{tmp_path}/", f"{server.url}/")


def test_a_run_whose_table_is_gone_predicts_and_is_evaluated_on_another(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    before = said(capsys, "predict", rows / "bands", rows / "rows.csv")
    loss = json.loads(said(capsys, "evaluate", rows / "bands", 'dataset.split="train"', "--format", "json"))["loss"]
    (rows / "houses.parquet").rename(tmp_path / "houses.parquet")
    try:
        assert said(capsys, "predict", rows / "bands", rows / "rows.csv") == before
        says(refused(capsys, "evaluate", rows / "bands", status=2))
        words = (f"dataset.files={tmp_path / 'houses.parquet'}", "dataset.split=train", "--format", "json")
        assert json.loads(said(capsys, "evaluate", rows / "bands", *words))["loss"] == pytest.approx(loss)
    finally:
        (tmp_path / "houses.parquet").rename(rows / "houses.parquet")


@pytest.mark.parametrize("command", ["predict", "evaluate", "API"])
def test_a_missing_value_of_a_column_without_steps_is_refused(
    command: str, rows: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    new = houses().set_column(4, "garden", pyarrow.array([True] * 3 + [None] + [False] * 196))
    (folder := rows / "no_garden").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(new.slice(0, 2), folder / "a.parquet")
    pyarrow.parquet.write_table(new.slice(2), folder / "b.parquet")
    if command == "API":
        run = etlrun.load(rows / "prices")
        assert isinstance(run, etlrun.Run)
        told = raised(ConfigError, run.predict, new.select(["area", "rooms", "kind", "garden"]).to_pylist())
        says(told)
    else:
        files = {"predict": [f"{folder}/*.parquet"]}.get(
            command, [f"dataset.files={folder}/*.parquet", "dataset.split=train"]
        )
        says(refused(capsys, command, rows / "prices", *files, status=2), FOLDER=folder)


def test_the_rows_of_several_tables_are_written_as_parquet(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, first in (("first.parquet", 0), ("second.parquet", 150)):
        pyarrow.parquet.write_table(houses().slice(first, 50), rows / name)
    paths = [rows / "second.parquet", rows / "first.parquet"]
    said(capsys, "predict", rows / "bands", *paths, "--format", "parquet", "--output", rows / "found.parquet")
    said(capsys, "predict", rows / "bands", rows / "houses.parquet", "--output", rows / "found.csv")
    found, whole = pyarrow.parquet.read_table(rows / "found.parquet"), pyarrow.csv.read_csv(rows / "found.csv")
    assert found.column_names == ["path", "row", *whole.column_names[1:]]
    assert found["path"].to_pylist() == [str(path) for path in paths for _ in range(50)]
    assert found["row"].to_pylist() == [*range(50), *range(50)]
    wanted = [*whole["class"].to_pylist()[150:], *whole["class"].to_pylist()[:50]]
    assert found["class"].to_pylist() == wanted
    exact = [*whole["probability_dear"].to_pylist()[150:], *whole["probability_dear"].to_pylist()[:50]]
    np.testing.assert_allclose(found["probability_dear"], exact, rtol=1e-5)


def test_values_that_the_training_did_not_have_are_noted_and_predicted(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("area,rooms,kind,garden\n20,3,hut,true\n30,1,flat,true\n40,2,hall,false\n")
    assert len(said(capsys, "predict", rows / "bands", tmp_path / "a.csv").splitlines()) == 4
    cli.main(["predict", str(rows / "bands"), str(tmp_path / "a.csv")])
    noted = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note")]
    assert noted == ["note  kind: values that the training did not have, such as 'hut', 'hall', in 2 of 3 rows."]
