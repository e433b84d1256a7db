"""Lists of numbers: their sequences, masks and steps, what a model of them has learned, and the commands around it."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from etlrun.datasets.examine.show import as_text, collect
from etlrun.graph.build import Pipeline
from etlrun.measure.digest import Digest
from etlrun.planning.plan import stage_of
from etlrun.run.backend import seed_all
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.column_categories import Embed, Lookup
from etlrun.stages.column_numbers import Fill, Log1p, Standardize
from etlrun.stages.columns import Columns, Output
from etlrun.stages.network import TextModel, masks, vectors
from etlrun.trained.columns_layer import ColumnsLayer
from tests import lists
from tests.configs import plan_of, refusal_of_plan
from tests.conftest import Once
from tests.golden import Case, Golden, Says, cases
from tests.kinds import made_of
from tests.lists import AGE, EVENTS, NUM_ROWS, SIGNAL, words_of
from tests.pipelines import training_pipeline
from tests.trained import said

LAYERS = ("pool", "conv", "gru")


def batches_in(*words: str) -> tuple[list[tuple[Any, Any]], str]:
    """All batches of a pass, and the digest of their examples."""
    plan = plan_of(*words)
    digest = Digest(plan.train[-1].gives.sequences)
    with training_pipeline(plan) as pipeline:
        found = list(pipeline.dataset.as_numpy_iterator())
    for batch in found:
        digest.add(*batch)
    return found, digest.taken()


def test_no_pass_changes_the_numbers_of_rows(signals: Path) -> None:
    """TensorFlow may write to an array of NumPy that a function returns, if it lies at a multiple of 64 bytes."""
    plan = plan_of(*words_of(signals, "load.boundaries=[]", columns=f"{EVENTS}, {AGE}"))
    context = contexts_of(plan, open_source(plan.spec.dataset))["validation"]
    memory, size = np.empty(NUM_ROWS * 8 + 64, np.uint8), context.split.numbers.nbytes
    start = -memory.ctypes.data % 64
    rows = memory[start : start + size].view(np.int64)
    rows[:] = context.split.numbers
    of_pass = Pipeline(
        plan.evaluation, dataclasses.replace(context, split=dataclasses.replace(context.split, numbers=rows))
    )
    before = rows.tolist()
    for _ in range(3):
        assert len([*of_pass.dataset]) == 3
        assert rows.tolist() == before


def test_zeros_in_sequences_are_no_padding_and_digests_count_none(signals: Path) -> None:
    whole = words_of(signals, "dataset.split=train", "dataset.eval_split=null")
    bucketed, digest = batches_in(*whole)
    step = stage_of(plan_of(*whole).train, Columns) or next(
        each.stage for stage in plan_of(*whole).train for each in stage.steps if isinstance(each.stage, Columns)
    )
    standardize: Any = step.outputs[0].steps[0]
    numbers = np.concatenate(lists.signals()["signal"])
    np.testing.assert_allclose([standardize.mean, standardize.std], [numbers.mean(), numbers.std()])
    rows = sorted(row[~np.isnan(row)].tolist() for batch, _ in bucketed for row in batch)
    expected: list[list[float]] = sorted(
        ((np.array(of) - standardize.mean) / standardize.std).astype("float32").tolist()
        for of in lists.signals()["signal"]
    )
    assert len(rows) == NUM_ROWS
    assert all(len(one) == len(other) for one, other in zip(rows, expected, strict=True))
    np.testing.assert_allclose(np.concatenate(rows), np.concatenate(expected), rtol=1e-5, atol=1e-6)
    assert all(batch.shape[1] in (8, 16, 32) for batch, _ in bucketed)
    padded, digest_of_padded = batches_in(*whole, "load.boundaries=[]")
    assert {batch.shape[1] for batch, _ in padded} != {batch.shape[1] for batch, _ in bucketed}
    assert digest == digest_of_padded
    assert (
        digest
        != batches_in(*whole, "transform.columns={signal: {of: signal, steps: [{truncate: 20}, standardize]}}")[1]
    )


def alone(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A sequence in a batch of its own, with one item of padding if it is empty."""
    there = ~np.isnan(values) if values.dtype.kind == "f" else values > 0
    return values[None, : max(int(there.sum()), 1)]


