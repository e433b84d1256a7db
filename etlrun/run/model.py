"""Keras models of a plan, on any backend: built and compiled, or loaded from a checkpoint."""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from etlrun.cluster.hosts import here
from etlrun.graph.context import FrozenBase, Reading
from etlrun.graph.shards import count_of_batches
from etlrun.planning.plan import Plan, given_to_model, past_classes, undivided, warmup_past
from etlrun.run import custom_objects, devices
from etlrun.run.backend import accelerators
from etlrun.run.checkpoint import PreviousRun
from etlrun.sources.corrupt import counts_of
from etlrun.stages.keras_models import TrainingData, build, compile_model
from etlrun.stages.load import balanced
from etlrun.stages.model import Backbone, base_and_head
from etlrun.system.errors import WorldError, headline, refuse


def backbone(model: keras.Model) -> FrozenBase:
    """Return the base of `model`; its weights must not change afterwards."""
    base, _ = base_and_head(model)
    # Of constants, batch norms are folded into the convolutions: a third faster on a CPU.
    if keras.backend.backend() == "tensorflow":
        spec = tf.TensorSpec((Backbone.pictures_at_once, *base.input_shape[1:]), base.input.dtype)
        call = tf.function(lambda images: base(images, training=False)).get_concrete_function(spec)
        folded = convert_variables_to_constants_v2(call)

        def compute(images: Any) -> Any:
            return folded(tf.constant(images))[0]

    else:  # Keras's `predict` would move the weights out of the model during the call
        import jax

        parts = base.trainable_variables, base.non_trainable_variables
        weights = [[variable.value for variable in of] for of in parts]

        @jax.jit  # type: ignore[untyped-decorator]
        def compute(images: Any) -> Any:
            return base.stateless_call(*weights, images, training=False)[0]

    def features(images: Any) -> Any:
        # A fixed batch shape, so that nothing is compiled twice.
        padding = [(0, Backbone.pictures_at_once - len(images)), *[(0, 0)] * (images.ndim - 1)]
        return np.asarray(compute(np.pad(images, padding))[: len(images)], "float32")

    digest = hashlib.sha256()
    for weight in base.get_weights():
        digest.update(np.ascontiguousarray(weight).data)
    name = keras.backend.backend()
    version = sys.modules[name].__version__  # imported: the installed package may have been updated since
    return FrozenBase(
        features=features,
        identity=[
            ["model.weights", digest.hexdigest()[:16]],
            ["model.input", f"{base.input_shape} {base.input.dtype}"],
            ["model.scaling", [[layer.scale, layer.offset] for layer in base.layers if hasattr(layer, "offset")]],
            ["precision", keras.config.dtype_policy().name],
            ["keras", keras.__version__],
            ["backend", f"{name} {version} on {'a GPU' if accelerators() else 'the CPU'}"],
        ],
    )


def loaded(path: Path, expected: str, remedy: str) -> keras.Model:
    """Return a saved model; `WorldError`, with what is `expected` and the `remedy`, if Keras can't load it."""
    custom_objects.register()
    try:
        ZipFile(path).close()  # for a truncated file Keras reports that it does not exist
        return keras.models.load_model(path)
    except Exception as error:  # Keras and HDF5 may raise anything
        found = f"a file that Keras cannot load: {type(error).__name__}: {headline(error)}"
        raise WorldError(str(path), found, expected, remedy) from error


@contextmanager
def averaged(model: keras.Model) -> Iterator[None]:
    """Give `model` the averages of its weights, if its optimizer keeps some, and then its own weights again."""
    variables = model.trainable_variables
    before = [keras.ops.copy(variable.value) for variable in variables]
    finish(model)
    yield
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)


def finish(model: keras.Model) -> None:
    """Give `model` the averages of its weights, as Keras does at the end of a training."""
    if model.optimizer is not None:
        model.optimizer.finalize_variable_values(model.trainable_variables)


