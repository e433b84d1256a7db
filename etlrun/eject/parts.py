"""Text of the parts of a run that are not pipelines: functions of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etlrun.eject.loops import drain, emulated, fit
from etlrun.eject.own import sources
from etlrun.eject.text import function, literal, mapping, path
from etlrun.plan.plan import Plan, given_to_model
from etlrun.stages.applications import scaled_for_imagenet, set_momentum, without_dropout
from etlrun.stages.code import source
from etlrun.stages.flow import Flow
from etlrun.stages.keras_objects import base, head, rescaling
from etlrun.stages.made import Made, Text, quoted
from etlrun.stages.measure import NoProfile, Trace
from etlrun.stages.model import Emulated, ImageModel, KerasApplication, MobileNetV2, Model
from etlrun.stages.trainer import Drain, Trainer

Functions = tuple[str, ...]


def image_model(stage: ImageModel, plan: Plan) -> Functions:
    """Return the function of the model, with the scaling that the pipeline leaves to it."""
    flow, dataset = given_to_model(plan.train), plan.spec.dataset
    image, target = flow.feature(flow.inputs[0]), dataset.examples.features[flow.target]
    scaling: list[Any] = [planned.stage for planned in plan.by_model]
    momentum = stage.batch_norm_momentum
    functions = [without_dropout] * stage.is_undropped + [scaled_for_imagenet] * stage.is_scaled_by_weights
    body = (
        f"inputs = pixels = {_input(flow, flow.inputs[0], 'image')}",
        *(f"pixels = {literal(rescaling(Text(step.written)))}(pixels)" for step in scaling),
        f"base = {literal(base(stage, image.shape, _weights(stage)))}",
        *(f"base = {function.__name__}(base)" for function in functions),
        *(() if stage.trainable else ("base.trainable = False",)),
        *(() if momentum is None else (f"set_momentum(base, {momentum})",)),
        f"dense = {literal(head(target, Text('num_classes()') if target.is_class else None))}",
        "return keras.Model(inputs, dense(base(pixels)))",
    )
    what = "the probabilities of their classes" if target.is_class else flow.target
    made = function("model() -> keras.Model", f"Return a model from images to {what}.", *body)
    used: list[Callable[..., Any]] = [*functions, *([] if momentum is None else [set_momentum])]
    return (*sources(dataset, *used), made)


def _input(flow: Flow, feature: str, name: str) -> str:
    of = flow.features[feature]
    return literal(Made("keras.Input", (of.shape,), {"dtype": of.dtype, "name": name}))


def _weights(stage: ImageModel) -> str | Text | None:
    """Return the name of Keras's weights, or the expression of the path of a file."""
    return stage.weights if stage.weights in (None, "imagenet") else Text(path(stage.weights))


def _network(stage: Model, plan: Plan) -> Functions:
    """Return the function of a custom network, and of the model that it makes."""
    flow = given_to_model(plan.train)
    made = {name: _input(flow, name, name) for name in flow.inputs}
    inputs = mapping("inputs = ", {quoted(name): text for name, text in made.items()})
    source_of_network = source(stage.network).removeprefix("@staticmethod\n")  # type: ignore[arg-type]
    body = (
        inputs if len(made) > 1 else f"inputs = {made[flow.inputs[0]]}",
        "return keras.Model(inputs, network(inputs))",
    )
    return source_of_network, function("model() -> keras.Model", f"Return a model of {flow.target}.", *body)


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
