"""What holds of each kind of dataset, whatever reads it: one run, and all that is said, written and trained of it."""

import csv
import io
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from etlrun.datasets.examine.show import collect
from etlrun.graph.build import Pipeline
from etlrun.measure.digest import Digest
from etlrun.planning.plan import Plan
from etlrun.review.difference import compare
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.trained.predict import of_plan, opened
from tests.configs import plan_of
from tests.conftest import Once
from tests.forked import forked
from tests.kinds import KINDS, Made, made_of
from tests.programs import program_of
from tests.quick import shallow
from tests.runs import are_equal, complete_here, kill_after_state, summary_of, variables_of
from tests.servers import serving
from tests.trained import described, said

Array = npt.NDArray[Any]
SPLIT = "train[80%:]"


@pytest.fixture(scope="session", params=KINDS)
def made(request: pytest.FixtureRequest, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A kind with its run, which is made once for all workers: of files at a URL once for each, which serves them."""
    kind = KINDS[request.param]
    if not kind.is_served:
        yield made_of(request.param, once)
        return
    with serving() as server:
        files = once(f"files of {request.param}", kind.write)
        url, run = server.put_folder(files), tmp_path_factory.mktemp("served") / "run"
        complete_here(run, kind.run_on(url))
        yield Made(kind=kind, place=url, run=run, files=files)


def by_target(planned: Plan, found: Any) -> dict[str, Any]:
    """What is of each target: a model or a pipeline has no names for a single one."""
    return dict(found) if isinstance(found, dict) else {planned.spec.dataset.examples.targets[0]: found}


def validated(planned: Plan, model: Any) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Predictions, targets and weights of the validation, by target, in the order of the data; as many as classes."""
    context = contexts_of(planned, open_source(planned.spec.dataset))["validation"]
    found, wanted, weights = list[Any](), list[Any](), list[Array]()
    for inputs, targets, *weight in Pipeline(planned.evaluation, context).dataset:
        found.append(by_target(planned, model(inputs, training=False)))
        wanted.append(by_target(planned, targets))
        weights.append(np.ravel(weight[0]) if weight else np.ones(len(tf.nest.flatten(targets)[0])))
    whole, known = (
        {name: np.concatenate([np.asarray(batch[name]) for batch in of]) for name in of[0]} for of in (found, wanted)
    )
    for name, values in whole.items():
        feature = planned.spec.dataset.examples.features[name]
        if (feature.is_class or feature.is_binary) and not feature.is_labels and values.shape[1] == 1:
            whole[name] = np.concatenate([1 - values, values], axis=1)
    return whole, known, np.concatenate(weights)


def predicted(text: str, targets: tuple[str, ...]) -> dict[str, Array]:
    """The numbers in rows of `predict`, by target."""
    rows = [*csv.DictReader(io.StringIO(text))]
    found = {}
    for name in targets:
        prefix = f"{name}_" if len(targets) > 1 else ""
        columns = [column for column in rows[0] if re.fullmatch(rf"{prefix}(probability_.+|value)", column)]
        found[name] = np.array([[float(row[column]) for column in columns] for row in rows], np.float32)
    return found


def model_of(made: Made) -> Any:
    return keras.models.load_model(made.run / "model.keras")


def predictions(made: Made, capsys: pytest.CaptureFixture[str]) -> dict[str, Array]:
    text = said(capsys, "predict", made.run, f"dataset.split={SPLIT!r}")
    return predicted(text, made.plan().spec.dataset.examples.targets)


def test_predictions_are_those_of_the_model_on_the_inputs_of_the_pipeline(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    found = predictions(made, capsys)
    wanted, _, _ = validated(made.plan(*made.kind.in_order), model_of(made))
    assert found.keys() == wanted.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-5, atol=1e-6)
        assert np.ptp(values, axis=0).max() > 1e-4  # they tell examples apart


def figures(predicted: Array, wanted: Array, weights: Array, *, is_labels: bool) -> dict[str, float]:
    """By NumPy."""
    if is_labels:
        return {"accuracy": np.average(((predicted > 0.5) == (wanted > 0.5)).mean(axis=1), weights=weights)}
    if predicted.shape[1] > 1:
        return {"accuracy": np.average(predicted.argmax(axis=1) == wanted.reshape(-1), weights=weights)}
    errors, wanted = predicted[:, 0] - wanted.reshape(-1), wanted.reshape(-1)
    spread = np.average((wanted - np.average(wanted, weights=weights)) ** 2, weights=weights)
    squared = np.average(errors**2, weights=weights)
    return {"mae": np.average(abs(errors), weights=weights), "rmse": squared**0.5, "r2": 1 - squared / spread}


def test_an_evaluation_has_the_figures_of_the_predictions_and_of_the_epoch(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(made.run, tmp_path / "run"))
    told = json.loads(said(capsys, "evaluate", run, "--importance", "0", "--format", "json"))
    summary, planned = summary_of(run), made.plan(*made.kind.in_order)
    last, features = summary["epochs"][summary["kept"]["epoch"] - 1], planned.spec.dataset.examples.features
    assert told["loss"] == pytest.approx(last["val_loss"], rel=1e-4)
    found, (_, wanted, weights) = predictions(made, capsys), validated(planned, model_of(made))
    assert told["examples"] == len(weights)
    measured = {**last, **last.get("metrics", {})}
    for name, values in found.items():
        prefix, of = (f"val_{name}_", told["targets"][name]) if len(found) > 1 else ("val_", told)
        for figure, value in figures(values, wanted[name], weights, is_labels=features[name].is_labels).items():
            assert of[figure]["value"] == pytest.approx(value, rel=1e-4), (name, figure)
            assert measured[f"{prefix}{figure}"] == pytest.approx(value, rel=1e-3), (name, figure)
    assert (run / "evaluations" / f"{SPLIT}.html").exists() or made.kind.is_served


OF_FILES = [name for name, kind in KINDS.items() if kind.file]


@pytest.mark.parametrize("made", OF_FILES, indirect=True)
def test_rows_of_files_are_predicted_as_those_of_the_split(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    targets = made.plan().spec.dataset.examples.targets
    text = said(capsys, "predict", made.run, "dataset.split=train")
    rows = [int(row["path"].rpartition(" ")[2]) for row in csv.DictReader(io.StringIO(text))]
    of_file = said(capsys, "predict", made.run, made.files / made.kind.file)
    assert [int(row["row"]) for row in csv.DictReader(io.StringIO(of_file))] == sorted(rows) == [*range(len(rows))]
    of_split, found = predicted(text, targets), predicted(of_file, targets)
    for name in targets:
        np.testing.assert_allclose(found[name][rows], of_split[name], rtol=1e-5, atol=1e-6)


def taken(described: dict[str, Any], stored: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Columns as they are stored, as the inputs of an export that it describes: lists with what stands behind them."""
    found = {}
    for of in described.get("inputs") or [described["input"]]:
        values = stored[of.get("column", of["name"])]
        if of["content"].startswith("numbers of items"):
            values = tf.cast(values.row_lengths(), of["dtype"])
        elif isinstance(values, tf.RaggedTensor):
            padding = np.nan if of["dtype"].startswith("float") else np.iinfo(of["dtype"]).min
            values = tf.cast(values, of["dtype"]).to_tensor(padding)
        found[of["name"]] = values if of["dtype"] == "string" else tf.cast(values, of["dtype"])
    return found


@pytest.mark.parametrize(
    ("made", "form"),
    [
        pytest.param(name, form, marks=[pytest.mark.slow] if form == "saved_model" else [])
        for name, kind in KINDS.items()
        for form in kind.formats
    ],
    indirect=["made"],
)
def test_an_export_takes_what_is_stored_and_predicts_the_same(
    made: Made, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "export", made.run, "--format", form, "--output", tmp_path / "export")
    planned, of = made.plan(), described(tmp_path / "export")
    split = opened(planned, "dataset.eval_split")
    stored = of_plan(planned, split).stored([*planned.spec.dataset.examples.features])
    given, targets = taken(of, stored), planned.spec.dataset.examples.targets
    if form == "keras":
        model = keras.saving.load_model(tmp_path / "export" / "model.keras", compile=False)
        found = model(given if "inputs" in of else next(iter(given.values())))
    else:
        found = tf.saved_model.load(tmp_path / "export").signatures["serving_default"](**given)
    wanted = predictions(made, capsys)
    for name in targets:
        ends = [f"{name}_{end}" if len(targets) > 1 else end for end in ("probabilities", "value")]
        values = found if tf.is_tensor(found) else next(found[end] for end in ends if end in found)
        np.testing.assert_allclose(values, wanted[name], rtol=1e-5, atol=1e-6)
    if not made.kind.is_served:
        assert of["check"]["from_predict"] < 1e-5


@pytest.mark.slow
def test_a_program_has_the_digests_and_the_losses_of_the_run(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shallow(monkeypatch)
    planned = plan_of(*made.kind.run_on(made.files))
    module = program_of(planned, tmp_path)
    history = module.train()[0].history
    assert [*zip(history["loss"], history["val_loss"], strict=True)] == [
        (epoch["loss"], epoch["val_loss"]) for epoch in made.epochs
    ]
    module = program_of(planned, tmp_path)
    batches, digest = iter(module.train_dataset()), Digest(planned.train[-1].gives.sequences)
    for epoch in made.epochs:
        for name, some in (
            ("digest", itertools.islice(batches, epoch["steps"])),
            ("validation_digest", module.validation_dataset()),
        ):
            for batch in some:
                digest.add(*tf.nest.map_structure(lambda of: of.numpy(), batch))
            assert digest.taken() == epoch[name]


RESULTS = ("loss", "val_loss", "digest", "validation_digest", "metrics")


@pytest.mark.slow
def test_a_run_killed_inside_an_epoch_ends_as_if_undisturbed(made: Made, tmp_path: Path) -> None:
    killed, resumed = tmp_path / "killed", tmp_path / "resumed"
    kill_after_state(forked([*made.words, f"hydra.run.dir={killed}"], tmp_path), killed, 1)
    complete_here(resumed, [*made.words, f"trainer.resume={killed}"])
    epochs = summary_of(resumed)["epochs"]
    assert [[epoch.get(name) for name in RESULTS] for epoch in epochs] == [
        [epoch.get(name) for name in RESULTS] for epoch in made.epochs
    ]
    assert epochs[1]["resumed_steps"] + epochs[1]["steps"] == made.epochs[1]["steps"]
    assert epochs[1]["resumed_steps"] > 0
    assert are_equal(variables_of(resumed), variables_of(made.run))


HERE = [name for name, kind in KINDS.items() if not kind.is_served]
"""Kinds whose examples `verify` reads: it fetches nothing."""


def test_a_comparison_says_where_examples_differ_first(made: Made) -> None:
    override, stage = made.kind.other
    assert compare(made.plan(), made.plan(override)).headline.startswith(f"changes the data, from {stage} on")
    assert made.plan().fingerprint != made.plan(override).fingerprint
    assert compare(made.plan(), made.plan("load.prefetch=1")).headline == "changes only the speed"


@pytest.mark.parametrize("made", HERE, indirect=True)
def test_verify_reads_the_digests_of_the_run_and_where_others_differ_first(made: Made, verified: Any) -> None:
    digests = {"train": [made.epochs[0]["digest"]] * 2, "validation": [made.epochs[0]["validation_digest"]] * 2}
    override, stage = made.kind.other
    old, same, other = (shlex.join([*made.words, *word]) for word in ((), ("load.prefetch=1",), (override,)))
    facts = json.loads(verified(old, same, "--format", "json"))["experiments"][0]["facts"]
    assert (facts["digests"], facts["is_same"]) == (digests, True)
    facts = json.loads(verified(old, other, "--format", "json"))["experiments"][0]["facts"]
    assert (facts["is_same"], facts["contradicts"]) == (False, False)
    assert f" differ from {stage} on (" in facts["lines"][0]
    assert facts["digests"]["train"][0] == digests["train"][0] != facts["digests"]["train"][1]


def test_what_is_shown_last_is_what_the_model_is_given(made: Made) -> None:
    planned = made.plan(*made.kind.in_order)
    view = collect(planned, "validation", 3).views[-1]
    context = contexts_of(planned, open_source(planned.spec.dataset))["validation"]
    inputs, targets, *_ = next(iter(Pipeline(planned.evaluation, context).dataset))
    (first, *_) = planned.evaluation[-1].gives.inputs
    whole = {**(inputs if isinstance(inputs, dict) else {first: inputs}), **by_target(planned, targets)}
    names = [name for name in view.cells[0] if name in whole]
    assert names
    for name, (place, cell) in itertools.product(names, enumerate(view.cells)):
        shown, value = np.asarray(cell[name]), whole[name][place].numpy()
        np.testing.assert_array_equal(value[: len(shown)] if shown.ndim else value.reshape(()), shown, view.path)


@pytest.mark.parametrize("made", HERE, indirect=True)
def test_the_doctor_counts_the_examples_of_the_run(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "doctor", *made.words, "--format", "json"))
    assert [of["examples"] for of in found["splits"]] == [*summary_of(made.run)["dataset"]["examples"].values()]
    assert not [of["text"] for of in found["findings"] if "can't be used" in of["text"]]
