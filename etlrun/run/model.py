"""Keras models of a plan, on any backend: built and compiled, or loaded from a checkpoint."""

import hashlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from etlrun.cluster.hosts import here
from etlrun.graph.context import FrozenBase
from etlrun.graph.shards import count_of_batches
from etlrun.planning.plan import Plan, given_to_model, past_classes, reads_features, warmup_past
from etlrun.run import custom_objects, devices
from etlrun.run.backend import accelerators
from etlrun.run.checkpoint import PreviousRun
from etlrun.sources.base import Source
from etlrun.sources.corrupt import counts_of
from etlrun.stages import keras_objects
from etlrun.stages.flow import Flow
from etlrun.stages.load import balanced
from etlrun.stages.made import Made, make
from etlrun.stages.model import (
    Backbone,
    Emulated,
    ImageModel,
    base_and_head,
    set_momentum,
    without_dropout,
)
from etlrun.stages.network import Network, embedded, masks, vectors
from etlrun.stages.plugins import MODELS, named
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import Fault, WorldError, headline, refuse

_RANK_OF_IMAGES, _RANK_OF_FEATURES = 4, 2


def build(
    stage: ImageModel | Emulated, flow: Flow, scaling: Sequence[tuple[float, float]], num_classes: int | None
) -> keras.Model:
    """Build a model from the inputs of `flow`, one or several by name, to a prediction of its target.

    An image model goes from images (batch, height, width, 3) to probabilities (batch, num_classes), or to numbers if
    the target is no class. It begins with `scaling`, pairs of a scale and an offset, so that a saved model takes the
    inputs of the pipeline.

    Raises:
        WorldError: The weights are missing or incompatible, or there is one class only.
    """
    if num_classes == 1:
        found, expected = "a dataset of one class", "at least two classes, or a number as the target"
        raise WorldError("dataset", found, expected, "add examples of another class")
    given = {}
    for name in flow.inputs:
        of, jax = flow.features[name], keras.backend.backend() == "jax"  # which has no integers of 64 bits
        given[name] = keras.Input(of.shape, dtype=of.dtype.replace("int64", "int32") if jax else of.dtype, name=name)
    inputs = flow.given(given)
    name, predicts = stage.path.rpartition(".")[2], False
    if isinstance(stage, Network):
        of_items = [masks(given, sequences=flow.sequences)] if stage.takes_sequences else []
        numbers = vectors(given, embedded=embedded(flow))
        found, predicts = _called(stage, numbers, *of_items), stage.predicts
        if not (predicts or (isinstance(found, keras.KerasTensor) and len(found.shape) == _RANK_OF_FEATURES)):
            shown = f"{type(found).__name__} of shape {getattr(found, 'shape', None)}"
            raise _unusable(stage, shown, "pool or flatten them, for example with keras.layers.Flatten")
    elif isinstance(stage, ImageModel):
        pixels = inputs
        for factors in scaling:
            pixels = make(Made("keras.layers.Rescaling", factors, {"dtype": "float32"}))(pixels)
        found = _base(stage, flow.features[flow.inputs[0]].shape)(pixels)
    else:
        found, predicts = _emulated(inputs), True
    outputs = found if predicts else _heads(found, flow, num_classes)
    if not isinstance(stage, Network):
        return keras.Model(inputs, outputs, name=name if predicts else f"{name}_classifier")
    model = keras.Model(inputs, outputs, name=name)
    if named(MODELS, name) is not None:
        try:  # before the training
            keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
        except Exception as error:  # Keras and layers of another package may raise anything
            text = f"layers that Keras can't load again: {type(error).__name__}: {headline(error)}"
            raise _unusable(stage, text, "make it of Keras's own layers") from error
    return model


def _heads(features: Any, flow: Flow, num_classes: int | None) -> Any:
    """Return the prediction of the target from features (batch, features), or those of several targets by name."""
    found = {}
    for name, layers in keras_objects.heads(flow, num_classes).items():
        found[name] = features
        for layer in layers:
            found[name] = make(layer)(found[name])
    return found if len(found) > 1 else found[flow.target]


