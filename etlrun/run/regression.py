"""Loss and R2 of numbers, as Keras objects that a checkpoint can hold; programs contain the text of these classes."""

from __future__ import annotations

import keras
import tensorflow as tf


class Scaled(keras.losses.Loss):  # type: ignore[misc]
    """A loss of Keras, by its name, of targets (batch,) and predictions (batch, 1) in units of `scale`."""

    def __init__(self, loss: str, scale: float, **others: object) -> None:
        super().__init__(**others)
        self.loss, self.scale = loss, scale

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example."""
        targets = keras.ops.reshape(keras.ops.cast(y_true, y_pred.dtype), (-1, 1))
        return getattr(keras.losses, self.loss)(targets / self.scale, y_pred / self.scale)

    def get_config(self) -> dict[str, object]:
        """Return what makes this loss again."""
        return {**super().get_config(), "loss": self.loss, "scale": self.scale}


class R2(keras.metrics.R2Score):  # type: ignore[misc]
    """R2 of numbers (batch,) or (batch, numbers), of which `origin` is subtracted: sums in float32 then lose nothing.

    It is the mean over the numbers of an example, and at most 1; 0 if all targets are the same.
    """

    def __init__(self, origin: float = 0.0, name: str = "r2", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.origin = origin

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Add the errors and the squares of a batch."""
        found = keras.ops.cast(y_pred, "float32") - self.origin
        targets = keras.ops.cast(y_true, "float32") - self.origin
        if len(targets.shape) < len(found.shape):
            targets = keras.ops.expand_dims(targets, -1)
        super().update_state(targets + keras.ops.zeros_like(found), found, sample_weight)

    def get_config(self) -> dict[str, object]:
        """Return what makes this metric again."""
        return {"name": self.name, "dtype": self.dtype, "origin": self.origin}


for of_saved_models in (Scaled, R2):
    keras.saving.register_keras_serializable("etlrun")(of_saved_models)
