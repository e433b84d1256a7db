"""Schedules, limits of gradients, averages of weights, smoothed labels and further metrics, and what does not fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from etlrun.config.grid import resolve
from etlrun.config.request import Request
from etlrun.planning.plan import past_classes, warmup_past
from etlrun.record.summary import Epoch
from etlrun.run.callbacks import EpochRecorder
from etlrun.run.checkpoint import best_epoch, previous_run
from etlrun.run.custom_objects import Crossentropy
from etlrun.stages import STAGES
from etlrun.stages.keras_objects import learning_rate, objective, optimizer
from etlrun.stages.made import make
from etlrun.stages.mix import mixed_top_accuracy
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import ConfigError
from tests.configs import plan_of, spec_of
from tests.programs import losses_in, of_words
from tests.quick import shallow
from tests.runs import are_equal, losses_of, run_here, small, summary_of, variables_of

RATE = 0.001
LABELS = np.array([0, 1, 1, 2, 0, 2])
OUTPUTS = np.random.default_rng(0).dirichlet([1, 1, 1], 6).astype("float32")


def trainer(*words: str) -> Trainer:
    fit = spec_of(*(f"trainer.{word}" for word in words)).fit
    assert fit is not None
    return fit


SCHEDULES: dict[tuple[str, ...], Any] = {
    ("name=constant", "warmup_steps=4"): lambda step: min(step / 4, 1),
    ("name=cosine", "decay_steps=10", "alpha=0.2"): lambda step: (
        0.2 + 0.4 * (1 + math.cos(math.pi * min(step, 10) / 10))
    ),
    ("name=cosine", "warmup_steps=4"): lambda step: (
        step / 4 if step < 4 else 0.5 * (1 + math.cos(math.pi * (step - 4) / 16))
    ),
    ("name=exponential", "decay_rate=0.5"): lambda step: 0.5 ** (step / 20),
    ("name=exponential", "decay_rate=0.5", "decay_steps=5", "warmup_steps=4"): lambda step: (
        step / 4 if step < 4 else 0.5 ** ((step - 4) / 5)
    ),
    ("name=piecewise", "boundaries=[7,9]", "factors=[0.5,0.1]", "warmup_steps=4"): lambda step: (
        step / 4 if step < 4 else 1 if step <= 7 else 0.5 if step <= 9 else 0.1
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
    words = ("clipnorm=2", "gradient_accumulation_steps=3", "weight_decay=0.1", "ema_momentum=0.5", "optimizer=sgd")
    made = make(optimizer(trainer(*words)))
    assert isinstance(made, keras.optimizers.SGD)
    assert (made.clipnorm, made.gradient_accumulation_steps, made.weight_decay) == (2.0, 3, 0.1)
    assert (made.use_ema, made.ema_momentum) == (True, 0.5)
    assert make(optimizer(trainer("optimizer=adamw"))).weight_decay == keras.optimizers.AdamW().weight_decay
    found, expected = make(optimizer(trainer())).get_config(), keras.optimizers.Adam(RATE).get_config()
    assert {**found, "name": ""} == {**expected, "name": ""}


def test_smoothed_labels_are_mixed_with_the_even_distribution() -> None:
    target = 0.7 * np.eye(3)[LABELS] + 0.3 / 3
    losses = -(target * np.log(OUTPUTS)).sum(1)
    loss = Crossentropy.from_config(Crossentropy(label_smoothing=0.3).get_config())
    assert float(loss(LABELS, OUTPUTS)) == pytest.approx(losses.mean(), rel=1e-5)
    weights = [0.5, 2.0, 3.0]
    weighted = Crossentropy.from_config(Crossentropy(weights, 0.3).get_config())
    assert float(weighted(LABELS, OUTPUTS)) == pytest.approx((np.take(weights, LABELS) * losses).mean(), rel=1e-5)
    shares, partners = np.linspace(0, 1, 6), LABELS[::-1]
    mixed = shares * losses + (1 - shares) * -((0.7 * np.eye(3)[partners] + 0.1) * np.log(OUTPUTS)).sum(1)
    targets = np.stack([LABELS, partners, shares], 1).astype("float32")
    assert float(loss(targets, OUTPUTS)) == pytest.approx(mixed.mean(), rel=1e-5)


def test_focal_losses_are_those_of_their_definition() -> None:
    """A share of 0.25 of (1 - p)**gamma times the crossentropy, as Keras has it: Lin et al., ICCV 2017."""
    target = 0.7 * np.eye(3)[LABELS] + 0.3 / 3
    losses = 0.25 * ((1 - OUTPUTS) ** 1.5 * -target * np.log(OUTPUTS)).sum(1)
    focal = trainer("loss=focal_crossentropy", "focal_gamma=1.5", "label_smoothing=0.3")
    loss = Crossentropy.from_config(make(objective(focal, "abc"))["loss"].get_config())
    assert float(loss(LABELS, OUTPUTS)) == pytest.approx(losses.mean(), rel=1e-5)
    weights = [0.5, 2.0, 3.0]
    weighted = make(objective(focal, "abc", class_weights=weights))["loss"]
    weighted = Crossentropy.from_config(weighted.get_config())
    assert float(weighted(LABELS, OUTPUTS)) == pytest.approx((np.take(weights, LABELS) * losses).mean(), rel=1e-5)
    targets = np.stack([LABELS, LABELS, np.full(6, 0.25)], 1).astype("float32")
    assert float(loss(targets, OUTPUTS)) == pytest.approx(losses.mean(), rel=1e-5)


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
    names = ("f1", "precision", "recall", "f1_of_d", "precision_of_d", "recall_of_d", "recall_of_g", "top_3_accuracy")
    made = make(objective(trainer(f"metrics=[{','.join(names)}]"), "abcdefg"))["metrics"]
    made = [type(metric).from_config(metric.get_config()) for metric in made]
    for start in range(0, 60, 20):
        for metric in made:
            metric.update_state(labels[start : start + 20], outputs[start : start + 20])
    assert tuple(metric.name for metric in made) == names
    scores = scores_by_their_definitions(labels, outputs.argmax(1))
    wanted = [float(np.mean([*scores[name].values()])) for name in names[:3]] + [
        *(scores[name][3] for name in ("f1", "precision", "recall")),
        0.0,
    ]
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
    "trainer.epochs=2", "trainer.schedule.name=exponential", "trainer.schedule.decay_rate=0.5",
    "trainer.schedule.warmup_steps=2", "trainer.ema_momentum=0.8", "trainer.gradient_accumulation_steps=2",
    "trainer.global_clipnorm=1", "trainer.weight_decay=0.01", "trainer.label_smoothing=0.1",
    "trainer.learning_rate=0.1", "trainer.metrics=[accuracy,recall_of_bright,f1,top_1_accuracy]",
    "trainer.loss=focal_crossentropy",
)  # fmt: skip


@pytest.mark.slow
def test_a_run_and_its_program_come_to_the_same_numbers(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shallow(monkeypatch)
    words = small(tiny, *MANY, "trainer.checkpoint_best=val_f1")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 0
    scores = [epoch["metrics"] for epoch in summary["epochs"]]
    told = capsys.readouterr().err
    assert all(f"  {name} {value:.4f}" in told for epoch in scores for name, value in epoch.items())
    names = ["f1", "recall_of_bright", "top_1_accuracy"]
    assert sorted(scores[0]) == [*names, *(f"val_{name}" for name in names)]
    assert [of["top_1_accuracy"] for of in scores] == [epoch["accuracy"] for epoch in summary["epochs"]]
    monkeypatch.chdir(tmp_path)
    keras.backend.clear_session()
    history = of_words(words, tmp_path)[1].train().history
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
    whole, stopped, resumed = EpochRecorder.on_train_batch_end, tmp_path / "stopped", tmp_path / "resumed"
    words = small(tiny, *RESUMED)

    def stops(self: EpochRecorder, batch: int, logs: Any = None) -> None:
        whole(self, batch, logs)
        if len(self.record.summary.epochs) == 1 and batch + 1 == steps:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpochRecorder, "on_train_batch_end", stops)
        assert run_here(stopped, words)[0] == 130
    assert run_here(resumed, [*words, f"trainer.resume={stopped}"])[0] == 0
    epochs, wanted = (summary_of(folder)["epochs"] for folder in (resumed, undisturbed))
    assert epochs[1]["resumed_steps"] == (3 if steps > 3 else 0)
    for key in ("loss", "accuracy", "val_loss", "val_accuracy", "metrics"):
        assert [epoch[key] for epoch in epochs] == [epoch[key] for epoch in wanted]
    assert are_equal(variables_of(resumed), variables_of(undisturbed))


def test_a_schedule_over_the_run_is_resumed_with_as_many_epochs(undisturbed: Path, tiny: Path) -> None:
    words = [*small(tiny, *RESUMED, "trainer.epochs=5"), f"trainer.resume={undisturbed}"]
    resumed = resolve(Request(overrides=words), STAGES).plan
    with pytest.raises(ConfigError) as caught:
        previous_run(resumed, STAGES)
    assert str(caught.value).startswith(f"trainer.epochs: found 5; expected 3, as in {undisturbed}")


def test_the_best_epoch_is_that_of_the_largest_f1_even_of_a_class_named_loss() -> None:
    epochs = [Epoch(epoch=number, metrics={"val_f1": value}) for number, value in enumerate((0.5, 0.75, 0.6), 1)]
    assert best_epoch(epochs, "val_f1") == 2
    epochs = [Epoch(epoch=number, metrics={"f1_of_loss": value}) for number, value in enumerate((0.5, 0.75, 0.6), 1)]
    assert best_epoch(epochs, "f1_of_loss") == 2


def test_defaults_change_no_fingerprint() -> None:
    assert plan_of("trainer.metrics=[accuracy]").fingerprint == plan_of().fingerprint
    assert "trainer.schedule.name" not in plan_of().decisive
    assert plan_of("trainer.schedule.name=cosine").decisive["trainer.schedule.name"] == "cosine"


def test_what_only_open_data_tell_is_refused() -> None:
    assert not [*past_classes(trainer("metrics=[top_2_accuracy,recall_of_cat,f1]"), ("ant", "bee", "cat"))]
    faults = [*past_classes(trainer("metrics=[top_3_accuracy,recall_of_cats,f1_of_x]"), ("ant", "bee", "cat"))]
    assert [str(fault).partition("; ")[2] for fault in faults] == [
        "expected at most top_2_accuracy, since there are 3 classes\n    -> name a smaller number",
        "expected one of ant, bee, cat\n    -> did you mean `cat`?",
        "expected one of ant, bee, cat",
    ]
    assert str(faults[1]).startswith("trainer.metrics: found the class cats; ")
    assert not [*warmup_past(trainer("schedule.name=cosine", "schedule.warmup_steps=9"), 10)]