@pytest.mark.parametrize("layer", LAYERS)
def test_padding_changes_no_output(layer: str) -> None:
    seed_all(0)
    given = {
        "ids": keras.Input((None,), dtype="int64", name="ids"),
        "numbers": keras.Input((None,), name="numbers"),
        "age": keras.Input((), name="age"),
    }
    network = TextModel.network(
        vectors(given, embedded={"ids": (5, 3)}),
        masks(given, sequences=["ids", "numbers"]),
        layer=layer,
        units=8,
        dropout=0.5,
    )
    model = keras.Model(given, network)
    rng, lengths = np.random.default_rng(0), [0, 1, 3, 9, 9]
    ids, numbers = np.zeros((5, 12), np.int64), np.full((5, 12), np.nan, np.float32)
    for row, length in enumerate(lengths):
        ids[row, : 9 - length] = rng.integers(1, 5, 9 - length)
        numbers[row, :length] = np.where(rng.random(length) < 0.5, 0, rng.normal(size=length))
    numbers[4, 8] = 0  # a real one, at the end
    age = np.arange(5, dtype=np.float32)
    together = np.asarray(model({"ids": ids, "numbers": numbers, "age": age}))
    each = [
        np.asarray(model({"ids": alone(ids[row]), "numbers": alone(numbers[row]), "age": age[row : row + 1]}))[0]
        for row in range(5)
    ]
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together, each, rtol=1e-5, atol=1e-6)
    fewer = numbers.copy()
    fewer[4, 8] = np.nan
    assert not np.allclose(together[4], np.asarray(model({"ids": ids, "numbers": fewer, "age": age}))[4])


def test_auto_takes_lists_where_batches_take_sequences(signals: Path, says: Says) -> None:
    words = words_of(signals, "transform.columns=auto", "dataset.inputs=[signal,events]")
    step = next(
        each.stage for stage in plan_of(*words).train for each in stage.steps if isinstance(each.stage, Columns)
    )
    says({of.name: [each.written for each in of.steps] for of in step.chosen})


@pytest.mark.parametrize("case", cases("sequences"))
def test_what_does_not_fit_lists_is_refused(signals: Path, tmp_path: Path, case: Case, golden: Golden) -> None:
    folder, columns = signals, case.get("columns", SIGNAL)
    if steps := case.get("steps"):
        rows = {"ids": [[0, 1], [], None, [0, 4], [9, -1]], "kind": ["a", "b", "a", "b", "a"]}
        pyarrow.parquet.write_table(pa.table(rows), tmp_path / "signals.parquet")
        folder, columns = tmp_path, f"ids: {{of: ids, steps: [{steps}]}}"
    given = words_of(folder, *case["overrides"], columns=columns, target=case.get("target", "{kind: class}"))
    golden(case, refusal_of_plan(*given).replace(str(folder), "DIR"))


@pytest.mark.parametrize("given", [(), ("load.boundaries=[4, 8]", "load.shuffle=full")])
def test_sequences_of_other_examples_than_rows_are_refused(tmp_path: Path, given: tuple[str, ...], says: Says) -> None:
    words = ("dataset=tfrecord", f"dataset.files={tmp_path}/*.tfrecord", "dataset.features={note: text}")
    steps = "[{tokenize: whitespace}, {lookup: {values: [a, b]}}, {embed: 2}]"
    others = ("dataset.num_classes=2", "extract=sequential", "transform=columns", "load=padded", "model=emulated")
    columns = f"transform.columns={{ids: {{of: note, steps: {steps}}}, note: drop}}"
    says(refusal_of_plan(*words, *others, "cache=none", columns, *given))


COLUMNS = f"{SIGNAL.replace('[', '[{fill: 5}, ')}, {EVENTS}"


