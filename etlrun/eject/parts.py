"""Text of the parts of a run that are not pipelines: functions of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from etlrun.eject.loops import drain, emulated, fit
from etlrun.eject.own import sources
from etlrun.eject.text import function, literal, mapping
from etlrun.planning.learned import columns_of
from etlrun.planning.plan import Plan, given_to_model
from etlrun.stages.columns import Output
from etlrun.stages.flow import Flow
from etlrun.stages.keras_objects import base, head, rescaling, unstandardized
from etlrun.stages.made import Made, Text, quoted, user_path
from etlrun.stages.model import Emulated, ImageModel, scaled_for_imagenet, set_momentum, without_dropout
from etlrun.stages.network import Network, embedded, masks, vectors
from etlrun.stages.objectives import loss_of
from etlrun.stages.plugins import source, with_called
from etlrun.stages.trainer import Drain
from etlrun.stages.words import set_vectors, vectors_in

Functions = tuple[str, ...]


def image_model(stage: ImageModel, plan: Plan) -> Functions:
    """Return the function of the model, with the scaling that the pipeline leaves to it."""
    flow, dataset = given_to_model(plan.train), plan.spec.dataset
    image, target = flow.feature(flow.inputs[0]), dataset.examples.features[flow.target]
    scaling: list[Any] = [planned.stage for planned in plan.by_model]
    momentum = stage.batch_norm_momentum
    weights = None if stage.weights is None else user_path(stage.weights)  # or the name of those of Keras
    loss = plan.spec.fit.loss if plan.spec.fit is not None else ""
    dense = f"dense = {literal(head(target, _count(plan, flow.target), loss))}"
    functions = [without_dropout] * stage.is_undropped + [scaled_for_imagenet] * stage.is_scaled_by_weights
    body = (
        f"inputs = pixels = {_input(flow, flow.inputs[0], 'image')}",
        *(f"pixels = {literal(rescaling(Text(step.written)))}(pixels)" for step in scaling),
        f"base = {literal(base(stage, image.shape, weights))}",
        *(f"base = {function.__name__}(base)" for function in functions),
        *(() if stage.trainable else ("base.trainable = False",)),
        *(() if momentum is None else (f"set_momentum(base, {momentum})",)),
        *(
            _ends(plan, flow, "inputs")
            if len(flow.targets) > 1
            else (dense, "return keras.Model(inputs, dense(base(pixels)))")
        ),
    )
    what = "the probabilities of their classes" if target.is_class else " and ".join(flow.targets)
    made = function("model() -> keras.Model", f"Return a model from images to {what}.", *body)
    used: list[Callable[..., Any]] = [*functions, *([] if momentum is None else [set_momentum])]
    return (*sources(dataset, *used), made)


def _ends(plan: Plan, flow: Flow, inputs: str) -> list[str]:
    """Return the lines of the heads of several targets on the features of a base."""
    heads, outputs = ["features = base(pixels)"], {}
    for place, name in enumerate(flow.targets):
        lines, outputs[quoted(name)] = _head(plan, flow, place)
        heads += lines
    return [*heads, mapping("outputs = ", outputs), f"return keras.Model({inputs}, outputs)"]


def _count(plan: Plan, name: str) -> Any:
    """Return the number of classes of a target, as a config has it or as the data have; None if it is no class."""
    of = plan.spec.dataset.examples.features[name]
    return (len(of.classes) or Text("num_classes()")) if of.is_class else None


def _input(flow: Flow, feature: str, name: str) -> str:
    of = flow.features[feature]
    return literal(Made("keras.Input", (of.shape,), {"dtype": of.dtype, "name": name}))


def _network(stage: Network, plan: Plan) -> Functions:
    """Return the functions of a network, and of the model that it makes."""
    flow = given_to_model(plan.train)
    inputs = mapping("inputs = ", {quoted(name): _input(flow, name, name) for name in flow.inputs})
    given = "inputs" if len(flow.inputs) > 1 else f"inputs[{quoted(flow.inputs[0])}]"
    heads, outputs = [], {}
    for place, name in enumerate(() if stage.predicts else flow.targets):
        lines, outputs[quoted(name)] = _head(plan, flow, place)
        heads += lines
    last = "features" if stage.predicts else next(iter(outputs.values())) if len(outputs) == 1 else "outputs"
    made = Made("vectors", (Text("inputs"),), {"embedded": embedded(flow)})
    of_items = [Made("masks", (Text("inputs"),), {"sequences": [*flow.sequences]})] if stage.takes_sequences else []
    body = (
        inputs,
        literal(Made(f"features = {stage.network.__name__}", (made, *of_items), stage.arguments)),
        *heads,
        *([mapping("outputs = ", outputs)] if len(outputs) > 1 else []),
        *_ended(plan, f"keras.Model({given}, {last})"),
    )
    functions = (vectors, *((masks,) if of_items else ()), *with_called(stage.network))
    texts = [source(of).removeprefix("@staticmethod\n") for of in functions]
    loaded = sources(plan.spec.dataset, vectors_in, set_vectors) if _weighted(plan) else ()
    return (
        *loaded,
        *texts,
        function("model() -> keras.Model", f"Return a model of {' and '.join(flow.targets)}.", *body),
    )


def _weighted(plan: Plan) -> list[Output]:
    """Return the outputs whose embeddings begin with vectors of a file."""
    columns = columns_of(plan.spec)
    return [] if columns is None else [output for output in columns.outputs if output.weights is not None]


def _ended(plan: Plan, made: str) -> Iterator[str]:
    """Yield the lines that return the model that an expression makes, with the vectors of files."""
    from etlrun.sources.rows.fitting import arguments_of_vectors  # which imports Arrow

    outputs = _weighted(plan)
    yield f"made = {made}" if outputs else f"return {made}"
    for output in outputs:
        words, given = arguments_of_vectors(output)
        yield literal(Made("loaded = vectors_in", (user_path(str(output.weights)),), words))
        yield literal(Made("set_vectors", (Text("made"),), {"vectors": Text("loaded"), **given}))
    if outputs:
        yield "return made"


def _head(plan: Plan, flow: Flow, place: int) -> tuple[list[str], str]:
    """Return the lines that make the layers of the target at that place, and the expression of its prediction."""
    target, end = flow.features[flow.targets[place]], f"_{place}" if place else ""
    count = len(target.classes) or None if len(flow.targets) > 1 else _count(plan, flow.target)
    loss = loss_of(target, plan.spec.fit.loss if plan.spec.fit is not None else "")
    lines = [f"dense{end} = {literal(head(target, count, loss, place=place, inputs=flow.inputs))}"]
    after = unstandardized(target, place=place, inputs=flow.inputs)
    if after is None:
        return lines, f"dense{end}(features)"
    return [*lines, f"rescaling{end} = {literal(after)}"], f"rescaling{end}(dense{end}(features))"


def parts(plan: Plan) -> Functions:
    """Return the functions of the model and of the loop; a profile is not part of a program."""
    stage, trainer = plan.spec.model, plan.spec.trainer
    if isinstance(trainer, Drain):
        return drain(trainer, plan)
    if isinstance(stage, Emulated):
        return emulated(stage, plan)
    made = _network(stage, plan) if isinstance(stage, Network) else image_model(stage, plan)
    return *made, *fit(trainer, plan)
