"""What a run reports of its losses and metrics is what NumPy computes of the predictions of its model, which stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow.parquet
import pytest

from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan, given_to_model
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.config import read_config
from etlrun.record.summary import MEASURES, read_summary
from etlrun.run import model as models  # noqa: F401 - registers what a saved model has
from etlrun.run.backend import seed_all
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import counts_of
from etlrun.stages import STAGES
from etlrun.stages.flow import Flow
from etlrun.stages.load import balanced
from tests import test_rows_several, test_rows_targets, texts
from tests.conftest import Once
from tests.runs import run_here
from tests.test_devices import on_devices
from tests.trained import said

STAYS = ("trainer.optimizer=sgd", "trainer.learning_rate=1e-30", "trainer.epochs=2", "trainer.jit_compile=auto")
ON_DEVICES = ("trainer.devices=4", "load.drop_remainder=true")
FOUR = "on four"
CASES = ("several", "several in whole batches", "class weights", "sequences")
OF = {
    ("tensorflow", ""): CASES,
    ("jax", ""): (CASES[0], *CASES[2:]),  # whose batches are all of a known size
    **{(backend, FOUR): CASES[1:3] for backend in ("tensorflow", "jax")},
}
Measures = dict[str, float]
Numbers = npt.NDArray[Any]


def cases(folder: Path) -> dict[str, list[str]]:
    """The arguments of each run: 160 rows in batches of 12, the last of which has 4, and 40 rows of validation."""
    several, size = test_rows_several.learning(folder), "load.batch_size=12"
    of_class = (size, "trainer.metrics=[accuracy,precision,recall]")
    weighted = test_rows_targets.words(folder, "load.class_weights=balanced", target="{band: class}")
    learned = ("model=text", "model.units=4", "model.dropout=0.0", "load.boundaries=[]")
    of_text = [word for word in texts.words_of(folder, *learned) if "emulated" not in word and "step_ms" not in word]
    found = [[*several, size], [*several, size, ON_DEVICES[1]], [*weighted, *of_class], [*of_text, *of_class]]
    return {name: [*words, *STAYS] for name, words in zip(CASES, found, strict=True)}


def train(folder: Path, where: str) -> None:
    """Train models of the cases, on TensorFlow or JAX, on one device or on four."""
    pyarrow.parquet.write_table(test_rows_several.several(), folder / "houses.parquet")
    texts.write_reviews(folder)
    backend, _, how = where.partition(" ")
    runs = {
        name: [*words, *(ON_DEVICES if how else ())]
        for name, words in cases(folder).items()
        if name in OF[backend, how]
    }
    if where == "tensorflow":
        assert [run_here(folder / name, words)[0] for name, words in runs.items()] == [0] * len(runs)
        return
    status, err = on_devices(
        backend,
        [[*words, f"hydra.run.dir={folder / name}"] for name, words in runs.items()],
        folder,
        count=4 if how else 1,
    )
    assert {*status} == {0}, err


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, once: Once) -> tuple[Path, int]:
    """The folder of the runs of all cases, and the number of devices that trained them."""
    folder = once(f"metrics {request.param}", lambda folder: train(folder, request.param))
    return folder, 4 if request.param.endswith(FOUR) else 1


TRAINED = [
    pytest.param(
        f"{backend} {how}".rstrip(),
        case,
        marks=[
            *([pytest.mark.slow] if how or backend == "jax" else []),
            *([pytest.mark.needs("jax")] if backend == "jax" else []),
        ],
    )
    for (backend, how), names in OF.items()
    for case in names
]


@pytest.mark.parametrize(("runs", "case"), TRAINED, indirect=["runs"])
def test_reported_losses_and_metrics_are_those_of_numpy(runs: tuple[Path, int], case: str) -> None:
    folder, devices = runs[0] / case, runs[1]
    summary = read_summary(folder)
    assert summary is not None
    for epoch, wanted in zip(summary.epochs, by_hand(folder, devices), strict=False):
        told = {name: epoch.measure(name) for name in (*MEASURES, *epoch.metrics)}
        told = {name: value for name, value in told.items() if value is not None}
        assert told == {
            name: pytest.approx(value, abs=0.02 if "auc" in name else 1e-6, rel=1e-5) for name, value in wanted.items()
        }


def by_hand(folder: Path, devices: int) -> Iterator[Measures]:
    """Losses and metrics of each epoch in turn, by the names that it has them by."""
    planned = plan(parse(read_config(folder), STAGES))
    source = open_source(planned.spec.dataset)
    seed_all(planned.spec.trainer.seed)  # on which the order of a pass depends, too
    contexts, model = contexts_of(planned, source), keras.models.load_model(folder / "model.keras")
    counts = counts_of(source, source.split(planned.spec.dataset.split, "dataset.split"), by_number=False)
    weights = np.array(balanced([*counts.values()])) if planned.spec.load.class_weights == "balanced" else None
    of_split = {
        "": Pipeline(planned.train, contexts["train"]),
        "val_": Pipeline(planned.evaluation, contexts["validation"]),
    }
    while True:
        found = Measures()
        for before, pipeline in of_split.items():
            measured = of_pass(planned, model, [*shared(pipeline.dataset.as_numpy_iterator(), devices)], weights)
            found |= {before + of: value for of, value in measured.items()}
        yield found


def of_pass(planned: Plan, model: keras.Model, batches: list[Any], weights: Numbers | None) -> Measures:
    """Losses and metrics of batches together."""
    flow, tree = given_to_model(planned.train), keras.tree
    targets, *of_rows = tree.map_structure(lambda *of: np.concatenate(of), *[batch[1:] for batch in batches])
    outputs = [tree.map_structure(np.asarray, model(batch[0], training=False)) for batch in batches]
    predictions = tree.map_structure(lambda *of: np.concatenate(of).astype("float64"), *outputs)
    if not isinstance(targets, dict):
        targets, predictions = {flow.target: targets}, {flow.target: predictions}
    count = of_rows[0].astype("float64") if of_rows else np.ones(len(predictions[flow.target]))
    found = of_targets(flow, targets, predictions, count, weights)
    loss = sum(found[f"{name}_loss"] * planned.spec.dataset.loss_weights.get(name, 1.0) for name in targets)
    if len(targets) == 1:
        found = {name.removeprefix(f"{flow.target}_"): value for name, value in found.items()}
    return found | {"loss": loss}


def shared(batches: Iterator[Any], devices: int) -> Iterator[Any]:
    """The batches without the last examples that have no equal shares."""
    for batch in batches:
        size = len(keras.tree.flatten(batch)[0]) // devices * devices
        if size:
            yield keras.tree.map_structure(lambda of: of[:size], batch)  # noqa: B023 - called at once


def of_targets(flow: Flow, targets: Any, predictions: Any, count: Numbers, weights: Numbers | None) -> Measures:
    """Losses and metrics of each target; rows count as often as `count` has it, and classes by their `weights`."""
    found: Measures = {}
    for name, target in targets.items():
        feature, predicted = flow.features[name], predictions[name]
        if feature.is_labels or feature.is_binary:
            right = np.where(target.reshape(predicted.shape) > 0, predicted, 1 - predicted)
            loss, measured = -np.log(right).mean(axis=1), of_two(target.reshape(predicted.shape), predicted, count)
        elif feature.is_class:
            loss = -np.log(predicted[np.arange(len(target)), target])
            loss = loss if weights is None else loss * weights[target]
            measured = of_classes(target, predicted.argmax(axis=1), count)
        else:
            errors = predicted[:, 0] - target
            loss, measured = (errors / (feature.std or 1)) ** 2, of_numbers(errors, target, count)
        found |= {f"{name}_loss": np.mean(loss * count), **{f"{name}_{of}": value for of, value in measured.items()}}
    return found


def of_classes(target: Numbers, predicted: Numbers, count: Numbers) -> Measures:
    """Metrics of classes; precision and recall are means over those that occur."""
    occurring = [*{*target, *predicted}]
    hits = np.array([(count * ((target == of) & (predicted == of))).sum() for of in occurring])
    of_target, of_predicted = (
        np.array([(count * (numbers == of)).sum() for of in occurring]) for numbers in (target, predicted)
    )
    return {
        "accuracy": np.average(predicted == target, weights=count),
        "precision": np.mean(hits / np.maximum(of_predicted, 1)),
        "recall": np.mean(hits / np.maximum(of_target, 1)),
    }


def of_two(target: Numbers, predicted: Numbers, count: Numbers) -> Measures:
    """Metrics of one of two classes (rows, 1), or of labels (rows, labels)."""
    weight = np.broadcast_to(count[:, None], target.shape)
    said, is_so = predicted > 0.5, target > 0
    aucs = []
    for label in range(target.shape[1]):
        above, below = predicted[is_so[:, label], label], predicted[~is_so[:, label], label]
        wins = (above[:, None] > below) + 0.5 * (above[:, None] == below)
        pairs = count[is_so[:, label], None] * count[~is_so[:, label]]
        aucs.append((wins * pairs).sum() / pairs.sum())
    hits = (weight * (said & is_so)).sum()
    return {
        "accuracy": np.average((said == is_so).mean(axis=1), weights=count),
        "auc": np.mean(aucs),
        "precision": hits / max((weight * said).sum(), 1e-9),
        "recall": hits / (weight * is_so).sum(),
    }


def of_numbers(errors: Numbers, target: Numbers, count: Numbers) -> Measures:
    """Metrics of numbers."""
    squares, mean = np.average(errors**2, weights=count), np.average(target.astype("float64"), weights=count)
    variance = np.average((target - mean) ** 2, weights=count)
    mae = np.average(np.abs(errors), weights=count)
    return {"mae": mae, "rmse": squares**0.5, "r2": 1 - squares / variance}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "case"), [("tensorflow", "several"), ("tensorflow", "class weights")], indirect=["runs"]
)
def test_an_evaluation_has_the_loss_and_the_accuracy_of_numpy(
    runs: tuple[Path, int], case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(runs[0] / case, tmp_path / "run")
    wanted = next(by_hand(folder, 1))
    found = json.loads(said(capsys, "evaluate", folder, "--importance", "0", "--format", "json"))
    of_class = found["targets"].get("band", found)
    accuracy = "val_band_accuracy" if found["targets"] else "val_accuracy"
    assert found["loss"] == pytest.approx(wanted["val_loss"], rel=1e-5)
    assert of_class["accuracy"]["value"] == pytest.approx(wanted[accuracy])
