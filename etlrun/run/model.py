"""What a model's plan means in Keras, on any of its backends."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from etlrun.errors import WorldError, headline
from etlrun.graph.context import Backbone
from etlrun.run.backend import accelerators
from etlrun.stages.flow import Flow
from etlrun.stages.image import Scaling
from etlrun.stages.model import Backbone as BackboneStage
from etlrun.stages.model import Emulated, MobileNetV2
from etlrun.stages.trainer import Trainer

_HEAD = "probabilities"
"""The name of the one layer that is not the base's."""


def build(stage: MobileNetV2 | Emulated, flow: Flow, scaling: Sequence[Scaling], num_classes: int) -> keras.Model:
    """A model from pictures (batch, height, width, 3) as `flow` gives them to probabilities (batch, num_classes).

    It begins with the steps of `scaling`, so that a saved model takes pictures as the pipeline gives them.

    Raises:
        WorldError: The weights are not there, or don't fit.
    """
    inputs = pixels = keras.Input((flow.height, flow.width, 3), dtype=flow.dtype, name="image")
    for step in scaling:
        factor, offset = step.factors
        pixels = keras.layers.Rescaling(factor, offset, dtype="float32")(pixels)
    if isinstance(stage, Emulated):
        pixels = keras.layers.Rescaling(1.0, dtype="float32")(pixels)
        return keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(pixels), name="emulated")
    base = _base(stage, flow)
    base.trainable = stage.trainable
    if stage.batch_norm_momentum is not None:
        for layer in base.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.momentum = stage.batch_norm_momentum
    probabilities = keras.layers.Dense(num_classes, activation="softmax", dtype="float32", name=_HEAD)(base(pixels))
    return keras.Model(inputs, probabilities, name="mobilenet_v2_classifier")


def backbone(model: keras.Model) -> Backbone:
    """What `model` computes before its dense layer, whose weights must not change any more."""
    base = keras.Model(model.input, model.get_layer(_HEAD).input)
    compute = _computed(base)

    def features(pictures: Any) -> Any:
        # One shape of batch, so that nothing is compiled twice.
        padding = [(0, BackboneStage.pictures_at_once - len(pictures)), *[(0, 0)] * (pictures.ndim - 1)]
        found = compute(np.pad(pictures, padding))
        return np.asarray(found[: len(pictures)], "float32")

    digest = hashlib.sha256()
    for weight in base.get_weights():
        digest.update(np.ascontiguousarray(weight).data)
    return Backbone(
        features=features,
        identity=[
            ["model.weights", digest.hexdigest()[:16]],
            ["model.input", f"{base.input_shape} {base.input.dtype}"],
            ["model.scaling", [[layer.scale, layer.offset] for layer in base.layers if hasattr(layer, "offset")]],
            ["precision", keras.config.dtype_policy().name],
            ["keras", keras.__version__],
            ["backend", f"{keras.backend.backend()} {_version()} on {'a GPU' if accelerators() else 'the CPU'}"],
        ],
        makers=(build, backbone),
    )


def _computed(base: keras.Model) -> Callable[[Any], Any]:
    """What a whole batch of pictures becomes, from any thread.

    On TensorFlow the weights become constants, so that batch norms are folded into the convolutions: a third faster
    on a CPU. Keras's own way on JAX would take the weights away meanwhile.
    """
    if keras.backend.backend() == "tensorflow":
        spec = tf.TensorSpec((BackboneStage.pictures_at_once, *base.input_shape[1:]), base.input.dtype)
        call = tf.function(lambda pictures: base(pictures, training=False)).get_concrete_function(spec)
        folded = convert_variables_to_constants_v2(call)
        return lambda pictures: folded(tf.constant(pictures))[0]
    if keras.backend.backend() != "jax":
        return base.predict_on_batch  # type: ignore[no-any-return]
    import jax

    weights = [[variable.value for variable in of] for of in (base.trainable_variables, base.non_trainable_variables)]
    return jax.jit(lambda pictures: base.stateless_call(*weights, pictures, training=False)[0])  # type: ignore[no-any-return]


def _version() -> str:
    """Of the backend that computes: an update of its package may have come since."""
    return str(sys.modules[keras.backend.backend()].__version__)


def head(model: keras.Model) -> keras.Model:
    """The dense layer of `model` with its optimizer: from features (batch, features) to probabilities."""
    dense = model.get_layer(_HEAD)
    inputs = keras.Input(dense.input.shape[1:], dtype="float32", name="features")
    top = keras.Model(inputs, dense(inputs), name="head")
    top.compile(
        optimizer=model.optimizer,
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=model.jit_compile,
        auto_scale_loss=False,  # the optimizer of the whole model does it already
    )
    return top


