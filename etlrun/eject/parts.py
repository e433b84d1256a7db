"""Text of the parts of a run that are not pipelines: functions of a program."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from textwrap import dedent
from typing import Any

from etlrun.eject.loops import drain, emulated, fit
from etlrun.eject.text import call, function, mapping, path, quoted
from etlrun.plan.plan import Plan, given_to_model
from etlrun.stages.applications import scaled_for_imagenet, undropped
from etlrun.stages.flow import Feature
from etlrun.stages.measure import NoProfile, Trace
from etlrun.stages.model import Emulated, ImageModel, KerasApplication, MobileNetV2, Model
from etlrun.stages.trainer import Drain, Trainer

Functions = tuple[str, ...]


def image_model(stage: ImageModel, plan: Plan) -> Functions:
    """Return the function of the model, with the scaling that the pipeline leaves to it."""
    flow = given_to_model(plan.train)
    image, target = flow.feature(flow.inputs[0]), plan.spec.dataset.examples.features[flow.target]
    momentum = (
        "for layer in base.layers:",
        "    if isinstance(layer, keras.layers.BatchNormalization):",
        f"        layer.momentum = {stage.batch_norm_momentum}",
    )
    scaling: list[Any] = [planned.stage for planned in plan.by_model]
    rescaled = [f'pixels = keras.layers.Rescaling({step.written}, dtype="float32")(pixels)' for step in scaling]
    base = call(
        f"base = keras.applications.{stage.application}",
        f"input_shape={image.shape}",
        *(f"{name}={value!r}" for name, value in stage.arguments.items()),
        "include_top=False",
        f"weights={_weights(stage)}",
        'pooling="avg"',
    )
    cloned = (
        "weights = base.get_weights()",
        "base = keras.models.clone_model(base, clone_function=undropped)",
        "base.set_weights(weights)",
    )
    body = (
        f'inputs = pixels = keras.Input({image.shape}, dtype="{image.dtype}", name="image")',
        *rescaled,
        base,
        *(cloned if stage.is_undropped else ()),
        *(("base = scaled_for_imagenet(base)",) if stage.is_scaled_by_weights else ()),
        *(() if stage.trainable else ("base.trainable = False",)),
        *(() if stage.batch_norm_momentum is None else momentum),
        f"dense = keras.layers.Dense({_head(target)})",
        "return keras.Model(inputs, dense(base(pixels)))",
    )
    what = "the probabilities of their classes" if target.is_class else flow.target
    made = function("model() -> keras.Model", f"Return a model from images to {what}.", *body)
    needed = ((undropped, stage.is_undropped), (scaled_for_imagenet, stage.is_scaled_by_weights))
    return (*(inspect.getsource(used).rstrip() for used, is_used in needed if is_used), made)


def _head(target: Feature) -> str:
    if target.is_class:
        return 'num_classes(), activation="softmax", dtype="float32", name="probabilities"'
    return f'{math.prod(side or 0 for side in target.shape)}, dtype="float32", name="value"'


def _weights(stage: ImageModel) -> str:
    """Return the name of Keras's weights, or the path of a file."""
    if stage.weights in (None, "imagenet"):
        return "None" if stage.weights is None else quoted(stage.weights)
    return path(stage.weights)


def _network(stage: Model, plan: Plan) -> Functions:
    """Return the function of a custom network, and of the model that it makes."""
    flow = given_to_model(plan.train)
    features = {name: flow.features[name] for name in flow.inputs}
    made = {name: f'keras.Input({of.shape}, dtype="{of.dtype}", name={quoted(name)})' for name, of in features.items()}
    inputs = mapping("inputs = ", {quoted(name): text for name, text in made.items()})
    source = dedent(inspect.getsource(stage.network)).rstrip().removeprefix("@staticmethod\n")  # type: ignore[arg-type]
    body = (
        inputs if len(made) > 1 else f"inputs = {made[flow.inputs[0]]}",
        "return keras.Model(inputs, network(inputs))",
    )
    return source, function("model() -> keras.Model", f"Return a model of {flow.target}.", *body)


def left_out(_stage: NoProfile | Trace, _plan: Plan) -> Functions:
    """Return nothing: a profile is not part of the program."""
    return ()


PART_TEXTS: dict[type, Callable[[Any, Plan], Functions]] = {
    MobileNetV2: image_model,
    KerasApplication: image_model,
    Emulated: emulated,
    Trainer: fit,
    Drain: drain,
    NoProfile: left_out,
    Trace: left_out,
}
"""Functions that return the text of each kind of part."""


def model(stage: Model, plan: Plan) -> Functions:
    """Return the functions of a model."""
    return PART_TEXTS[type(stage)](stage, plan) if stage.network is None else _network(stage, plan)
