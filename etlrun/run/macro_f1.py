"""The F1 score of labels; programs contain the text of this class."""

from __future__ import annotations

import keras
import tensorflow as tf


class MacroF1(keras.metrics.F1Score):  # type: ignore[misc]
    """Keras's F1 score for labels (batch,) and probabilities (batch, classes), whose largest is the prediction.

    It is the mean over the classes that occur, as labels or as predictions, which is scikit-learn's macro average.
    """

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Count the predictions of a batch."""
        classes, labels = y_pred.shape[-1], keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32")
        predicted = keras.ops.one_hot(keras.ops.argmax(y_pred, axis=-1), classes)
        super().update_state(keras.ops.one_hot(labels, classes), predicted, sample_weight)

    def result(self) -> tf.Tensor:
        """Return the score from 0 to 1; 0 before any example."""
        right, wrong = 2.0 * self.true_positives, self.false_positives + self.false_negatives
        occurring = keras.ops.sum(keras.ops.cast(right + wrong > 0, "float32"))
        return keras.ops.sum(right / keras.ops.maximum(right + wrong, 1.0)) / keras.ops.maximum(occurring, 1.0)


keras.saving.register_keras_serializable("etlrun")(MacroF1)
