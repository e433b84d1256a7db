"""Memory that a training step takes of a device: weights, optimizer, batch, and what the step computes."""

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import psutil
import tensorflow as tf

from etlrun.graph.build import Pipeline
from etlrun.planning.plan import Plan
from etlrun.run.backend import accelerators
from etlrun.run.fit import build_loops, read_from_python
from etlrun.run.model import training_data, whole_model
from etlrun.run.session import contexts_of, opened
from etlrun.stages.keras_models import compile_model
from etlrun.stages.load import Load
from etlrun.stages.model import unfreeze
from etlrun.system.errors import Fault, WorldError, refuse
from etlrun.system.machine import rounded
from etlrun.system.values import frozen

_SAMPLED_S = 0.001


@frozen
class StepMemory:
    """Memory of a training step, in bytes. A GPU holds more: the context of its libraries, and batches ahead.

    Attributes:
        weights: All variables of the model, with the states of its metrics.
        optimizer: Variables of its optimizer.
        batch: Inputs and targets.
        computed: What the step computes: activations, gradients, and room of its operations.
        how: How `computed` is known.
    """

    weights: int
    optimizer: int
    batch: int
    computed: int
    how: str

    @property
    def total(self) -> int:
        """Memory of all parts."""
        return self.weights + self.optimizer + self.batch + self.computed

    def __str__(self) -> str:
        """Return the sum and its parts, as a plan says them."""
        names = ("weights", "optimizer", "batch", "computed")
        parts = ", ".join(f"{name} {rounded(getattr(self, name))}" for name in names)
        return f"{rounded(self.total)}: {parts} ({self.how})"

    def past(self, limit: int, batch_size: int) -> Fault:
        """Return the fault of a batch size whose step takes more than `limit` bytes."""
        each, remedy = (self.batch + self.computed) / batch_size, "choose a smaller model"
        if self.weights + self.optimizer + each < limit:
            remedy = f"set a smaller {Load.key('batch_size')}: an example takes at most {rounded(each)}"
        found = f"{batch_size}, of which a training step takes {self}"
        return Fault(Load.key("batch_size"), found, f"at most {rounded(limit)}, as --fits says", remedy)


def unmeasured(plan: Plan) -> Iterator[Fault]:
    """Yield what of a plan has no step whose memory is told, one fault for each value."""
    spec, trainer = plan.spec, plan.spec.learner
    if trainer is None:
        where, found = ("trainer.name", "drain") if spec.fit is None else ("model.name", "emulated")
        yield Fault(where, found, "a training, whose steps take memory", "set trainer=fit and a model that learns")
        return
    for name in ("devices", "hosts"):
        if (value := getattr(trainer, name)) != 1:
            remedy = f"set {trainer.key(name)}=1, and {Load.key('batch_size')} to the examples of one device"
            yield Fault(trainer.key(name), str(value), "1, since the memory is that of one device", remedy)
    if spec.cache.keeps_features:
        expected = "a cache of examples: with one of features the base computes apart from the steps"
        yield Fault(spec.cache.key("at"), "features", expected, "set cache=none")


def of_step(plan: Plan) -> StepMemory:
    """Return the memory of a step of the last phase, which trains the most layers; it reads no example.

    On JAX it is what the compiler says of the step (`jax.stages.Compiled.memory_analysis`), on TensorFlow the measured
    peak of one step: that of the GPU's allocator, or of the process on a CPU.

    Raises `ConfigError` if the plan has no such step, `WorldError` if data or weights are missing.
    """
    refuse([*unmeasured(plan)])
    trainer, stage, source, size = plan.spec.fit, plan.spec.model, opened(plan), plan.spec.load.batch_size
    assert trainer is not None  # noqa: S101 - for mypy
    context, phase = contexts_of(plan, source, with_validation=False)["train"], trainer.planned_phases[-1]
    data = training_data(plan, context)
    model = whole_model(plan, data)
    if phase.unfreeze is not None:
        unfreeze(model.layers[-2], stage.last_layers(phase.unfreeze))
        compile_model(model, stage, trainer.in_phase(phase), data)
    spec = Pipeline(plan.train, context).dataset.element_spec
    if any(None in of.shape[1:] for of in tf.nest.flatten(spec)):
        expected = "batches of one shape, whose step is the same each time"
        raise WorldError(Load.key("name"), plan.spec.load.path, expected, "end the steps of text with multi_hot")
    build_loops(model, stage, size, spec[1])
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    batch = tf.nest.map_structure(lambda of: np.zeros([size, *of.shape[1:]], of.dtype.as_numpy_dtype), spec)
    computed, how = (_compiled if keras.backend.backend() == "jax" else _measured)(model, stage, batch, spec)
    return StepMemory(
        weights=_bytes([*model.variables, *model.metrics_variables]),
        optimizer=_bytes(model.optimizer.variables),
        batch=sum(of.nbytes for of in tf.nest.flatten(batch)),
        computed=computed,
        how=how,
    )


def _bytes(variables: Sequence[keras.Variable]) -> int:
    several = {id(of): of for of in variables}.values()
    return sum(math.prod(of.shape) * np.dtype(of.dtype).itemsize for of in several)


def _compiled(model: keras.Model, _: Any, batch: Any, __: Any) -> tuple[int, str]:
    """Return the bytes that a compiled step of JAX needs beside its arguments, and how they are known."""
    import jax

    variables = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    state = tuple([of.value for of in each] for each in (*variables, model.metrics_variables))
    step = jax.jit(model.train_step, donate_argnums=0).lower(state, batch).compile()  # as Keras's own loop does
    found = step.memory_analysis()
    beside = found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return beside, f"the compiler's analysis of the step for {jax.devices()[0].device_kind}"


def _measured(model: keras.Model, stage: Any, batch: Any, spec: Any) -> tuple[int, str]:
    """Return the bytes by which memory grows in a step of TensorFlow, and how they are known."""
    read_from_python(model, stage, spec)
    one = tf.nest.map_structure(lambda of: of[:1], batch)
    model.train_function(iter([one]))  # traces it
    if accelerators():
        batch = tf.nest.map_structure(tf.constant, batch)
        before = tf.config.experimental.get_memory_info("GPU:0")["current"]
        tf.config.experimental.reset_memory_stats("GPU:0")
        model.train_function(iter([batch]))
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) - before, "the measured peak of one step"
    process = psutil.Process()
    before, peak, done = process.memory_info().rss, 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(_SAMPLED_S):
            peak = max(peak, process.memory_info().rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    model.train_function(iter([batch]))
    done.set()
    sampler.join()
    return max(0, peak - before), "the growth of this process in one step, without a GPU"
