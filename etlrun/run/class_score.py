"""Precision, recall and F1 of labels; programs contain the text of this class."""

from __future__ import annotations

import keras
import tensorflow as tf


class ClassScore(keras.metrics.F1Score):  # type: ignore[misc]
    """Precision, recall or F1 of labels (batch,) and probabilities (batch, classes), whose largest is the prediction.

    It is that of the class `index`, or without one the mean over the classes that occur, as labels or as predictions,
    which is scikit-learn's macro average. A share of no examples is 0.
    """

    def __init__(self, score: str, index: int | None = None, name: str | None = None, dtype: str | None = None) -> None:
        super().__init__(name=name or score, dtype=dtype)
        self.score, self.index = score, index

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Count the predictions of a batch."""
        classes, labels = y_pred.shape[-1], keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32")
        predicted = keras.ops.one_hot(keras.ops.argmax(y_pred, axis=-1), classes)
        super().update_state(keras.ops.one_hot(labels, classes), predicted, sample_weight)

    def result(self) -> tf.Tensor:
        """Return the score from 0 to 1; 0 before any example."""
        right = self.true_positives
        predicted, labelled = right + self.false_positives, right + self.false_negatives
        over, under = {
            "precision": (right, predicted),
            "recall": (right, labelled),
            "f1": (2.0 * right, predicted + labelled),
        }[self.score]
        scores = over / keras.ops.maximum(under, 1.0)
        if self.index is not None:
            return scores[self.index]
        occurring = keras.ops.sum(keras.ops.cast(predicted + labelled > 0, "float32"))
        return keras.ops.sum(scores) / keras.ops.maximum(occurring, 1.0)

    def get_config(self) -> dict[str, object]:
        """Return what makes this metric again."""
        return {"name": self.name, "dtype": self.dtype, "score": self.score, "index": self.index}


keras.saving.register_keras_serializable("etlrun")(ClassScore)