def _base(stage: MobileNetV2, flow: Flow) -> keras.Model:
    weights = stage.weights
    if weights not in (None, "imagenet") and not Path(weights).expanduser().is_file():
        raise WorldError(
            where="model.weights",
            found=f"no file {weights}",
            expected="`imagenet`, null, or the path of a weights file (.h5 or .weights.h5)",
            remedy="check the path; relative paths start at the working directory",
        )
    try:
        return keras.applications.MobileNetV2(
            input_shape=(flow.height, flow.width, 3),
            alpha=stage.alpha,
            include_top=False,
            weights=str(Path(weights).expanduser()) if weights not in (None, "imagenet") else weights,
            pooling="avg",
        )
    except Exception as error:
        if weights is None:
            raise
        raise _no_weights(weights, error) from error


def _no_weights(weights: str, error: Exception) -> WorldError:
    reason = headline(error)
    if weights == "imagenet":
        home = Path(os.environ.get("KERAS_HOME", "~/.keras"))
        return WorldError(
            where="model.weights",
            found=f"imagenet weights that could not be had: {reason}",
            expected="Keras's download to work, or its file to be there already",
            remedy=f"copy the file that Keras names into {home / 'models'} (the environment variable KERAS_HOME "
            "moves that folder), or set model.weights to the path of a weights file",
        )
    return WorldError(
        where="model.weights",
        found=f"weights that don't fit in {weights}: {reason}",
        expected="weights of MobileNetV2 without its top, of the same alpha",
        remedy="set model.alpha to that of the file, or model.weights=null for a random start",
    )


def compile_for(model: keras.Model, stage: MobileNetV2 | Emulated, trainer: Trainer) -> None:
    """Give `model` its optimizer, loss and metrics; an emulated one learns nothing, and has none."""
    if isinstance(stage, Emulated):
        model.compile()
        return
    optimizer: Any = keras.optimizers.get(
        {"class_name": trainer.optimizer, "config": {"learning_rate": trainer.learning_rate}}
    )
    model.compile(
        optimizer=optimizer,
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=trainer.jit_compile,
    )


def read_from_python(model: keras.Model, stage: MobileNetV2 | Emulated, train: Any, validation: Any = None) -> None:
    """Let the loops of `model` read from any Python iterator, so that its waiting can be measured.

    On JAX Keras's own do. On TensorFlow they would trace the model once for each shape of batch; here a step is traced
    once, for the element specs `train` and `validation`, and an emulated step is a sleep.
    """
    if isinstance(stage, Emulated):
        model.train_function = _slept(stage.step_ms / 1000)
        model.test_function = _slept(stage.eval_step_ms / 1000)
    elif keras.backend.backend() == "tensorflow":
        model.train_function = _traced(model.train_step, train, model.jit_compile)
        if validation is not None:
            model.test_function = _traced(model.test_step, validation, model.jit_compile)


def _slept(seconds: float) -> Callable[..., Any]:
    """A loop's function that only takes its time: of (iterator) on TensorFlow, of (state, iterator) on JAX."""

    def function(*arguments: Any) -> Any:
        next(arguments[-1])
        time.sleep(seconds)
        return ({}, arguments[0]) if len(arguments) > 1 else {}

    return function


def _traced(step: Callable[[Any], Any], spec: Any, jit_compile: bool) -> Callable[[Any], Any]:  # noqa: FBT001 - Keras's value
    on_batch = tf.function(step, input_signature=[spec], jit_compile=jit_compile, autograph=False)
    return lambda iterator: on_batch(next(iterator))


def build_loops(model: keras.Model, stage: MobileNetV2 | Emulated, batch_size: int) -> None:
    """Have Keras make now what it would otherwise make in the first step: metrics, loss and optimizer.

    On TensorFlow a function that makes variables is traced twice. On JAX `fit` reads a batch ahead, which no step sees.
    """
    if isinstance(stage, Emulated):
        return
    if keras.backend.backend() == "jax":
        pictures = np.zeros((batch_size, *model.input_shape[1:]), model.input.dtype)
        model.test_on_batch(pictures, np.zeros(batch_size, "int64"))
    else:
        label, probabilities = np.zeros(1, "int64"), keras.ops.ones((1, *model.output_shape[1:]))
        model.compute_loss(y=label, y_pred=probabilities)
        model.compute_metrics(None, label, probabilities)
        model.optimizer.build(model.trainable_variables)
    model.reset_metrics()