def _called(stage: Network, inputs: Mapping[str, Any], *masks: Mapping[str, Any]) -> Any:
    """Return what the function of a network gives; `WorldError`, with its line, if it raises."""
    try:
        return stage.network(inputs, *masks, **stage.arguments)
    except Exception as error:  # a function of another package may raise anything
        if stage.weights is not None:
            raise _unfit_weights(stage, error, f"{stage.arguments.get('base')} without its top") from error
        file = stage.network.__code__.co_filename
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        place = f" in {Path(file).name}, line {lines[-1]}" if lines else ""
        found = f"{type(error).__name__}{place}: {headline(error)}"
        shapes = ", ".join(f"{name} {values.shape}" for name, values in inputs.items())
        raise _unusable(stage, found, f"repair the function; its inputs are {shapes}") from error


def _unusable(stage: Network, found: str, remedy: str) -> WorldError:
    expected = "features (batch, features) from its function `network`"
    return WorldError(stage.path, found, expected, remedy)


def _emulated(inputs: Any) -> Any:
    """Return a placeholder output that Keras can train on these inputs; it is never computed."""
    found = []
    for of in keras.tree.flatten(inputs):
        layer = keras.layers.GlobalAveragePooling2D if len(of.shape) == _RANK_OF_IMAGES else keras.layers.Flatten
        found.append(layer()(keras.layers.Rescaling(1.0, dtype="float32")(of)))
    return found[0] if len(found) == 1 else keras.layers.Concatenate()(found)


def backbone(model: keras.Model) -> FrozenBase:
    """Return the base of `model`; its weights must not change afterwards."""
    base, _ = base_and_head(model)
    compute = _computed(base)

    def features(images: Any) -> Any:
        # A fixed batch shape, so that nothing is compiled twice.
        padding = [(0, Backbone.pictures_at_once - len(images)), *[(0, 0)] * (images.ndim - 1)]
        found = compute(np.pad(images, padding))
        return np.asarray(found[: len(images)], "float32")

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


def _computed(base: keras.Model) -> Callable[[Any], Any]:
    """Return a thread-safe function from a full batch of images to features."""
    # Of constants, batch norms are folded into the convolutions: a third faster on a CPU.
    if keras.backend.backend() == "tensorflow":
        spec = tf.TensorSpec((Backbone.pictures_at_once, *base.input_shape[1:]), base.input.dtype)
        call = tf.function(lambda images: base(images, training=False)).get_concrete_function(spec)
        folded = convert_variables_to_constants_v2(call)
        return lambda images: folded(tf.constant(images))[0]
    import jax  # Keras's `predict` would move the weights out of the model during the call

    weights = [[variable.value for variable in of] for of in (base.trainable_variables, base.non_trainable_variables)]
    return jax.jit(lambda images: base.stateless_call(*weights, images, training=False)[0])  # type: ignore[no-any-return]


def head(model: keras.Model, trainer: Trainer, classes: Sequence[str] | None) -> keras.Model:
    """Return what is behind the base of `model` with its optimizer: from features (batch, features) of each image."""
    _, top = base_and_head(model)
    top.compile(
        optimizer=model.optimizer,
        **{**make(keras_objects.objective(trainer, classes)), "loss": model.loss},
        jit_compile=model.jit_compile,
        auto_scale_loss=False,  # the optimizer of the whole model does it already
    )
    return top


def _base(stage: ImageModel, shape: tuple[int | None, ...]) -> keras.Model:
    weights, key = stage.weights, stage.key("weights")
    if weights not in (None, "imagenet"):
        weights = str(Path(weights).expanduser())
        if not Path(weights).is_file():
            expected = "`imagenet`, null, or the path of a weights file (.h5 or .weights.h5)"
            remedy = "check the path; relative paths start at the working directory"
            raise WorldError(key, f"no file {stage.weights}", expected, remedy)
    try:
        with warnings.catch_warnings():  # one for each layer of another model, before the error
            warnings.filterwarnings("ignore", message="Skipping nested container", category=UserWarning)
            base = make(keras_objects.base(stage, shape, weights))
    except Exception as error:
        if weights is None:
            raise
        raise _unfit_weights(stage, error, *stage.of_same_weights) from error
    if stage.is_undropped:
        base = without_dropout(base)
    base.trainable = stage.trainable
    if stage.batch_norm_momentum is not None:
        set_momentum(base, stage.batch_norm_momentum)
    return base