def training_data(plan: Plan, reading: Reading) -> TrainingData:
    """Return what data decide of the model of a training; `ConfigError` if they or the devices don't fit a value."""
    trainer, dataset, load, hosts = plan.spec.fit, plan.spec.dataset, plan.spec.load, here().count
    assert trainer is not None  # noqa: S101 - for mypy
    split, classes = reading.split, reading.source.names_of_classes
    batches = weights = None
    if trainer.schedule.needs_run:
        batches = trainer.steps_per_epoch or count_of_batches(plan.train, split, hosts)
    flow, of_all = given_to_model(plan.train), replace(load, batch_size=load.batch_size * hosts)
    faults = [*undivided(of_all, trainer, devices.shares() * hosts)]
    faults += [] if classes is None else past_classes(trainer, classes)
    if batches is not None:
        for one in map(trainer.in_phase, trainer.planned_phases):
            faults += warmup_past(one, batches * one.all_epochs)
    refuse(dict.fromkeys(faults))
    if load.class_weights != "none" and plan.spec.model.learns:
        weights = balanced([*counts_of(split, by_number=load.is_by_number).values()])
    return TrainingData(
        flow=flow,
        classes=classes,
        class_weights=weights,
        loss_weights=dataset.loss_weights,
        mixes=load.mixes,
        batches=batches,
    )


def whole_model(plan: Plan, data: TrainingData, previous: PreviousRun | None = None) -> keras.Model:
    """Return the compiled model from the inputs of the pipeline to the prediction of the target.

    It is loaded from the checkpoint of a `previous` run, or built. Raises `WorldError` if weights or a checkpoint are
    missing or incompatible.
    """
    custom_objects.register()
    trainer, stage = plan.spec.fit, plan.spec.model
    assert trainer is not None  # noqa: S101 - for mypy
    with devices.scope():
        if previous is not None and previous.checkpoint is not None:
            remedy = "start a new run without trainer.resume, or resume another folder"
            model = loaded(previous.checkpoint, "the complete model that a run saves after an epoch", remedy)
            restore_seeds(model, previous.checkpoint)
        else:
            if previous is not None and not plan.spec.cache.keeps_features:  # of its own weights
                stage = stage.restored
            scaling = [planned.stage.factors for planned in plan.by_model if planned.stage.factors is not None]
            count = None if data.classes is None else len(data.classes)
            model = build(stage, data.flow, scaling, count, data.loss_weights)
            compile_model(model, stage, trainer.in_phase(trainer.planned_phases[0]), data)
    # Keras's loops would distribute the dataset, whose reading is measured: here a step divides its batch.
    model._distribute_strategy = None  # noqa: SLF001 - Keras has no other way
    return model


_SEEDS = "seeds.json"
"""Name of the states of seeds in a file of Keras, which has none."""


def add_seeds(model: keras.Model, path: Path) -> None:
    """Add the states of the seeds of `model`, from which dropout draws, to the file that Keras has saved it in."""
    states = [keras.ops.convert_to_numpy(seed).tolist() for seed in _seeds(model)]
    if states:
        with ZipFile(path, "a") as file:
            file.writestr(_SEEDS, json.dumps(states))


def restore_seeds(model: keras.Model, path: Path) -> None:
    """Set the states of the seeds of `model`, which was loaded from `path`, to those that were saved with it."""
    seeds = _seeds(model)
    if not seeds:
        return
    with ZipFile(path) as file:
        states = json.loads(file.read(_SEEDS)) if _SEEDS in file.namelist() else []
    if len(states) != len(seeds):
        found = f"the states of {len(states)} seeds in a model of {len(seeds)}"
        expected = "a checkpoint with the states of all seeds, from which dropout draws"
        raise WorldError(str(path), found, expected, "start a new run without trainer.resume")
    for seed, state in zip(seeds, states, strict=True):
        seed.assign(state)


def _seeds(model: keras.Model) -> list[Any]:
    """Return the states of the random numbers of a model: (2,), a seed and the number of draws."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]
