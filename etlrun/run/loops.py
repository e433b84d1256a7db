"""Loops of Keras that read from any Python iterator: of a training, and of steps on batches that are ready."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from etlrun.measure.assessment import Assessment, Work
from etlrun.measure.meter import Loop, Meter
from etlrun.measure.watched import Watch, Watched, WatchedPass
from etlrun.run import devices
from etlrun.run.hosts import here
from etlrun.stages.model import Emulated, ImageModel


def read_from_python(model: keras.Model, stage: ImageModel | Emulated, train: Any, validation: Any = None) -> None:
    """Make the loops of `model` read from any Python iterator, so that the input wait can be measured.

    On JAX Keras's own loops do. On TensorFlow they would trace the model for each batch shape; here a step is traced
    once, for the element specs `train` and `validation`. An emulated step is a sleep.
    """
    if isinstance(stage, Emulated):
        model.train_function = _slept(stage.step_ms / 1000)
        model.test_function = _slept(stage.eval_step_ms / 1000)
    elif keras.backend.backend() == "tensorflow":
        for variable in model.variables:
            variable.value._trainable = variable.trainable  # noqa: SLF001 - TensorFlow has no other way
        later = None if validation is None else _function(model, model.test_step, validation)
        model.train_function = _traced(_function(model, model.train_step, train), later)
        if later is not None:
            model.test_function = _traced(later)


def _slept(seconds: float) -> Callable[..., Any]:
    """Return a step function that sleeps: of (iterator) on TensorFlow, of (state, iterator) on JAX."""

    def function(*arguments: Any) -> Any:
        next(arguments[-1])
        time.sleep(seconds)
        return ({}, arguments[0]) if len(arguments) > 1 else {}

    return function


def _function(model: keras.Model, step: Callable[[Any], Any], spec: Any) -> Any:
    on_devices = devices.shared(model, step)
    counted, compiled = _counted(model, on_devices or step), on_devices is None and model.jit_compile
    return tf.function(counted, input_signature=[spec], jit_compile=compiled, autograph=False)


def _traced(on_batch: Any, later: Any = None) -> Callable[[Any], Any]:
    """Return the step function of `on_batch`, traced while the first batch is read, and `later` in its first step."""
    is_traced = False

    def function(batches: Any) -> Any:
        nonlocal is_traced
        if not is_traced and isinstance(batches, WatchedPass):
            batches.begin(meanwhile=on_batch.get_concrete_function)
        batch, was_traced, is_traced = next(batches), is_traced, True
        if not was_traced and later is not None and devices.shares() == 1:
            tracer = ThreadPoolExecutor(1, thread_name_prefix="etlrun-trace")  # TensorFlow optimizes without Python
            tracer.submit(later.get_concrete_function)  # an error of which is raised where it is called
            tracer.shutdown(wait=False)
        return on_batch(batch)

    return function


def _counted(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `step`, after which the loss of each of several targets is a mean over examples: Keras's is of batches."""

    def function(batch: Any) -> Any:
        outputs = getattr(model, "output", None)  # which a `Sequential` has after its first call alone
        names = {f"{name}_loss" for name in outputs} if isinstance(outputs, dict) else set()
        losses = [metric for metric in model.metrics if metric.name in names]
        before = [(tf.identity(of.total.value), tf.identity(of.count.value)) for of in losses]
        for of in losses:
            of.reset_state()
        found = step(batch)
        examples = tf.cast(tf.shape(tf.nest.flatten(batch)[0])[0], tf.float32)
        for of, (total, count) in zip(losses, before, strict=True):
            of.total.assign(total + of.result() * examples)
            of.count.assign(count + examples)
        return model.get_metrics_result() if losses else found

    return function


