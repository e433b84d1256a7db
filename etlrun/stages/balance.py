"""Losses weighted by class, for training splits whose classes differ in size: for runs, and as text of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf
else:
    from etlrun.stages.lazy import keras, np


def balanced(labels: np.typing.NDArray[np.int64], num_classes: int) -> list[float]:
    """Return the weight of each class: the inverse of its share of `labels`, so that the mean over them is 1.

    The definition is that of scikit-learn's `class_weight="balanced"`; a class without examples has weight 0.
    """
    counts = np.bincount(labels, minlength=num_classes)
    present = np.count_nonzero(counts)
    return [float(len(labels) / (present * count)) if count else 0.0 for count in counts]


def weighted_crossentropy(labels: tf.Tensor, probabilities: tf.Tensor, class_weights: list[float]) -> tf.Tensor:
    """Return the crossentropy of each example, weighted by the class of its label."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, probabilities)
    weights = keras.ops.convert_to_tensor(class_weights, "float32")
    return losses * keras.ops.take(weights, keras.ops.cast(keras.ops.reshape(labels, (-1,)), "int32"))
