"""What a model's plan means in Keras. Written against Keras alone, for any of its backends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras

from etlrun.errors import WorldError, headline
from etlrun.stages.flow import Flow
from etlrun.stages.model import MobileNetV2
from etlrun.stages.trainer import Trainer


def build(stage: MobileNetV2, flow: Flow, num_classes: int) -> keras.Model:
    """A model from pictures (batch, height, width, 3) as `flow` gives them to probabilities (batch, num_classes).

    Raises:
        WorldError: The weights are not there, or don't fit.
    """
    inputs = keras.Input((flow.height, flow.width, 3), dtype="float32", name="image")
    base = _base(stage, flow)
    base.trainable = stage.trainable
    if stage.batch_norm_momentum is not None:
        for layer in base.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.momentum = stage.batch_norm_momentum
    probabilities = keras.layers.Dense(num_classes, activation="softmax", dtype="float32", name="probabilities")(
        base(inputs)
    )
    return keras.Model(inputs, probabilities, name="mobilenet_v2_classifier")


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


def compile_for(model: keras.Model, trainer: Trainer) -> None:
    """Give `model` its optimizer, loss and metrics."""
    optimizer: Any = keras.optimizers.get(
        {"class_name": trainer.optimizer, "config": {"learning_rate": trainer.learning_rate}}
    )
    model.compile(
        optimizer=optimizer,
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=trainer.jit_compile,
    )
