"""Averages of the weights, which an optimizer may keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras


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
