"""Models of Keras: built for their stage, and compiled for a training."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etlrun.stages import keras_objects
from etlrun.stages.flow import Flow
from etlrun.stages.lazy import keras
from etlrun.stages.made import Made, make
from etlrun.stages.model import Emulated, ImageModel, Model, base_and_head, set_momentum, without_dropout
from etlrun.stages.network import Network, embedded, masks, vectors
from etlrun.stages.plugins import MODELS, named
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError, headline
from etlrun.system.values import frozen

_RANK_OF_IMAGES, _RANK_OF_FEATURES = 4, 2


def build(
    stage: ImageModel | Emulated,
    flow: Flow,
    scaling: Sequence[tuple[float, float]],
    num_classes: int | None,
    loss_weights: Mapping[str, float] | None = None,
) -> keras.Model:
    """Build a model from the inputs of `flow`, one or several by name, to a prediction of its target.

    An image model goes from images (batch, height, width, 3) to probabilities (batch, num_classes), or to numbers if
    the target is no class. It begins with `scaling`, pairs of a scale and an offset, so that a saved model takes the
    inputs of the pipeline. `loss_weights` are those of several targets. Raises `WorldError` if weights are missing or
    incompatible, or if there is one class only.
    """
    if num_classes == 1:
        found, expected = "a dataset of one class", "at least two classes, or a number as the target"
        raise WorldError("dataset", found, expected, "add examples of another class")
    given = {}
    for name in flow.inputs:
        of, jax = flow.features[name], keras.backend.backend() == "jax"  # which has no integers of 64 bits
        given[name] = keras.Input(of.shape, dtype=of.dtype.replace("int64", "int32") if jax else of.dtype, name=name)
    inputs = flow.given(given)
    name, predicts, num_heads = stage.path.rpartition(".")[2], False, 1
    if isinstance(stage, Network):
        of_items = [masks(given, sequences=flow.sequences)] if stage.takes_sequences else []
        numbers = vectors(given, embedded=embedded(flow))
        found, predicts, num_heads = _called(stage, numbers, *of_items), stage.predicts, stage.num_heads
        rank = _RANK_OF_FEATURES + (num_heads > 1)
        if not (predicts or (isinstance(found, keras.KerasTensor) and len(found.shape) == rank)):
            shown = f"{type(found).__name__} of shape {getattr(found, 'shape', None)}"
            raise _unusable(stage, shown, "pool or flatten them, for example with keras.layers.Flatten")
    elif isinstance(stage, ImageModel):
        pixels = inputs
        for factors in scaling:
            pixels = make(Made("keras.layers.Rescaling", factors, {"dtype": "float32"}))(pixels)
        found = _base(stage, flow.features[flow.inputs[0]].shape)(pixels)
    else:
        found, predicts = _emulated(inputs), True
    layers = {} if predicts else keras_objects.heads(flow, num_classes, num_heads, loss_weights)
    outputs = found if predicts else _heads(found, flow, layers)
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


def _heads(features: Any, flow: Flow, layers: Mapping[str, Sequence[Made]]) -> Any:
    """Return the prediction of the target from features by its layers, or those of several targets by name."""
    found = {}
    for name, behind in layers.items():
        found[name] = features
        for layer in behind:
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


@frozen
class TrainingData:
    """What the data of a training decide of its model.

    Attributes:
        flow: What the whole model is given.
        classes: Names of the classes; None for numbers.
        class_weights: Weight of each class in the loss; None for none.
        loss_weights: Weights of the losses of several targets, by name.
        mixes: Whether images are mixed.
        batches: Batches of an epoch; None if nothing depends on them.
    """

    flow: Flow
    classes: Sequence[str] | None
    class_weights: Sequence[float] | None
    loss_weights: Mapping[str, float]
    mixes: bool
    batches: int | None


def compile_model(model: keras.Model, stage: Model, trainer: Trainer, data: TrainingData) -> None:
    """Compile `model` for a training in one phase; an emulated model has no optimizer, loss and metrics."""
    if not stage.learns:
        model.compile()
        return
    found = keras_objects.objectives(
        trainer, data.flow, data.classes, data.loss_weights, class_weights=data.class_weights, mixes=data.mixes
    )
    steps = None if data.batches is None else data.batches * trainer.all_epochs
    optimizer, jit = make(keras_objects.optimizer(trainer, steps)), trainer.jit_on(keras.backend.backend())
    model.compile(optimizer=optimizer, **make(found), jit_compile=jit)


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
