"""Metrics: a row of their table is all that one takes, and what a run reports is what NumPy computes of predictions."""

from __future__ import annotations

import ast
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

import etlrun
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
from etlrun.stages import STAGES, keras_objects, objectives
from etlrun.stages.flow import Flow
from etlrun.stages.load import balanced
from etlrun.stages.made import Made
from etlrun.stages.objectives import ERROR, METRICS, Metric, Scale, scale_of
from tests import test_rows_targets, texts
from tests.configs import composed, plan_of, refusal_of_plan
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
    several, size = test_rows_targets.learning(folder), "load.batch_size=12"
    of_class = (size, "trainer.metrics=[accuracy,precision,recall]")
    weighted = test_rows_targets.words(folder, "load.class_weights=balanced", target="{band: class}")
    learned = ("model=text", "model.units=4", "model.dropout=0.0", "load.boundaries=[]")
    of_text = texts.words_of(folder, *learned)
    found = [[*several, size], [*several, size, ON_DEVICES[1]], [*weighted, *of_class], [*of_text, *of_class]]
    return {name: [*words, *STAYS] for name, words in zip(CASES, found, strict=True)}


def train(folder: Path, where: str) -> None:
    """Train models of the cases, on TensorFlow or JAX, on one device or on four."""
    pyarrow.parquet.write_table(test_rows_targets.several(), folder / "houses.parquet")
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
@pytest.mark.parametrize("runs", ["tensorflow"], indirect=True)
def test_an_evaluation_has_the_loss_and_the_accuracy_of_numpy(
    runs: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(runs[0] / "class weights", tmp_path / "run")
    wanted = next(by_hand(folder, 1))
    found = json.loads(said(capsys, "evaluate", folder, "--importance", "0", "--format", "json"))
    assert found["loss"] == pytest.approx(wanted["val_loss"], rel=1e-5)
    assert found["accuracy"]["value"] == pytest.approx(wanted["val_accuracy"])


PACKAGE = Path(etlrun.__file__).parent
EVALUATED = {"trained", "cli"}
"""Packages of evaluations, whose figures have intervals of their own."""


def named_in(path: Path) -> set[str]:
    """The words of all texts of a module but its docstrings."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docs)
    return {word for node in texts if isinstance(node.value, str) for word in node.value.split()}


def test_a_metric_is_named_in_one_file() -> None:
    texts = {str(path.relative_to(PACKAGE)): named_in(path) for path in PACKAGE.rglob("*.py")}
    for name in ("auc", "mae", "rmse", "r2"):
        files = [path for path, words in texts.items() if name in words and path.partition("/")[0] not in EVALUATED]
        own = ["run/custom_objects.py"] if name == "r2" else []  # the default name of its class
        assert sorted(files) == [*own, "stages/objectives.py"], name


def test_a_row_is_all_that_a_metric_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("keras.metrics.LogCoshError", (), {"name": "log_cosh"})
    row = Metric(name="log_cosh", kinds=("number",), made=lambda *_, **_mixes: made, scale=ERROR)
    monkeypatch.setattr(objectives, "METRICS", (*METRICS, row))
    config = composed(
        "dataset=tfds", "dataset.name=own", "+dataset.features={image: image}", "+dataset.target={answer: float32}",
        "dataset.eval_split=test", "trainer.metrics=[mae,log_cosh]", "trainer.checkpoint_best=val_log_cosh",
    )  # fmt: skip
    trainer = plan(parse(config, STAGES)).spec.fit
    assert trainer is not None
    assert made in keras_objects.objective(trainer, None)["metrics"]
    assert scale_of("val_answer_log_cosh") == ERROR


@pytest.mark.parametrize(
    ("measure", "scale"),
    [
        ("val_loss", ERROR),
        ("price_rmse", ERROR),
        ("val_r2", Scale(high=1.0)),
        ("top_5_accuracy", objectives.SHARE),
        ("val_recall_of_loss", objectives.SHARE),
    ],
)
def test_each_measure_has_a_scale(measure: str, scale: Scale) -> None:
    assert scale_of(measure) == scale


OWN = ("dataset=tfds", "dataset.name=own", "+dataset.features={image: image}")
DRAINED = ("trainer=drain", "model=emulated")


def with_target(declared: str) -> tuple[str, ...]:
    return (*OWN, f"+dataset.target={{answer: {declared}}}")


WITHOUT_HEAD = {
    "image": ("encoded image", "images"),
    "text": ("text", "text"),
    "int64 40": ("int64 [40]", "several labels of one example"),
    "bool 3": ("bool [3]", "several labels of one example"),
    "bool": ("bool", "truth values"),
    "uint8 28x28": ("uint8 [28, 28]", "arrays of several dimensions"),
    "float32 8x8x1": ("float32 [8, 8, 1]", "arrays of several dimensions"),
}


@pytest.mark.parametrize("declared", WITHOUT_HEAD)
@pytest.mark.parametrize("model", ["mobilenet_v2", "keras_application"])
def test_a_target_without_a_head_is_refused_in_the_plan(model: str, declared: str) -> None:
    shown, kind = WITHOUT_HEAD[declared]
    assert refusal_of_plan(*with_target(declared), f"model={model}", "transform=imagenet_224") == (
        f"dataset.target: found answer: {shown}; expected a class, or numbers such as float32, since no model predicts "
        f"{kind}\n"
        "    -> predict another feature, or read the dataset without training a model: trainer=drain"
    )


@pytest.mark.parametrize("declared", WITHOUT_HEAD)
def test_it_is_read_where_no_model_learns(declared: str) -> None:
    assert plan_of(*with_target(declared), *DRAINED).train
    assert plan_of(*with_target(declared), "model=emulated").train


@pytest.mark.parametrize("declared", ["float32", "float32 4", "float64", "int64", "uint8"])
def test_numbers_are_trained_with_a_loss_that_a_note_names(declared: str) -> None:
    note = "answer is not a class: its loss is the mean squared error, and there is no metric."
    assert note in plan_of(*with_target(declared)).remarks
    assert note not in plan_of(*with_target("class")).remarks
    assert note not in plan_of(*with_target(declared), *DRAINED).remarks