@pytest.mark.slow
def test_an_evaluation_shows_the_beginning_and_the_end_of_lists(
    once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(made_of("sequences", once).run, tmp_path / "run")
    said(capsys, "evaluate", folder, "--importance", "1")
    found = json.loads((folder / "evaluations" / "train[80%:].json").read_text())
    assert found["accuracy"]["value"] == pytest.approx(found["then"]["accuracy"])
    assert {of["name"] for of in found["importance"]["columns"]} == {"signal", "events", "note", "age"}
    (worst, *_) = found["mistakes"]
    row = int(worst["place"].rpartition(" ")[2])
    assert worst["columns"]["events"] == ",".join(map(str, lists.signals()["events"][row]))
    numbers = [float(of) for of in worst["columns"]["signal"].replace("...,", "").split(",")]
    kept = [*lists.signals()["signal"][row]]
    np.testing.assert_allclose(numbers, kept if len(kept) <= 8 else [*kept[:3], *kept[-3:]], atol=1e-4)
    assert f"signal={worst['columns']['signal']}" in (folder / "evaluations" / "train[80%:].html").read_text()


def taken(name: str, lengths: str = "") -> dict[str, Any]:
    """What a layer is told of an input of lists."""
    flags = {"is_list": True, "is_required": False, "is_missing_when_empty": False}
    return {"name": name, "column": name, "lengths": lengths, **flags}


def test_an_item_that_a_step_makes_nan_is_no_padding() -> None:
    columns = Columns(outputs=(Output(name="x", of=("x",), steps=(Log1p(),)),))
    layer = ColumnsLayer(columns.described(), [taken("x")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="an item of NaN"):
        layer({"x": tf.constant([[1.0, -3.0, 2.0]])})
    np.testing.assert_allclose(layer({"x": tf.constant([[1.0, 3.0]])})["x"], np.log1p([[1, 3]]), rtol=1e-6)


def test_an_export_takes_lists_with_padding_behind_their_items() -> None:
    signal = Output(name="x", of=("x",), steps=(Fill(value=0, filled=0), Standardize(mean=1, std=2)))
    large = 2**60
    ids = Output(name="n", of=("n",), steps=(Lookup(values=(large, large + 1)), Embed(dimension=2, padding=True)))
    columns = Columns(outputs=(signal, ids)).described()
    layer = ColumnsLayer(columns, [taken("x", "x_length"), taken("n")])
    again = ColumnsLayer.from_config(layer.get_config())
    nan, pad = np.nan, np.iinfo(np.int64).min
    given = {
        "x": np.array([[3.0, nan, nan], [1, nan, nan], [nan] * 3]),
        "x_length": np.array([3, 1, 0]),
        "n": np.array([[large + 1, pad], [pad] * 2, [6, large]]),
    }
    found = again({name: tf.constant(values) for name, values in given.items()})
    np.testing.assert_array_equal(found["x"], [[1, -0.5, -0.5], [0, nan, nan], [nan] * 3])
    np.testing.assert_array_equal(found["n"], [[3, 0, 0], [0, 0, 0], [1, 2, 0]])


def test_the_doctor_finds_equal_lists_and_has_figures_of_their_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    columns = lists.signals()
    rows = [{name: columns[name][row] for name in ("signal", "events", "kind")} for row in range(100)]
    other = "up" if rows[1]["kind"] == "down" else "down"
    tables = {"train": rows[:80], "val": [*rows[80:], rows[0], {**rows[1], "kind": other}]}
    for name, of in tables.items():
        pyarrow.parquet.write_table(pa.Table.from_pylist(of), tmp_path / f"{name}.parquet")
    files = f"dataset.files={{train: {tmp_path}/train.parquet, val: {tmp_path}/val.parquet}}"
    words = [word for word in words_of(tmp_path, columns=COLUMNS) if "dataset.files" not in word]
    words += [files, "dataset.split=train", "dataset.eval_split=val"]
    found = json.loads(said(capsys, "doctor", *words, "--format", "json"))
    says([line for of in found["findings"] for line in (of["text"], *of["places"])])
    events = next(of for of in found["splits"][0]["columns"] if of["name"] == "events")
    assert events["rows"] == sum(len(row["events"]) for row in tables["train"])
    assert (events["type"], events["quantiles"][0], events["quantiles"][-1]) == ("integers", 0, 3)


def test_lists_are_shown_after_each_step(signals: Path, says: Says) -> None:
    plan = plan_of(*words_of(signals, "dataset.order=file", columns=COLUMNS))
    sheet = collect(plan, "train", 3)
    shown = {
        view.path: [as_text(cell["events"], view.features["events"]) for cell in view.cells] for view in sheet.views
    }
    says(shown)
    signal = next(view for view in sheet.views if view.path == "transform.columns")
    assert as_text(signal.cells[1]["signal"], signal.features["signal"]) == "[0.1535, 0.0085, 0.0085, 0.208 ]"
