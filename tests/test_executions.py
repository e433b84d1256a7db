"""Several steps in one dispatch: what a run and its callbacks see of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.measure.watched import Watch
from etlrun.run import executions as several
from etlrun.run import loops
from etlrun.run.executions import Executions, ends_of
from etlrun.stages.trainer import Trainer
from tests.configs import plan_of
from tests.networks import trained_here
from tests.runs import are_equal, emulated, events_of, run_here, variables_of
from tests.test_loops import BATCHES, made_ready

AT_ONCE = "trainer.steps_per_execution=8"
EPOCHS = ("trainer.epochs=2", "load.batch_size=2", "measure.digest=true", "load.drop_remainder=false")


def figures(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """What is no time of each epoch."""
    keys = ("loss", "accuracy", "val_loss", "digest", "validation_digest", "steps", "examples", "startup_examples")
    return [{key: epoch[key] for key in keys if key in epoch} for epoch in summary["epochs"]]


def test_steps_are_compiled_on_jax_unless_a_config_says_otherwise() -> None:
    unset, off, auto = (plan_of(f"trainer.jit_compile={value}") for value in ("null", "false", "auto"))
    trainers = [plan.spec.trainer for plan in (unset, off) if isinstance(plan.spec.trainer, Trainer)]
    assert [trainer.jit_on("jax") for trainer in trainers] == ["auto", False]
    assert [trainer.jit_on("tensorflow") for trainer in trainers] == [False, False]
    assert plan_of().fingerprint == unset.fingerprint == off.fingerprint != auto.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("trainer.gradient_accumulation_steps=3", "trainer.ema_momentum=0.9"), id="one pass"),
        pytest.param(
            ("trainer.steps_per_epoch=13", "trainer.schedule.name=cosine", "trainer.checkpoint_every_steps=5"),
            id="epochs of steps",
        ),
    ],
)
def test_steps_at_once_have_the_results_of_single_ones_to_the_bit(
    words: tuple[str, ...], tiny: Path, tmp_path: Path
) -> None:
    one, at_once = tmp_path / "one", tmp_path / "at_once"
    status, single = trained_here(one, tiny, *EPOCHS, *words)
    assert status == 0
    status, summary = trained_here(at_once, tiny, *EPOCHS, *words, AT_ONCE)
    assert status == 0
    assert [{**of, "startup_examples": 0} for of in figures(summary)] == [
        {**of, "startup_examples": 0} for of in figures(single)
    ]
    assert summary["plan_fingerprint"] == single["plan_fingerprint"]
    assert are_equal(variables_of(at_once), variables_of(one))
    assert [of.get("steps") for of in events_of(at_once) if of["event"] == "checkpoint"] == [
        of.get("steps") for of in events_of(one) if of["event"] == "checkpoint"
    ]


class Batches:
    """Batches of two examples, which are counted as they are read."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.read = [*sizes], 0

    def __next__(self) -> Any:
        if not self.sizes:
            raise StopIteration
        size, self.read = self.sizes.pop(0), self.read + 1
        return tf.fill((size, 2), float(self.read)), tf.zeros(size, tf.int64)


def made(count: int | None) -> tuple[keras.Model, Executions]:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, activation="softmax")])
    keras.utils.set_random_seed(0)
    model.set_weights([np.full((2, 3), 0.1), np.zeros(3)])
    made_ready(model)
    watch = Watch(with_digest=False)
    return model, loops.take_several(model, plan_of().spec.model, count, {"train": watch}, [BATCHES])


def steps_of(executions: Executions, batches: Batches, count: int) -> list[tuple[int, float]]:
    """What is read after each step, and the loss up to it."""
    found = []
    for batch in range(count):
        executions.on_train_batch_begin(batch)
        logs = executions(batches)
        found.append((batches.read, float(logs["loss"])))
    return found


def test_a_dispatch_ends_with_the_pass_and_has_batches_of_one_shape() -> None:
    sizes = [4, 4, 4, 4, 4, 3, 4, 4, 4, 2]
    _, executions = made(4)
    executions.on_train_begin()
    found = steps_of(executions, Batches(sizes), len(sizes))
    assert [read for read, _ in found] == [4, 4, 4, 4, 8, 8, 8, 8, 10, 10]
    _, single = made(1)
    assert [loss for _, loss in found] == [loss for _, loss in steps_of(single, Batches(sizes), len(sizes))]
    with pytest.raises(StopIteration):
        executions(Batches([]))


def trainer_with(**values: int) -> Trainer:
    trainer = plan_of(*(f"trainer.{key}={value}" for key, value in values.items())).spec.trainer
    assert isinstance(trainer, Trainer)
    return trainer


def test_a_dispatch_ends_where_a_state_is_saved_a_profile_begins_and_an_epoch_ends() -> None:
    ends = ends_of(trainer_with(checkpoint_every_steps=10, steps_per_epoch=25), [(36, 38)], first=25)
    assert [ends(batch, batch) for batch in (0, 9, 10, 11, 12, 13, 20, 24)] == [10, 1, 1, 2, 1, 7, 5, 1]
    _, executions = made(4)
    executions.end_at(ends_of(trainer_with(steps_per_epoch=6), [], first=0))
    executions.on_train_begin()
    batches = Batches([4] * 12)
    assert [read for read, _ in steps_of(executions, batches, 6)] == [4, 4, 4, 4, 5, 6]
    executions.on_train_end()  # a loop that is measured alone
    executions(batches)
    assert batches.read == 10


