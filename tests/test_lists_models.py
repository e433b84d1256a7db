"""Lists of numbers in models: sequences with masks, beside texts and plain columns, and the steps that fit them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.graph.build import Pipeline
from etlrun.measure.digest import Digest
from etlrun.planning.plan import stage_of
from etlrun.run.backend import seed_all
from etlrun.run.model import build
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.rows.source import RowSplit
from etlrun.stages.columns import Columns
from etlrun.stages.network import TextModel, masks, vectors
from tests.configs import plan_of, refusal_of_plan
from tests.conftest import Once
from tests.lists import AGE, EVENTS, NOTE, NUM_ROWS, SIGNAL, signals, words_of, write_signals
from tests.pipelines import training_pipeline

LAYERS = ("pool", "conv", "gru", "transformer")


@pytest.fixture(scope="module")
def table(once: Once) -> Path:
    """The folder of `signals.parquet`."""
    return once("signals", write_signals)


def batches_in(*words: str) -> tuple[list[tuple[Any, Any]], str]:
    """All batches of a pass, and the digest of their examples."""
    plan = plan_of(*words)
    digest = Digest(plan.train[-1].gives.sequences)
    with training_pipeline(plan) as pipeline:
        found = list(pipeline.dataset.as_numpy_iterator())
    for batch in found:
        digest.add(*batch)
    return found, digest.taken()


def test_no_pass_changes_the_numbers_of_rows(table: Path) -> None:
    """TensorFlow may write to an array of NumPy that a function returns, if it lies at a multiple of 64 bytes."""
    plan = plan_of(*words_of(table, "load.boundaries=[]", columns=f"{EVENTS}, {AGE}"))
    context = contexts_of(plan, open_source(plan.spec.dataset))["validation"]
    assert isinstance(context.split, RowSplit)
    memory, size = np.empty(NUM_ROWS * 8 + 64, np.uint8), context.split.rows.nbytes
    start = -memory.ctypes.data % 64
    rows = memory[start : start + size].view(np.int64)
    rows[:] = context.split.rows
    of_pass = Pipeline(
        plan.evaluation, dataclasses.replace(context, split=dataclasses.replace(context.split, rows=rows))
    )
    before = rows.tolist()
    for _ in range(3):
        assert len([*of_pass.dataset]) == 3
        assert rows.tolist() == before


def test_zeros_in_sequences_are_no_padding_and_digests_count_none(table: Path) -> None:
    whole = words_of(table, "dataset.split=train", "dataset.eval_split=null")
    bucketed, digest = batches_in(*whole)
    step = stage_of(plan_of(*whole).train, Columns) or next(
        each.stage for stage in plan_of(*whole).train for each in stage.steps if isinstance(each.stage, Columns)
    )
    standardize: Any = step.outputs[0].steps[0]
    numbers = np.concatenate(signals()["signal"])
    np.testing.assert_allclose([standardize.mean, standardize.std], [numbers.mean(), numbers.std()])
    rows = sorted(row[~np.isnan(row)].tolist() for batch, _ in bucketed for row in batch)
    expected: list[list[float]] = sorted(
        ((np.array(of) - standardize.mean) / standardize.std).astype("float32").tolist() for of in signals()["signal"]
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


def test_a_text_numbers_and_plain_columns_in_one_model(table: Path) -> None:
    again = "again: {of: note, steps: [{tokenize: characters}, lookup, {embed: 2}]}"
    columns = f"{SIGNAL}, {EVENTS}, {NOTE}, {AGE}, {again}"
    plan = plan_of(*words_of(table, "model=text", "model.layer=gru", "model.units=4", columns=columns))
    flow, stage = plan.train[-1].gives, plan.spec.model
    assert isinstance(stage, TextModel)
    assert flow.sequences == ("again", "events", "note", "signal")
    with training_pipeline(plan) as pipeline:
        (inputs, _) = next(iter(pipeline.dataset))
    assert {name: of.shape[0] for name, of in inputs.items()} == dict.fromkeys(flow.inputs, len(inputs["age"]))
    assert len({inputs[name].shape[1] for name in flow.sequences}) == 1
    model = build(stage, flow, [], 2)
    assert np.isfinite(np.asarray(model(inputs))).all()


def test_auto_takes_lists_where_batches_take_sequences(table: Path) -> None:
    words = words_of(table, "transform.columns=auto", "dataset.inputs=[signal,events]")
    step = next(
        each.stage for stage in plan_of(*words).train for each in stage.steps if isinstance(each.stage, Columns)
    )
    assert {of.name: [each.written for each in of.steps] for of in step.chosen} == {
        "signal": [{"truncate": 32}, "standardize"],
        "events": [{"truncate": 32}, "lookup", "embed"],
    }
    told = refusal_of_plan(*words, "load.boundaries=null")
    note = "is no input, since it has sequences: set load=bucketed and model=text to use it"
    assert told == (
        f"transform.columns: found no input: events {note}; signal {note}; expected at least one\n"
        "    -> name columns with their steps in transform.columns"
    )


UNFIT = {
    "integers without vectors": (
        "events: {of: events}",
        (
            "model.text: found 16 x int64 [?] in [0, 3], kind before it; expected numbers of events as floats, or "
            "as vectors\n    -> end its steps with standardize, or with lookup and embed"
        ),
    ),
    "a cross": (
        "place: {of: [events, events], steps: [{cross: 10}, embed]}",
        (
            "transform.columns.place.steps[0]: found int64 [?] in [0, 3] and int64 [?] in [0, 3]; expected single "
            "values, no sequences\n    -> choose other columns"
        ),
    ),
}


@pytest.mark.parametrize(("columns", "told"), UNFIT.values(), ids=UNFIT)
def test_steps_that_do_not_fit_lists(table: Path, columns: str, told: str) -> None:
    assert refusal_of_plan(*words_of(table, "model=text", columns=columns)) == told


BEYOND = {
    "{standardize: {mean: 0, std: 0.5}}, log1p": (
        "found -2.0 of ids in {}/signals.parquet, row 4; expected values above -1\n"
        "    -> put {{clip: [0, null]}} before it, or leave it out"
    ),
    "log1p": (
        "found int64 [?] in [-1, 9], such as -1 of ids in {}/signals.parquet, row 4; expected values above -1\n"
        "    -> put {{clip: [0, null]}} before it, or leave it out"
    ),
    "{identity: 4}": (
        "found int64 [?] in [-1, 9], such as 4 of ids in {}/signals.parquet, row 3; expected integers from 0 to 3\n"
        "    -> use lookup, or bucketize"
    ),
    "{clip: [0, null]}, {identity: 9}": (
        "found 9.0 of ids in {}/signals.parquet, row 4; expected integers from 0 to 8\n"
        "    -> name more categories, or put {{clip: [0, 8]}} before it"
    ),
    "{lookup: {values: [0, 1, 4], oov: error}}": (
        "found 9, -1 in 2 of 6 items of train, of ids; expected a value of the vocabulary: [0, 1, 4]\n"
        "    -> add the value to `values`, or set `oov` to 1"
    ),
}


@pytest.mark.parametrize("steps", BEYOND)
def test_items_beyond_the_categories_are_refused_with_their_rows(steps: str, tmp_path: Path) -> None:
    rows = {"ids": [[0, 1], [], None, [0, 4], [9, -1]], "kind": ["a", "b", "a", "b", "a"]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "signals.parquet")
    whole = ("dataset.split=train", "dataset.eval_split=null", "dataset.order=file")
    vectors = "" if "log1p" in steps else ", {embed: 2}"
    words = words_of(tmp_path, *whole, columns=f"ids: {{of: ids, steps: [{steps}{vectors}]}}")
    place = int(steps.startswith(("{clip", "{standardize")))
    assert refusal_of_plan(*words) == f"transform.columns.ids.steps[{place}]: {BEYOND[steps].format(tmp_path)}"


def test_items_outside_of_a_vocabulary_are_refused(table: Path) -> None:
    events = "events: {of: events, steps: [{lookup: {values: [0, 3], oov: error}}, {embed: 3}]}"
    count = sum(event in (1, 2) for row in signals()["events"] for event in row)
    total = sum(map(len, signals()["events"]))
    found = refusal_of_plan(*words_of(table, "dataset.split=train", "dataset.eval_split=null", columns=events))
    assert found == (
        f"transform.columns.events.steps[0]: found 1, 2 in {count:,} of {total:,} items of train, of events; expected a"
        " value of the vocabulary: [0, 3]\n"
        "    -> add the value to `values`, or set `oov` to 1"
    )


def test_lists_are_no_number_to_predict(table: Path) -> None:
    words = [word for word in words_of(table, columns="age: {of: age}") if not word.startswith("dataset.target=")]
    assert refusal_of_plan(*words, "dataset.target={signal: number}", "load.boundaries=null") == (
        "dataset.target: found signal, which is lists of different lengths; expected a number in each row\n"
        "    -> name another column"
    )


@pytest.mark.parametrize("given", [(), ("load.boundaries=[4, 8]", "load.shuffle=full")])
def test_sequences_of_other_examples_than_rows_are_refused(tmp_path: Path, given: tuple[str, ...]) -> None:
    words = ("dataset=tfrecord", f"dataset.files={tmp_path}/*.tfrecord", "dataset.features={note: text}")
    steps = "[{tokenize: whitespace}, {lookup: {values: [a, b]}}, {embed: 2}]"
    others = ("dataset.num_classes=2", "extract=sequential", "transform=columns", "load=padded", "model=emulated")
    told = refusal_of_plan(
        *words, *others, "cache=none", f"transform.columns={{ids: {{of: note, steps: {steps}}}, note: drop}}", *given
    )
    boundaries = given[0].partition("=")[2] if given else []
    assert told == (
        f"load.boundaries: found {boundaries}; expected null with examples that are batched one by one\n"
        "    -> end their steps with multi_hot or tf_idf, or set dataset=table"
    )
