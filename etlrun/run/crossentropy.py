"""Crossentropy of classes, as a Keras object that a checkpoint can hold; programs contain the text of this class."""

from __future__ import annotations

import keras
import tensorflow as tf

from etlrun.stages.mix import mixed_accuracy, mixed_crossentropy, mixed_top_accuracy


class Crossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Crossentropy of probabilities and labels, or targets of mixed images; or Keras's focal one.

    Each example may be weighted by its class, and a share `label_smoothing` of each target is spread over all classes.
    """

    def __init__(
        self,
        class_weights: list[float] | None = None,
        label_smoothing: float = 0.0,
        focal_gamma: float | None = None,
        **others: object,
    ) -> None:
        super().__init__(**others)
        self.class_weights, self.label_smoothing, self.focal_gamma = class_weights, label_smoothing, focal_gamma

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example."""
        losses = mixed_crossentropy(y_true, y_pred, self.label_smoothing, self.focal_gamma)
        if self.class_weights is None:
            return losses
        weights = keras.ops.convert_to_tensor(self.class_weights, "float32")
        return losses * keras.ops.take(weights, keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32"))

    def get_config(self) -> dict[str, object]:
        """Return what makes this loss again."""
        smoothing = {"label_smoothing": self.label_smoothing, "focal_gamma": self.focal_gamma}
        return {**super().get_config(), "class_weights": self.class_weights, **smoothing}


for of_saved_models in (Crossentropy, mixed_crossentropy, mixed_accuracy, mixed_top_accuracy):
    keras.saving.register_keras_serializable("etlrun")(of_saved_models)