def test_each_step_has_its_wait_and_an_equal_part_of_the_time(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "trainer.steps_per_execution=4", "trainer.epochs=2", "model.step_ms=20", "load.batch_size=3")
    status, summary = run_here(tmp_path / "run", words)
    assert status == 0
    assert [epoch["steps"] for epoch in summary["epochs"]] == [12, 12]
    assert summary["epochs"][0]["startup_examples"] == 12
    assert summary["step_floor_ms"] >= 20  # not the time of four


def test_steps_are_tried_at_once_and_taken_if_they_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def losses(gain: float, spoilt: float = 0.0) -> tuple[list[float], int | None, list[str]]:
        monkeypatch.setattr(several, "_GAIN", gain)
        monkeypatch.setattr(several, "_MOST_STEPS", 4)
        _, executions = made(None)
        if spoilt:
            steps = executions._steps
            copied = steps.copied
            monkeypatch.setattr(steps, "copied", lambda of: [*copied(of), np.random.default_rng().random()])
            monkeypatch.setattr(steps, "restored", lambda _: ())
        told: list[str] = []
        executions.chosen = lambda count, why: told.append(f"{count}: {why}")
        found = [loss for _, loss in steps_of(executions, Batches([4] * 20), 20)]
        return found, executions.count, told

    faster, chosen, (why,) = losses(1e9)
    assert chosen == 4
    assert why.startswith("4: 4 steps at once take ")
    assert why.endswith(" ms one by one, with the same results to the bit")
    slower, chosen, (why,) = losses(0.0)
    assert chosen == 1
    assert why.endswith(" ms one by one")
    assert faster == slower
    _, single = made(1)
    assert faster == [loss for _, loss in steps_of(single, Batches([4] * 20), 20)]
    assert losses(1e9, spoilt=1.0)[1:] == (1, ["1: 4 steps at once have other results in the last bits"])


class Timed:
    """Steps whose dispatches take 10 ms of a clock, and whose state takes a second to restore."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def __call__(self, state: Sequence[Any], batches: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        self.now_s += 0.01
        return [{"loss": 0.0} for _ in batches], state

    def trace(self) -> None: ...

    def copied(self, state: Sequence[Any]) -> Any:
        return state

    def restored(self, copy: Any) -> Any:
        self.now_s += 1
        return copy


def test_what_restores_a_state_is_no_time_of_the_steps_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Timed()
    monkeypatch.setattr(several, "time", steps)
    executions = Executions(steps, None, Watch(with_digest=False))
    told: list[str] = []
    executions.chosen = lambda count, why: told.append(f"{count}: {why}")
    steps_of(executions, Batches([4] * 20), 20)
    shown = "8 steps at once take 1.25 ms each, and 10.00 ms one by one, with the same results to the bit"
    assert told == [f"8: {shown}"]


@pytest.mark.parametrize(
    ("count", "reason"),
    [("auto", "since those of an emulated model are not dispatched"), ("20", "since a pass has 19 batches")],
)
def test_a_run_says_why_its_steps_are_dispatched_one_by_one(
    count: str, reason: str, tiny: Path, tmp_path: Path
) -> None:
    key = f"trainer.steps_per_execution={count}"
    status, summary = run_here(tmp_path / "run", emulated(tiny, key))
    assert status == 0
    assert f"{key.replace('=', ' = ')}: steps are dispatched one by one, {reason}." in summary["remarks"]


def test_no_more_steps_are_tried_than_there_are_between_two_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Timed()
    monkeypatch.setattr(several, "time", steps)
    executions = Executions(steps, None, Watch(with_digest=False))
    executions.end_at(ends_of(trainer_with(checkpoint_every_steps=7), [], first=0))
    executions.on_train_begin()
    found = steps_of(executions, Batches([4] * 28), 28)
    assert executions.count == 7
    assert [read for read, _ in found[7:15]] == [14] * 7 + [21]


def test_a_training_that_is_too_short_to_try_several_says_so() -> None:
    _, executions = made(None)
    told: list[str] = []
    executions.chosen = lambda count, why: told.append(f"{count}: {why}")
    steps_of(executions, Batches([4] * 3), 3)
    executions.on_train_end()
    assert told == ["1: the training has too few steps in a row to try several"]


def test_a_callback_that_acts_at_each_step_is_a_reason_for_single_ones() -> None:
    class Rates(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None: ...

    model, _ = made(1)
    stage, trainer = plan_of().spec.model, trainer_with(steps_per_execution=8)
    assert loops.reason_for_one(model, stage, trainer, [Rates()]) == "since Rates acts at each of them"
    noted = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: None)
    assert loops.reason_for_one(model, stage, trainer, [noted]) == "since LambdaCallback acts at each of them"
    per_epoch = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)
    assert not loops.reason_for_one(model, stage, trainer, [keras.callbacks.SwapEMAWeights(), per_epoch])


def test_a_plan_notes_what_is_shorter_than_a_dispatch() -> None:
    words = ("trainer.steps_per_epoch=6", "trainer.checkpoint_every_steps=7", "load.prefetch=2")
    key = "trainer.steps_per_execution = 8"
    assert [remark for remark in plan_of(AT_ONCE, *words).remarks if remark.startswith(key)] == [
        f"{key} has no effect with trainer.steps_per_epoch=6, at which a dispatch has to end.",
        f"{key} has no effect with trainer.checkpoint_every_steps=7, at which a dispatch has to end.",
        f"{key}: load.prefetch=2 holds fewer batches than are read at once, so that steps wait.",
    ]
    assert plan_of(AT_ONCE).remarks == plan_of().remarks
