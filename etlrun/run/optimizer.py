"""The optimizer of a run: Keras's, with its schedule of the learning rate and with averages of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from etlrun.run.warmup import Warmup
from etlrun.stages.trainer import Trainer


def optimizer(trainer: Trainer, steps: int | None = None) -> Any:
    """Return the optimizer of a run of so many training steps; None if its schedule doesn't depend on them."""
    given: dict[str, Any] = {"learning_rate": learning_rate(trainer, steps), **trainer.clipping}
    if trainer.gradient_accumulation_steps is not None:
        given["gradient_accumulation_steps"] = trainer.gradient_accumulation_steps
    if trainer.weight_decay is not None:
        given["weight_decay"] = trainer.weight_decay
    if trainer.ema_momentum is not None:
        given |= {"use_ema": True, "ema_momentum": trainer.ema_momentum}
    return keras.optimizers.get({"class_name": trainer.optimizer, "config": given})


def learning_rate(trainer: Trainer, steps: int | None = None) -> Any:
    """Return the learning rate, or its schedule over the training steps of a run, which begin with 0."""
    schedule, rate, schedules = trainer.schedule, trainer.learning_rate, keras.optimizers.schedules
    warmup = schedule.warmup_steps
    decay_steps = schedule.decay_steps or (steps or 0) - warmup
    if schedule.name == "cosine":
        if not warmup:
            return schedules.CosineDecay(rate, decay_steps, schedule.alpha)
        return schedules.CosineDecay(0.0, decay_steps, schedule.alpha, warmup_target=rate, warmup_steps=warmup)
    if schedule.name == "constant":
        return schedules.PolynomialDecay(0.0, warmup, rate) if warmup else rate
    after = (
        schedules.ExponentialDecay(rate, decay_steps, schedule.decay_rate)
        if schedule.name == "exponential"
        else schedules.PiecewiseConstantDecay(*trainer.pieces)
    )
    return Warmup(after, warmup) if warmup else after


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
