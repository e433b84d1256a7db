"""Objects of Keras that a training needs, as values: optimizer, loss, metrics, and layers of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from etlrun.stages.flow import Feature
from etlrun.stages.made import Made, Named, Text
from etlrun.stages.metrics import is_score, score_and_class
from etlrun.stages.model import ImageModel
from etlrun.stages.trainer import Trainer

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "sgd": "SGD"}
_SCHEDULES = "keras.optimizers.schedules"
_MIX = "etlrun.stages.mix"


def optimizer(trainer: Trainer, steps: int | Text | None = None) -> Made:
    """Return the optimizer of a run of so many training steps; None if its schedule doesn't depend on them."""
    values = {
        "learning_rate": learning_rate(trainer, steps),
        **trainer.clipping,
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
    match schedule.name:
        case "constant":
            return Made(f"{_SCHEDULES}.PolynomialDecay", (0.0, warmup, rate)) if warmup else rate
        case "cosine":
            rising = {"warmup_target": rate, "warmup_steps": warmup} if warmup else {}
            first = 0.0 if warmup else rate
            return Made(f"{_SCHEDULES}.CosineDecay", (first, decay_steps, schedule.alpha), rising)
        case "exponential":
            after = Made(f"{_SCHEDULES}.ExponentialDecay", (rate, decay_steps, schedule.decay_rate))
        case "piecewise":
            after = Made(f"{_SCHEDULES}.PiecewiseConstantDecay", trainer.pieces)
    return Made("etlrun.run.warmup.Warmup", (after, warmup)) if warmup else after


def objective(
    trainer: Trainer,
    classes: Sequence[str] | Text | None,
    *,
    class_weights: Sequence[float] | Text | None = None,
    mixes: bool = False,
) -> dict[str, Any]:
    """Return the loss and the metrics for classes, by their names, or for numbers, as arguments of `compile`."""
    if classes is None:
        return {"loss": "mean_squared_error"}
    loss: Any = Named(f"{_MIX}.mixed_crossentropy") if mixes else "sparse_categorical_crossentropy"
    if class_weights or trainer.loss_arguments:
        weights = {"class_weights": class_weights} if class_weights else {}
        loss = Made("etlrun.run.crossentropy.Crossentropy", (), {**weights, **trainer.loss_arguments})
    return {"loss": loss, "metrics": [_metric(name, classes, mixes=mixes) for name in trainer.metrics]}


def _metric(name: str, classes: Sequence[str] | Text, *, mixes: bool) -> Any:
    if is_score(name):
        score, of = score_and_class(name)
        return Made("etlrun.run.class_score.ClassScore", (score, *([classes.index(of)] if of else [])), {"name": name})
    if name == "accuracy":
        return _mixed("mixed_accuracy", name=name) if mixes else name
    k = int(name.split("_")[1])
    if mixes:
        return _mixed("mixed_top_accuracy", name=name, k=k)
    return Made("keras.metrics.SparseTopKCategoricalAccuracy", (k,), {"name": name})


def _mixed(function: str, **keywords: Any) -> Made:
    return Made("keras.metrics.MeanMetricWrapper", (Named(f"{_MIX}.{function}"),), keywords)


def base(stage: ImageModel, shape: tuple[int | None, ...], weights: str | Text | None) -> Made:
    """Return the base of an image model, for images of that shape; `weights` are a name of Keras's or a path."""
    keywords = {"input_shape": shape, **stage.arguments, "include_top": False, "weights": weights, "pooling": "avg"}
    return Made(f"keras.applications.{stage.application}", (), keywords)


def rescaling(*factors: float | Text) -> Made:
    """Return the layer that multiplies pixels by the first number and adds the second one."""
    return Made("keras.layers.Rescaling", factors, {"dtype": "float32"})


def head(target: Feature, num_classes: int | Text | None) -> Made:
    """Return the last layer: to the probabilities of so many classes, or without classes to the numbers of `target`."""
    if num_classes is None:
        numbers = math.prod(side or 0 for side in target.shape)
        return Made("keras.layers.Dense", (numbers,), {"dtype": "float32", "name": "value"})
    keywords = {"activation": "softmax", "dtype": "float32", "name": "probabilities"}
    return Made("keras.layers.Dense", (num_classes,), keywords)
