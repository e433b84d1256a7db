"""Objects of Keras that a training needs, as values: optimizer, loss, metrics, and layers of a model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from etlrun.stages.flow import Feature, Flow
from etlrun.stages.made import Made, Named, Text
from etlrun.stages.model import ImageModel
from etlrun.stages.objectives import KINDS, Kinds, kind_of, loss_of, metric_of
from etlrun.stages.plugins import CALLBACKS, LOSSES, METRICS, named
from etlrun.stages.trainer import Trainer
from etlrun.system.values import Block

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "sgd": "SGD"}
_SCHEDULES = "keras.optimizers.schedules"


def optimizer(trainer: Trainer, steps: int | Text | None = None) -> Made:
    """Return the optimizer of a run of so many training steps; None if its schedule doesn't depend on them."""
    values = {
        "learning_rate": learning_rate(trainer, steps),
        "global_clipnorm": trainer.global_clipnorm,
        "gradient_accumulation_steps": trainer.gradient_accumulation_steps,
        "weight_decay": trainer.weight_decay,
        "use_ema": None if trainer.ema_momentum is None else True,
        "ema_momentum": trainer.ema_momentum,
    }
    given = {name: value for name, value in values.items() if value is not None}
    return Made(f"keras.optimizers.{_OPTIMIZERS[trainer.optimizer]}", (), given)


def learning_rate(trainer: Trainer, steps: int | Text | None = None) -> float | Made:
    """Return the learning rate, or its schedule over the training steps of a run, which begin with 0."""
    schedule, rate = trainer.schedule, trainer.learning_rate
    warmup, decay_steps = schedule.warmup_steps, schedule.decay_steps or steps or 0
    if warmup and not schedule.decay_steps:
        decay_steps -= warmup
    if schedule.name == "constant":
        return Made(f"{_SCHEDULES}.PolynomialDecay", (0.0, warmup, rate)) if warmup else rate
    rising = {"warmup_target": rate, "warmup_steps": warmup} if warmup else {}
    return Made(f"{_SCHEDULES}.CosineDecay", (0.0 if warmup else rate, decay_steps, schedule.alpha), rising)


def objective(
    trainer: Trainer,
    classes: Sequence[str] | Text | None,
    *,
    target: Feature = Feature(dtype="float32"),  # noqa: B008 - a value
    class_weights: Sequence[float] | Text | None = None,
    mixes: bool = False,
) -> Block:
    """Return the loss and the metrics for classes, by their names, or for numbers, as arguments of `compile`."""
    kind, own = _kind(target, classes), {of.name: of for of in trainer.own_functions if of.group == METRICS}
    known = [name for name in trainer.metrics if name not in own]
    metrics = [of.made(name, target, classes, mixes=mixes) for name in known if (of := metric_of(name, kind))]
    for plugin in own.values():
        given = {} if plugin.made.__code__.co_argcount else {"is_metric": True}
        metrics.append(
            Made("etlrun.run.custom_objects.OwnMetric", (Named(plugin.path),), {**given, "name": plugin.name})
        )
    loss = _loss(trainer, kind, target, class_weights, mixes=mixes)
    return {"loss": loss, **({"metrics": metrics} if metrics or kind != "number" else {})}


def callbacks(trainer: Trainer) -> list[Made]:
    """Return the callbacks of installed packages."""
    own = [of for of in trainer.own_functions if of.group == CALLBACKS]
    return [Made(of.path) for of in own]


def _loss(trainer: Trainer, kind: Kinds, target: Feature, class_weights: Any, *, mixes: bool) -> Any:
    objects = "etlrun.run.custom_objects"
    smoothing: Block = {"label_smoothing": trainer.label_smoothing} if trainer.label_smoothing else {}
    if (own := named(LOSSES, trainer.loss)) is not None:
        return Made(f"{objects}.Scaled", (Named(own.path),), {} if target.std is None else {"scale": target.std})
    if kind == "number":
        loss = loss_of(target, trainer.loss)
        return loss if target.std is None else Made(f"{objects}.Scaled", (Named(f"keras.losses.{loss}"), target.std))
    if kind != "class":
        return Made("keras.losses.BinaryCrossentropy", (), smoothing)
    if class_weights or smoothing:
        weights = {"class_weights": class_weights} if class_weights else {}
        return Made(f"{objects}.Crossentropy", (), {**weights, **smoothing})
    return Named("etlrun.stages.mix.mixed_crossentropy") if mixes else "sparse_categorical_crossentropy"


