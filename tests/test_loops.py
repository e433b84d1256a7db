"""Steps of Keras's loops, and what is read while they are traced."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from etlrun.measure import watched
from etlrun.measure.watched import Watch, Watched, WatchedPass
from etlrun.run import fit
from etlrun.stages.keras_objects import objective
from etlrun.stages.trainer import Trainer
from tests.configs import plan_of
from tests.networks import compile_with

BATCHES = (tf.TensorSpec((None, 2)), tf.TensorSpec((None,), tf.int64))


def test_steps_are_compiled_on_jax_unless_a_config_says_otherwise() -> None:
    unset, off, auto = (plan_of(f"trainer.jit_compile={value}") for value in ("null", "false", "auto"))
    trainers = [plan.spec.trainer for plan in (unset, off) if isinstance(plan.spec.trainer, Trainer)]
    assert [trainer.jit_on("jax") for trainer in trainers] == ["auto", False]
    assert [trainer.jit_on("tensorflow") for trainer in trainers] == [False, False]
    assert plan_of().fingerprint == unset.fingerprint == off.fingerprint != auto.fingerprint


def batch(size: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.ones((size, 2)), tf.zeros(size, tf.int64)


def made_ready(model: keras.Model, validation: Any = None) -> None:
    """Compile `model`, and make its loops, as a run does for each phase."""
    spec = plan_of().spec
    assert isinstance(spec.trainer, Trainer)
    compile_with(model, spec.trainer, objective(spec.trainer, "abc"))
    fit.read_from_python(model, spec.model, BATCHES, validation)
    fit.build_loops(model, spec.model, spec.load.batch_size)


def small_model(traced: Callable[[], object]) -> keras.Model:
    """A model that calls `traced` whenever its training step is traced."""

    class Traced(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            traced()
            return super().train_step(data)

    model = Traced([keras.Input((2,)), keras.layers.Dense(3, activation="softmax")])
    made_ready(model)
    return model


def test_a_step_is_traced_once() -> None:
    traces: list[int] = []
    model = small_model(lambda: traces.append(1))
    before = model.get_weights()
    for size in (4, 4, 3):
        model.train_function(iter([batch(size)]))
    assert traces == [1]
    assert not any(np.array_equal(was, now) for was, now in zip(before, model.get_weights(), strict=True))
    assert sorted(model.get_metrics_result()) == ["accuracy", "loss"]
    assert int(model.optimizer.iterations) == 3


def test_the_test_step_is_traced_during_the_first_training_step() -> None:
    threads: list[str] = []
    is_traced = threading.Event()

    class Tested(keras.Sequential):  # type: ignore[misc]
        def test_step(self, data: Any) -> Any:
            threads.append(threading.current_thread().name)
            is_traced.set()
            return super().test_step(data)

    model = Tested([keras.Input((2,)), keras.layers.Dense(3, activation="softmax")])
    made_ready(model, BATCHES)
    model.train_function(iter([batch(4)]))
    assert is_traced.wait(timeout=60)
    for size in (4, 3):
        model.test_function(iter([batch(size)]))
    assert threads == ["etlrun-trace_0"]


def test_the_first_batch_is_read_while_the_step_is_traced() -> None:
    both, traces, watch = threading.Barrier(2), [], Watch()

    def batches() -> Iterator[Any]:
        both.wait(timeout=60)
        yield from (batch(4), batch(3))

    def traced() -> None:
        traces.append(both.wait(timeout=60))

    model = small_model(traced)
    watch.meter.begin()
    one_pass = iter(Watched(tf.data.Dataset.from_generator(batches, output_signature=BATCHES), watch))
    for _ in range(2):
        model.train_function(one_pass)
        watch.meter.stepped()
    with pytest.raises(StopIteration):
        model.train_function(one_pass)
    loop = watch.meter.end()
    assert len(traces) == 1
    assert [step.examples for step in loop.steps] == [4, 3]
    assert 0 < loop.start_s < loop.startup_s <= loop.wall_s
    assert loop.overhead_s < loop.start_s
    watch.close()


def test_passes_that_have_ended_are_deleted_beside_each_other() -> None:
    watch, all_of_them = Watch(), threading.Barrier(8)

    class Spent:
        def __del__(self) -> None:
            all_of_them.wait(timeout=10)

    watch.spent = [Spent() for _ in range(8)]
    watch.wait_deleted()
    assert (watch.spent, all_of_them.broken, all_of_them.n_waiting) == ([], False, 0)


class Reading:
    """A pass whose first batch is read once `gate` is open."""

    def __init__(self, began: Callable[[], None] = lambda: None) -> None:
        self.gate, self.watch, self.ended = threading.Event(), Watch(), False

        def batches() -> Iterator[Any]:
            began()
            self.gate.wait(timeout=60)
            self.ended = True
            yield batch(4)

        self.one_pass = WatchedPass(tf.data.Dataset.from_generator(batches, output_signature=BATCHES), self.watch)


def test_a_step_that_can_not_be_traced_leaves_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()

    def opened(futures: Any) -> None:
        reading.gate.set()
        wait(futures)

    monkeypatch.setattr(watched, "wait", opened)
    with pytest.raises(ZeroDivisionError):
        reading.one_pass.begin(meanwhile=lambda: 1 / 0)
    assert not reading.ended
    reading.watch.close()
    assert reading.ended


def interrupted() -> None:
    """What Ctrl-C does, in another thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def begun(one_pass: WatchedPass) -> None:
    one_pass.begin(meanwhile=lambda: None)
    next(one_pass)


def test_interrupts_leave_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, waits = Reading(began=interrupted), []

    def interrupted_once(futures: Any) -> None:
        waits.append(futures)
        if len(waits) == 1:
            raise KeyboardInterrupt
        reading.gate.set()
        wait(futures)

    monkeypatch.setattr(watched, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        begun(reading.one_pass)
    assert not reading.ended
    reading.watch.close()
    assert (reading.ended, len(waits)) == (True, 2)


def test_gradients_are_traced_for_what_is_trained_alone() -> None:
    base = keras.layers.Dense(5)
    model = keras.Sequential([keras.Input((2,)), base, keras.layers.Dense(3, activation="softmax")])
    for is_trained in (False, True):
        base.trainable = is_trained
        made_ready(model)
        before = base.get_weights()[0]
        with tf.GradientTape() as tape:
            model(batch(4)[0])
        trained = [of.value.ref() for of in model.trainable_variables]
        assert {of.ref() for of in tape.watched_variables()} == {*trained}
        model.train_function(iter([batch(4)]))
        assert np.array_equal(before, base.get_weights()[0]) is not is_trained