def build_loops(model: keras.Model, stage: ImageModel | Emulated, batch_size: int, targets: Any = None) -> None:
    """Create the metrics, the loss and the optimizer variables that Keras would create in the first step.

    `targets` are the specs of the targets, several by name. On TensorFlow a function that creates variables is traced
    twice; on JAX `fit` would consume a batch for it.
    """
    if not stage.learns:
        return
    is_jax = keras.backend.backend() == "jax"

    def blank(of: Any) -> Any:
        """Return zeros of a spec; of sequences one item."""
        dtype = getattr(of.dtype, "as_numpy_dtype", of.dtype)
        return np.zeros((batch_size if is_jax else 1, *(side or 1 for side in of.shape[1:])), dtype)

    is_class = targets is None or (not isinstance(targets, dict) and len(targets.shape) == 1)
    labels = keras.tree.map_structure(blank, tf.TensorSpec([None], tf.int64) if is_class else targets)
    if is_jax:
        model.test_on_batch(keras.tree.map_structure(blank, model.input), labels)
    else:
        several = isinstance(targets, dict)
        shapes = {name: of.shape for name, of in model.output.items()} if several else model.output_shape
        found = keras.tree.map_shape_structure(lambda shape: keras.ops.ones((1, *shape[1:])), shapes)
        with devices.scope():
            model.compute_loss(y=labels, y_pred=found)
            model.compute_metrics(None, labels, found)
            if not model.optimizer.built:  # a second time would add a new loss scale to that of a checkpoint
                model.optimizer.build(model.trainable_variables)
    model.reset_metrics()


_FLOOR_STEPS, _FEWEST_FLOOR_STEPS = 20, 2
_FEWEST_KINDS = 3
"""Kinds of steps that are timed, also if they take longer than a probe."""
_STEPS_OF_HOSTS = 5
"""Steps on several hosts, which all have to take the same number of them."""


@contextmanager
def without_end_warnings() -> Iterator[None]:
    """Suppress Keras's warning at the end of every dataset of unknown length."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data", category=UserWarning)
        yield


def ready_steps(model: keras.Model, work: Work, assessment: Assessment) -> list[Loop]:
    """Time steps on batches that are ready: a loop for each kind, on one batch again and again.

    The kinds that took most of the training come first, until the time of a probe is up. The model has been saved, so
    these updates are discarded.
    """
    watch, found = work.watches["train"], list[Loop]()
    number, probe_s = watch.meter.times_compiled, assessment.probe_s()
    shares = assessment.shares(number) if here().count == 1 else {}  # hosts take the same steps
    batches = sorted(watch.ready.items(), key=lambda of: -shares.get(of[0], 0.0))
    until_s = time.perf_counter() + probe_s
    for shapes, batch in batches if shares else batches[:1]:
        if len(found) >= _FEWEST_KINDS and time.perf_counter() > until_s:
            break
        watch.meter = Meter(times_compiled=number)
        for variable in model.optimizer.variables if keras.backend.backend() == "jax" else ():
            variable.assign(keras.ops.copy(variable))  # which shares the memory of weights after each `fit`
        found.append(_timed(model, batch, watch.meter, probe_s * shares.get(shapes, 1.0)))
    return found


def _timed(model: keras.Model, batch: Any, meter: Meter, seconds: float) -> Loop:
    """Time steps on a batch until there are enough, or until the time is up."""
    watch, until_s = Watch(with_digest=False), time.perf_counter() + seconds
    watch.meter = meter

    def stepped(*_: object, **__: object) -> None:
        meter.stepped()
        steps, is_late = len(meter.loop.steps), time.perf_counter() > until_s
        is_over = steps > _FLOOR_STEPS or (is_late and steps >= _FEWEST_FLOOR_STEPS)
        model.stop_training = steps >= _STEPS_OF_HOSTS if here().count > 1 else is_over

    ready = Watched(tf.data.Dataset.from_tensors(batch).repeat(), watch)
    meter.begin()
    began_s = time.process_time()
    with without_end_warnings():
        model.fit(
            ready, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stepped)], shuffle=False, verbose=0
        )
    loop = meter.end()
    loop.cores = (time.process_time() - began_s) / loop.wall_s
    return loop