def _kind(target: Feature, classes: Any) -> Kinds:
    """Return the kind of a target, of which mixed images of `classes` are none any more."""
    is_mixed = classes is not None and not target.is_labels and not target.is_binary
    return "class" if is_mixed else kind_of(target)


def objectives(
    trainer: Trainer, flow: Flow, classes: Sequence[str] | Text | None, weights: Mapping[str, float], **others: Any
) -> Block:
    """Return the loss and the metrics of the targets of a model, as arguments of `compile`.

    `weights` are those of the losses of several targets, by name. Rows that have weights have them in the metrics, too.
    """
    if len(flow.targets) == 1:
        found = objective(trainer, classes, target=flow.features[flow.target], **others)
    else:
        targets = {name: flow.features[name] for name in sorted(flow.targets)}
        each = {name: objective(trainer, of.classes or None, target=of) for name, of in targets.items()}
        found = {
            "loss": {name: of["loss"] for name, of in each.items()},
            "metrics": {name: of.get("metrics", []) for name, of in each.items()},
            **({"loss_weights": {name: weights[name] for name in each}} if {*weights.values()} != {1.0} else {}),
        }
    return {"weighted_metrics" if flow.weight and key == "metrics" else key: of for key, of in found.items()}


def base(stage: ImageModel, shape: tuple[int | None, ...], weights: str | Text | None) -> Made:
    """Return the base of an image model, for images of that shape; `weights` are a name of Keras's or a path."""
    keywords = {"input_shape": shape, **stage.arguments, "include_top": False, "weights": weights, "pooling": "avg"}
    return Made(f"keras.applications.{stage.title}", (), keywords)


def heads(
    flow: Flow, num_classes: int | Text | None, num_heads: int = 1, weights: Mapping[str, float] | None = None
) -> dict[str, list[Made]]:
    """Return the layers from features (batch, features) to the prediction of each target, by its name.

    The first one is dense: to the probabilities of `num_classes`, if there is one target, or of the classes of a
    target, or to numbers. Of two classes that are binary it gives the probability of the second one, and of labels that
    of each. Behind numbers that are standardized is a layer that makes them those of the target. Layers have the names
    of no inputs. Of features (batch, heads, features) of several heads each has a dense layer of its own, and their
    mean is behind it. `weights` are those of the losses of several targets.
    """
    found = {}
    for place, name in enumerate(flow.targets):
        target = flow.features[name]
        count = num_classes if len(flow.targets) == 1 else len(target.classes) or None
        kind = KINDS[_kind(target, count)]
        units: Any = math.prod(side or 0 for side in target.shape)
        if count is not None and not target.is_labels:
            units = 1 if target.is_binary else count
        activation: Block = {} if kind.activation is None else {"activation": kind.activation}
        label = {"name": _placed(kind.layer if target.std is None else "standardized", place, flow.inputs)}
        if num_heads == 1:
            dense = Made("keras.layers.Dense", (units,), {**activation, "dtype": "float32", **label})
            found[name] = [dense]
        else:
            weight = (weights or {}).get(name, 1.0)
            found[name] = _several(num_heads, units, activation, weight, label, _placed("heads", place, flow.inputs))
        if target.std is not None:
            keywords = {"dtype": "float32", "name": _placed("value", place, flow.inputs)}
            found[name].append(Made("keras.layers.Rescaling", (target.std, target.mean), keywords))
    return found


def _several(
    num_heads: int, units: Any, activation: Mapping[str, Any], weight: float, label: Mapping[str, str], name: str
) -> list[Made]:
    """Return the layers of several heads: a dense one of each, their mean, and the activation behind it."""
    dense = {"output_shape": (num_heads, units), "bias_axes": "kc", "dtype": "float32", "name": name}
    mean = {**activation, **({} if weight == 1.0 else {"weight": weight}), "dtype": "float32"}
    found = [
        Made("keras.layers.EinsumDense", ("bkd,kdc->bkc",), dense),
        Made("etlrun.run.custom_objects.MeanOfHeads", (), mean if activation else {**mean, **label}),
    ]
    last = Made("keras.layers.Activation", tuple(activation.values()), {"dtype": "float32", **label})
    return [*found, last] if activation else found


def _placed(name: str, place: int, inputs: Sequence[str]) -> str:
    """Return the name of a layer of the target at that place; names of targets may be none of layers."""
    found = f"{name}_{place}" if place else name
    while found in inputs:
        found += "_"
    return found
