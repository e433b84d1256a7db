"""Losses weighted by class, for training splits whose classes differ in size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt


def balanced(labels: npt.NDArray[np.int64], num_classes: int) -> list[float]:
    """Return the weight of each class: the inverse of its share of `labels`, so that the mean over them is 1.

    The definition is that of scikit-learn's `class_weight="balanced"`; a class without examples has weight 0.
    """
    counts = np.bincount(labels, minlength=num_classes)
    present = np.count_nonzero(counts)
    return [float(len(labels) / (present * count)) if count else 0.0 for count in counts]


@keras.saving.register_keras_serializable("etlrun")
class BalancedCrossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Sparse categorical crossentropy of probabilities, weighted by the class of the label.

    Attributes:
        class_weights: Weight of each class.
    """

    def __init__(self, class_weights: Sequence[float], name: str = "balanced_crossentropy", **others: Any) -> None:
        super().__init__(name=name, **others)
        self.class_weights = [*class_weights]

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the weighted loss of each example."""
        losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
        weights = keras.ops.convert_to_tensor(self.class_weights, "float32")
        return losses * keras.ops.take(weights, keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32"))

    def get_config(self) -> dict[str, Any]:
        """Return what makes this loss again."""
        return {**super().get_config(), "class_weights": self.class_weights}