def _unfit_weights(
    stage: ImageModel | Network, error: Exception, of: str, remedy: str = "set another base"
) -> WorldError:
    """Return the error of weights that can't be loaded; `of` are those that can be."""
    key = f"{stage.block}.weights"
    if stage.weights != "imagenet":
        found, expected = f"incompatible weights in {stage.weights}: {headline(error)}", f"weights of {of}"
        return WorldError(key, found, expected, f"{remedy}, or model.weights=null for random initialization")
    found = f"imagenet weights that could not be downloaded: {headline(error)}"
    expected = "a working download, or the file in Keras's folder of models"
    folder = Path(os.environ.get("KERAS_HOME", "~/.keras"), "models")
    remedy = f"copy the file that Keras names into {folder} (the environment variable KERAS_HOME sets that "
    return WorldError(key, found, expected, f"{remedy}folder), or set {key} to the path of a weights file")


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


def whole_model(plan: Plan, source: Source, previous: PreviousRun | None = None) -> keras.Model:
    """Return the compiled model from the inputs of the pipeline to the prediction of the target.

    It is loaded from the checkpoint of a `previous` run, or built.

    Raises:
        ConfigError: The data don't fit a value, or a file of vectors can't be read any more.
        WorldError: Weights or a checkpoint are missing or incompatible.
    """
    with devices.scope():
        if previous is not None and previous.checkpoint is not None:
            remedy = "start a new run without trainer.resume, or resume another folder"
            model = loaded(previous.checkpoint, "the complete model that a run saves after an epoch", remedy)
            restore_seeds(model, previous.checkpoint)
        else:
            trainer, stage = plan.spec.fit, plan.spec.model
            assert trainer is not None  # noqa: S101 - for mypy
            refuse(_unfit(plan, source, trainer))
            if previous is not None and not reads_features(plan):  # of its own weights
                stage = stage.restored
            scaling = [planned.stage.factors for planned in plan.by_model if planned.stage.factors is not None]
            model = build(stage, given_to_model(plan.train), scaling, source.num_classes)
            compile_phase(model, plan, source, trainer.in_phase(trainer.planned_phases[0]))
    # Keras's loops would distribute the dataset, whose reading is measured: here a step divides its batch.
    model._distribute_strategy = None  # noqa: SLF001 - Keras has no other way
    return model


def _unfit(plan: Plan, source: Source, trainer: Trainer) -> dict[Fault, None]:
    """Return where the data don't fit a value."""
    faults = [] if source.names_of_classes is None else [*past_classes(trainer, source.names_of_classes)]
    for one in map(trainer.in_phase, trainer.planned_phases) if trainer.schedule.needs_run else ():
        faults += warmup_past(one, steps_of_run(plan, source, one))
    return dict.fromkeys(faults)


def compile_phase(model: keras.Model, plan: Plan, source: Source, trainer: Trainer) -> None:
    """Compile `model` for a training in one phase; an emulated model has no optimizer, loss and metrics."""
    custom_objects.register()
    if not plan.spec.model.learns:
        model.compile()
        return
    flow, dataset, load, weights = given_to_model(plan.train), plan.spec.dataset, plan.spec.load, None
    if load.class_weights != "none":
        split = source.split(dataset.split, dataset.key_of("train"))
        weights = balanced([*counts_of(source, split, by_number=load.is_by_number).values()])
    steps = steps_of_run(plan, source, trainer) if trainer.schedule.needs_run else None
    names, of_rows = source.names_of_classes, dataset.loss_weights
    found = keras_objects.objectives(trainer, flow, names, of_rows, class_weights=weights, mixes=load.mixes)
    with devices.scope():
        optimizer, jit = make(keras_objects.optimizer(trainer, steps)), trainer.jit_on(keras.backend.backend())
        model.compile(optimizer=optimizer, **make(found), jit_compile=jit)


def steps_of_run(plan: Plan, source: Source, trainer: Trainer) -> int:
    """Return the number of training steps of a run, if it skips no record and isn't stopped early."""
    dataset, steps = plan.spec.dataset, trainer.steps_per_epoch
    if steps is None:
        split = source.split(dataset.split, dataset.key_of("train"))
        steps = count_of_batches(plan.train, source, split, here().count)
    return steps * trainer.all_epochs


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
        raise WorldError(
            str(path),
            f"the states of {len(states)} seeds in a model of {len(seeds)}",
            "a checkpoint with the states of all seeds, from which dropout draws",
            "start a new run without trainer.resume",
        )
    for seed, state in zip(seeds, states, strict=True):
        seed.assign(state)


def _seeds(model: keras.Model) -> list[Any]:
    """Return the states of the random numbers of a model: (2,), a seed and the number of draws."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]
