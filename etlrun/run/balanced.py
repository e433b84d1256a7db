"""Loss weighted by class, as a Keras object that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from etlrun.stages.balance import weighted_crossentropy


@keras.saving.register_keras_serializable("etlrun")
class BalancedCrossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Sparse categorical crossentropy of probabilities, weighted by the class of the label.

    Attributes:
        class_weights: Weight of each class.
        label_smoothing: Share of each target that is spread over all classes.
        focal_gamma: Exponent of the focal crossentropy; None for the plain one.
    """

    def __init__(
        self,
        class_weights: Sequence[float],
        label_smoothing: float = 0.0,
        focal_gamma: float | None = None,
        name: str = "balanced_crossentropy",
        **others: Any,
    ) -> None:
        super().__init__(name=name, **others)
        self.class_weights, self.label_smoothing, self.focal_gamma = [*class_weights], label_smoothing, focal_gamma

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the weighted loss of each example."""
        return weighted_crossentropy(y_true, y_pred, self.class_weights, self.label_smoothing, self.focal_gamma)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this loss again."""
        own = {"class_weights": self.class_weights, "label_smoothing": self.label_smoothing}
        return {**super().get_config(), **own, "focal_gamma": self.focal_gamma}
