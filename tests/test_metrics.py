"""Metrics, which are what NumPy computes of predictions; schedules, averages of weights, and what does not fit."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow.parquet
import pytest

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan, given_to_model, past_classes, warmup_past
from etlrun.planning.planner import plan
from etlrun.planning.spec import parse
from etlrun.record.config import read_config
from etlrun.record.summary import MEASURES, Epoch, read_summary
from etlrun.run import model as models  # noqa: F401 - registers what a saved model has
from etlrun.run.backend import seed_all
from etlrun.run.callbacks import EpochRecorder
from etlrun.run.checkpoint import best_epoch, previous_run
from etlrun.run.custom_objects import Crossentropy
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.sources.corrupt import counts_of
from etlrun.stages import STAGES, keras_objects, objectives
from etlrun.stages.flow import Flow
from etlrun.stages.keras_objects import learning_rate, objective, optimizer
from etlrun.stages.load import balanced
from etlrun.stages.made import Made, make
from etlrun.stages.mix import mixed_top_accuracy
from etlrun.stages.objectives import ERROR, METRICS, Metric, Scale, falls, scale_of
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError
from tests import tables, test_rows_targets, texts
from tests.configs import composed, plan_of, raised, refusal_of_plan, spec_of
from tests.conftest import Once
from tests.golden import Says
from tests.present import present
from tests.programs import losses_in, of_words
from tests.quick import shallow
from tests.runs import are_equal, complete_here, losses_of, resumed_after, run_here, small, summary_of, variables_of
from tests.test_devices import on_devices
from tests.trained import said

RATE = 0.001
LABELS = np.array([0, 1, 1, 2, 0, 2])
OUTPUTS = np.random.default_rng(0).dirichlet([1, 1, 1], 6).astype("float32")
"""A share of (1 - p)**gamma of the crossentropy, as Keras has it: Lin et al., ICCV 2017."""


def trainer(*words: str) -> Trainer:
    return present(spec_of(*(f"trainer.{word}" for word in words)).fit)


SCHEDULES: dict[tuple[str, ...], Any] = {
    ("name=constant", "warmup_steps=4"): lambda step: min(step / 4, 1),
    ("name=cosine", "decay_steps=10", "alpha=0.2"): lambda step: (
        0.2 + 0.4 * (1 + math.cos(math.pi * min(step, 10) / 10))
    ),
    ("name=cosine", "warmup_steps=4"): lambda step: (
        step / 4 if step < 4 else 0.5 * (1 + math.cos(math.pi * (step - 4) / 16))
    ),
}


@pytest.mark.parametrize("words", SCHEDULES, ids=" ".join)
def test_the_rate_of_each_step_is_that_of_the_schedule(words: tuple[str, ...]) -> None:
    schedule = make(learning_rate(trainer(*(f"schedule.{word}" for word in words)), 20))
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    wanted = [RATE * SCHEDULES[words](step) for step in range(20)]
    for of in (schedule, again):
        np.testing.assert_allclose([float(of(step)) for step in range(20)], wanted, rtol=1e-5, atol=1e-10)


def test_an_optimizer_is_keras_own_with_the_values_of_the_config() -> None:
    words = ("global_clipnorm=2", "gradient_accumulation_steps=3", "weight_decay=0.1", "ema_momentum=0.5")
    made = make(optimizer(trainer(*words, "optimizer=sgd")))
    assert isinstance(made, keras.optimizers.SGD)
    assert (made.global_clipnorm, made.gradient_accumulation_steps, made.weight_decay) == (2.0, 3, 0.1)
    assert (made.use_ema, made.ema_momentum) == (True, 0.5)
    assert make(optimizer(trainer("optimizer=adamw"))).weight_decay == keras.optimizers.AdamW().weight_decay
    found, expected = make(optimizer(trainer())).get_config(), keras.optimizers.Adam(RATE).get_config()
    assert {**found, "name": ""} == {**expected, "name": ""}


def test_losses_are_those_of_their_definition() -> None:
    """Labels are mixed with the even distribution."""
    fit, weights, partners, shares = (
        trainer("label_smoothing=0.3"),
        [0.5, 2.0, 3.0],
        LABELS[::-1],
        np.linspace(0, 1, 6),
    )
    losses, of_partners = (-((0.7 * np.eye(3)[of] + 0.1) * np.log(OUTPUTS)).sum(1) for of in (LABELS, partners))
    loss, weighted = (
        Crossentropy.from_config(make(objective(fit, "abc", class_weights=of))["loss"].get_config())
        for of in (None, weights)
    )
    assert float(loss(LABELS, OUTPUTS)) == pytest.approx(losses.mean(), rel=1e-5)
    assert float(weighted(LABELS, OUTPUTS)) == pytest.approx((np.take(weights, LABELS) * losses).mean(), rel=1e-5)
    targets = np.stack([LABELS, partners, shares], 1).astype("float32")
    mixed = shares * losses + (1 - shares) * of_partners
    assert float(loss(targets, OUTPUTS)) == pytest.approx(mixed.mean(), rel=1e-5)


def scores_by_their_definitions(labels: Any, predicted: Any) -> dict[str, dict[int, float]]:
    """Precision, recall and F1 of each class that occurs."""
    found: dict[str, dict[int, float]] = {"precision": {}, "recall": {}, "f1": {}}
    for of in np.union1d(labels, predicted):
        right, wrongly, missed = (
            int(((labels == of) == one).__and__((predicted == of) == other).sum())
            for one, other in ((True, True), (False, True), (True, False))
        )
        found["precision"][of] = right / (right + wrongly) if right else 0.0
        found["recall"][of] = right / (right + missed) if right else 0.0
        found["f1"][of] = 2 * right / (2 * right + wrongly + missed)
    return found


def test_scores_and_top_n_agree_with_their_definitions_over_batches() -> None:
    draws = np.random.default_rng(1)
    labels, outputs = draws.integers(0, 5, 60), draws.dirichlet([1, 1, 1, 1, 1, 1, 1e-9], 60).astype("float32")
    outputs[:3] = 1 / 7  # the last class is never predicted; the first of equal ones is the prediction
    names = ("f1", "precision", "recall", "top_3_accuracy")
    made = make(objective(trainer(f"metrics=[{','.join(names)}]"), "abcdefg"))["metrics"]
    made = [type(metric).from_config(metric.get_config()) for metric in made]
    for start in range(0, 60, 20):
        for metric in made:
            metric.update_state(labels[start : start + 20], outputs[start : start + 20])
    assert tuple(metric.name for metric in made) == names
    scores = scores_by_their_definitions(labels, outputs.argmax(1))
    wanted = [float(np.mean([*scores[name].values()])) for name in names[:3]]
    assert [float(metric.result()) for metric in made[:-1]] == pytest.approx(wanted, abs=1e-5)
    ranks = (outputs[3:] > outputs[np.arange(3, 60), labels[3:], None]).sum(1)
    of_rest = keras.metrics.SparseTopKCategoricalAccuracy(3)(labels[3:], outputs[3:])
    assert float(of_rest) == pytest.approx((ranks < 3).mean())


def test_the_top_n_of_a_mixed_image_is_the_share_of_its_classes_among_them() -> None:
    targets = np.array([[0, 1, 0.75], [2, 0, 0.25]], "float32")
    outputs = np.array([[0.5, 0.2, 0.3], [0.6, 0.1, 0.3]], "float32")
    assert np.asarray(mixed_top_accuracy(targets, outputs, 1)).tolist() == [0.75, 0.75]
    assert np.asarray(mixed_top_accuracy(targets, outputs, 2)).tolist() == [0.75, 1.0]


MANY = (
    "trainer.epochs=2", "trainer.schedule.name=cosine", "trainer.schedule.warmup_steps=2", "trainer.ema_momentum=0.8",
    "trainer.gradient_accumulation_steps=2", "trainer.global_clipnorm=1", "trainer.weight_decay=0.01",
    "trainer.label_smoothing=0.1", "trainer.learning_rate=0.1",
    "trainer.metrics=[accuracy,recall,f1,top_1_accuracy]", "trainer.early_stopping.monitor=val_f1",
)  # fmt: skip


@pytest.mark.slow
def test_a_run_and_its_program_come_to_the_same_numbers(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shallow(monkeypatch)
    words = small(tiny, *MANY)
    summary = complete_here(tmp_path / "run", words)
    scores = [epoch["metrics"] for epoch in summary["epochs"]]
    told = capsys.readouterr().err
    assert all(f"  {name} {epoch[name]:.4f}" in told for epoch in scores for name in ("f1", "val_f1"))
    assert "recall" not in told  # the line of an epoch has the metric of early stopping alone
    names = ["f1", "recall", "top_1_accuracy"]
    assert sorted(scores[0]) == [*names, *(f"val_{name}" for name in names)]
    assert [of["top_1_accuracy"] for of in scores] == [epoch["accuracy"] for epoch in summary["epochs"]]
    monkeypatch.chdir(tmp_path)
    keras.backend.clear_session()
    history = of_words(words, tmp_path)[1].train()[0].history
    assert losses_in(history) == losses_of(summary)
    assert [{name: history[name][epoch] for name in scores[0]} for epoch in range(2)] == scores
    saved = keras.models.load_model(tmp_path / "run" / "model.keras", compile=False).get_weights()
    last = keras.models.load_model(tmp_path / "run" / "checkpoints" / "epoch_0002.keras", compile=False).get_weights()
    assert not all(np.array_equal(one, other) for one, other in zip(saved, last, strict=True))


RESUMED = (
    "trainer.epochs=3", "trainer.schedule.name=cosine", "trainer.schedule.warmup_steps=3", "trainer.ema_momentum=0.8",
    "trainer.gradient_accumulation_steps=4", "trainer.learning_rate=0.1", "trainer.metrics=[accuracy,f1]",
    "trainer.checkpoint_every_steps=3", "load.batch_size=4", "cache=none",
)  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run_here(folder, small(tiny, *RESUMED))[0] == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 6], ids=["after an epoch", "inside an epoch"])
def test_a_run_goes_on_to_the_bit(steps: int, undisturbed: Path, tiny: Path, tmp_path: Path) -> None:
    whole = EpochRecorder.on_train_batch_end

    def stops(self: EpochRecorder, batch: int, logs: Any = None) -> None:
        whole(self, batch, logs)
        if len(self.record.summary.epochs) == 1 and batch + 1 == steps:
            raise KeyboardInterrupt

    resumed = resumed_after(tmp_path, small(tiny, *RESUMED), "on_train_batch_end", stops)
    epochs, wanted = (summary_of(folder)["epochs"] for folder in (resumed, undisturbed))
    assert epochs[1]["resumed_steps"] == (3 if steps > 3 else 0)
    for key in ("loss", "accuracy", "val_loss", "val_accuracy", "metrics"):
        assert [epoch[key] for epoch in epochs] == [epoch[key] for epoch in wanted]
    assert are_equal(variables_of(resumed), variables_of(undisturbed))


def test_a_schedule_over_the_run_is_resumed_with_as_many_epochs(undisturbed: Path, tiny: Path) -> None:
    words = [*small(tiny, *RESUMED, "trainer.epochs=5"), f"trainer.resume={undisturbed}"]
    resumed = resolve(Request(overrides=words), STAGES).plan
    told = raised(ConfigError, previous_run, resumed, STAGES)
    assert told.startswith(f"trainer.epochs: found 5; expected 3, as in {undisturbed}")


def test_the_best_epoch_is_that_of_the_largest_f1() -> None:
    epochs = [Epoch(epoch=number, metrics={"val_f1": value}) for number, value in enumerate((0.5, 0.75, 0.6), 1)]
    assert best_epoch(epochs, "val_f1") == 2


def test_defaults_change_no_fingerprint() -> None:
    assert plan_of("trainer.metrics=[accuracy]").fingerprint == plan_of().fingerprint
    assert "trainer.schedule.name" not in plan_of().decisive
    assert plan_of("trainer.schedule.name=cosine").decisive["trainer.schedule.name"] == "cosine"


def test_what_only_open_data_tell_is_refused(says: Says) -> None:
    assert not [*past_classes(trainer("metrics=[top_2_accuracy,f1]"), ("ant", "bee", "cat"))]
    (fault,) = past_classes(trainer("metrics=[top_3_accuracy,f1]"), ("ant", "bee", "cat"))
    says(str(fault).partition("; ")[2])
    assert not [*warmup_past(trainer("schedule.name=cosine", "schedule.warmup_steps=9"), 10)]


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
    pyarrow.parquet.write_table(tables.several(), folder / "houses.parquet")
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
    summary = present(read_summary(folder))
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
    counts = counts_of(source.split(planned.spec.dataset.split, "dataset.split"), by_number=False)
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


def test_a_row_is_all_that_a_metric_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("keras.metrics.LogCoshError", (), {"name": "log_cosh"})
    row = Metric(name="log_cosh", kinds=("number",), made=lambda *_, **_mixes: made, scale=ERROR)
    monkeypatch.setattr(objectives, "METRICS", (*METRICS, row))
    config = composed(
        "dataset=tfds", "dataset.name=own", "+dataset.features={image: image}", "+dataset.target={answer: float32}",
        "dataset.eval_split=test", "trainer.metrics=[mae,log_cosh]", "trainer.early_stopping.monitor=val_log_cosh",
    )  # fmt: skip
    trainer = present(plan(parse(config, STAGES)).spec.fit)
    assert made in keras_objects.objective(trainer, None)["metrics"]
    assert scale_of("val_answer_log_cosh") == ERROR


@pytest.mark.parametrize(
    ("measure", "scale"),
    [
        ("val_loss", ERROR),
        ("price_rmse", ERROR),
        ("val_price_rmse", ERROR),
        ("val_r2", Scale(high=1.0)),
        ("top_5_accuracy", objectives.SHARE),
        ("val_kind_recall", objectives.SHARE),
    ],
)
def test_each_measure_has_a_scale(measure: str, scale: Scale) -> None:
    assert scale_of(measure) == scale
    assert falls(measure) is (scale == ERROR)


OWN = ("dataset=tfds", "dataset.name=own", "+dataset.features={image: image}")
DRAINED = ("trainer=drain", "model=emulated")


def with_target(declared: str) -> tuple[str, ...]:
    return (*OWN, f"+dataset.target={{answer: {declared}}}")


@pytest.mark.parametrize("declared", ["image", "text", "int64 40", "bool 3", "bool", "uint8 28x28", "float32 8x8x1"])
def test_a_target_without_a_head_is_refused_in_the_plan_and_read_where_no_model_learns(
    declared: str, says: Says
) -> None:
    target = with_target(declared)
    told = [
        refusal_of_plan(*target, f"model={model}", "transform=imagenet_224")
        for model in ("mobilenet_v2", "keras_application")
    ]
    assert told[0] == told[1]
    says(told[0])
    assert plan_of(*target, *DRAINED).train
    assert plan_of(*target, "model=emulated").train


@pytest.mark.parametrize("declared", ["float32", "float32 4", "float64", "int64", "uint8"])
def test_numbers_are_trained_with_a_loss_that_a_note_names(declared: str) -> None:
    note = "target `answer` is a number: loss mean squared error; no metrics."
    assert note in plan_of(*with_target(declared)).remarks
    assert note not in plan_of(*with_target("class")).remarks
    assert note not in plan_of(*with_target(declared), *DRAINED).remarks
