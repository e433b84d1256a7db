"""Losses, metrics and callbacks of installed packages, as objects of Keras; programs contain these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from etlrun.stages import keras_objects
from etlrun.stages.functions import aligned
from etlrun.stages.made import make
from etlrun.stages.plugins import LOSSES, METRICS, PLUGINS
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError


class OwnLoss(keras.losses.Loss):  # type: ignore[misc]
    """The loss that `function` gives for targets and predictions in units of `scale`, and for its `arguments`."""

    def __init__(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], scale: float = 1.0, **others: Any
    ) -> None:
        super().__init__(**others)
        self.function, self.arguments, self.scale = function, dict(arguments), scale

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example."""
        targets, found = aligned(y_true, y_pred), y_pred
        if self.scale != 1.0:
            targets, found = targets / self.scale, found / self.scale
        return self.function(targets, found, **self.arguments)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this loss again."""
        function = keras.saving.serialize_keras_object(self.function)
        return {**super().get_config(), "function": function, "arguments": self.arguments, "scale": self.scale}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> OwnLoss:
        """Return the loss of a config."""
        return cls(**{**config, "function": keras.saving.deserialize_keras_object(config["function"])})


class OwnMetric(keras.metrics.Metric):  # type: ignore[misc]
    """The mean over examples of what `function` gives, or with `is_metric` the metric of Keras that it returns."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        *,
        is_metric: bool = False,
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.function, self.arguments, self.is_metric = function, dict(arguments), is_metric
        self.metric = function(**arguments) if is_metric else keras.metrics.Mean(dtype=dtype)

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Add a batch."""
        targets = aligned(y_true, y_pred)
        if self.is_metric:
            self.metric.update_state(targets, y_pred, sample_weight)
        else:
            self.metric.update_state(self.function(targets, y_pred, **self.arguments), sample_weight)

    def result(self) -> tf.Tensor:
        """Return its value so far."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Forget all batches."""
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        """Return what makes this metric again."""
        function = keras.saving.serialize_keras_object(self.function)
        given = {"function": function, "arguments": self.arguments, "is_metric": self.is_metric}
        return {"name": self.name, "dtype": self.dtype, **given}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> OwnMetric:
        """Return the metric of a config."""
        return cls(**{**config, "function": keras.saving.deserialize_keras_object(config["function"])})


def own_callbacks(trainer: Trainer) -> list[keras.callbacks.Callback]:
    """Return new callbacks of installed packages; `WorldError` for a function that makes none."""
    made = [make(value) for value in keras_objects.callbacks(trainer)]
    for place, callback in enumerate(made):
        if not isinstance(callback, keras.callbacks.Callback):
            where = f"{trainer.key('callbacks')}[{place}]"
            found = f"{trainer.callbacks[place]}, which returns {callback!r}"
            raise WorldError(where=where, found=found, expected="a callback of Keras", remedy="repair the function")
    return made


def register() -> None:
    """Let Keras load models whose losses and metrics are functions of installed packages."""
    for plugin in PLUGINS.values():
        if plugin.group in (LOSSES, METRICS):
            keras.saving.register_keras_serializable(plugin.package)(plugin.made)


for of_saved_models in (OwnLoss, OwnMetric):
    keras.saving.register_keras_serializable("etlrun")(of_saved_models)
