"""Text of the optimizer, the loss and the metrics with which a program compiles its model."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from etlrun.eject.numbered import labels_of
from etlrun.eject.sources import text_for
from etlrun.eject.text import call, function, listed, quoted
from etlrun.plan.plan import Plan
from etlrun.stages.balance import balanced, weighted_crossentropy
from etlrun.stages.metrics import is_score, score_and_class
from etlrun.stages.mix import mixed_accuracy, mixed_crossentropy, mixed_top_accuracy
from etlrun.stages.smooth import smoothed_crossentropy
from etlrun.stages.trainer import Trainer

Lines = Sequence[str]

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "sgd": "SGD"}
_ROOM = 90
"""Columns of the metrics in one line."""
_SCHEDULES = "keras.optimizers.schedules"


def optimizer(trainer: Trainer, steps: str) -> tuple[str, Lines]:
    """Return the optimizer of a run of so many steps, which is an expression, and the classes that it needs."""
    rate, classes = _learning_rate(trainer, steps)
    values = {
        **trainer.clipping,
        "gradient_accumulation_steps": trainer.gradient_accumulation_steps,
        "weight_decay": trainer.weight_decay,
        "use_ema": None if trainer.ema_momentum is None else True,
        "ema_momentum": trainer.ema_momentum,
    }
    given = [f"{name}={value}" for name, value in values.items() if value is not None]
    return call(f"keras.optimizers.{_OPTIMIZERS[trainer.optimizer]}", f"learning_rate={rate}", *given), classes


def _learning_rate(trainer: Trainer, steps: str) -> tuple[str, Lines]:
    schedule, rate = trainer.schedule, str(trainer.learning_rate)
    warmup = schedule.warmup_steps
    decay_steps = str(schedule.decay_steps or f"{steps}{f' - {warmup}' if warmup else ''}")
    if schedule.name == "constant":
        return (call(f"{_SCHEDULES}.PolynomialDecay", "0.0", str(warmup), rate) if warmup else rate), ()
    if schedule.name == "cosine":
        rising = [f"warmup_target={rate}", f"warmup_steps={warmup}"] if warmup else []
        first = "0.0" if warmup else rate
        return call(f"{_SCHEDULES}.CosineDecay", first, decay_steps, str(schedule.alpha), *rising), ()
    if schedule.name == "exponential":
        after = call(f"{_SCHEDULES}.ExponentialDecay", rate, decay_steps, str(schedule.decay_rate))
    else:
        after = call(f"{_SCHEDULES}.PiecewiseConstantDecay", *map(str, trainer.pieces))
    return (call("Warmup", after, str(warmup)), [_class("warmup", "Warmup")]) if warmup else (after, ())


def objective(plan: Plan, trainer: Trainer, *, is_class: bool) -> tuple[Lines, Lines]:
    """Return the loss and the metrics of a model, as arguments of `compile`, and the functions that they need."""
    if not is_class:
        return ('loss="mean_squared_error"',), ()
    mixes = plan.spec.load.mixes
    loss, functions = _loss(plan, trainer)
    metrics = [_metric(name, text_for(plan.spec.dataset).class_names, mixes=mixes) for name in trainer.metrics]
    if any(map(is_score, trainer.metrics)):
        functions = [*functions, _class("class_score", "ClassScore")]
    if mixes:
        is_top = [name.startswith("top_") for name in trainer.metrics]
        functions = [*functions, *_sources(*[mixed_top_accuracy] * any(is_top))]
        functions = [*functions, *_sources(*[mixed_accuracy] * ("accuracy" in trainer.metrics))]
    line = f"[{', '.join(metrics)}]"
    return (f"loss={loss}", f"metrics={line if len(line) <= _ROOM else listed(*metrics)}"), functions


def _loss(plan: Plan, trainer: Trainer) -> tuple[str, Lines]:
    """Return the name of the loss and the functions that it needs."""
    given = "".join(f", {name}={value}" for name, value in trainer.loss_arguments.items())
    targets = "labels: tf.Tensor, probabilities: tf.Tensor"
    if plan.spec.load.class_weights == "balanced":
        weights = function(
            "class_weights() -> list[float]",
            "Return the weight of each class.",
            "return balanced(np.bincount(labels_of(TRAIN_SPLIT), minlength=num_classes()).tolist())",
            decorator="@functools.cache",
        )
        weighted = function(
            f"balanced_crossentropy({targets}) -> tf.Tensor",
            "Return the loss of each example, weighted by its class.",
            f"return weighted_crossentropy(labels, probabilities, class_weights(){given})",
        )
        own = _sources(balanced, smoothed_crossentropy, weighted_crossentropy)
        return "balanced_crossentropy", [labels_of(plan.spec.dataset), *own, weights, weighted]
    mixed = _sources(smoothed_crossentropy, mixed_crossentropy)
    if given:
        smoothed = ", whose target is smoothed" if trainer.label_smoothing else ""
        called = "mixed" if plan.spec.load.mixes else "smoothed"
        loss = function(
            f"crossentropy({targets}) -> tf.Tensor",
            f"Return the {'focal ' * ('focal_gamma' in trainer.loss_arguments)}loss of each example{smoothed}.",
            f"return {called}_crossentropy(labels, probabilities{given})",
        )
        return "crossentropy", [*(mixed if plan.spec.load.mixes else _sources(smoothed_crossentropy)), loss]
    return ("mixed_crossentropy", mixed) if plan.spec.load.mixes else ('"sparse_categorical_crossentropy"', ())


def _metric(name: str, classes: str, *, mixes: bool) -> str:
    if is_score(name):
        score, of = score_and_class(name)
        index = [] if of is None else [f"{classes}.index({quoted(of)})"]
        return f"ClassScore({', '.join([quoted(score), *index, f'name={quoted(name)}'])})"
    if name == "accuracy":
        return 'keras.metrics.MeanMetricWrapper(mixed_accuracy, name="accuracy")' if mixes else '"accuracy"'
    k, named = name.split("_")[1], f"name={quoted(name)}"
    if mixes:
        return f"keras.metrics.MeanMetricWrapper(mixed_top_accuracy, {named}, k={k})"
    return f"keras.metrics.SparseTopKCategoricalAccuracy({k}, {named})"


def _sources(*functions: Callable[..., Any]) -> Lines:
    return [inspect.getsource(made).rstrip() for made in functions]


def _class(module: str, name: str) -> str:
    """Return the text of a class of `etlrun.run`, which can't be imported without TensorFlow."""
    text = (Path(__file__).parents[1] / "run" / f"{module}.py").read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    lines = text.splitlines()[nodes[0].lineno - 1 : nodes[0].end_lineno]
    return "\n".join(lines).replace(f"-> {name}:", f'-> "{name}":')
