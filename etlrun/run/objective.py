"""Losses and metrics with which a model is compiled, as Keras objects that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from etlrun.run import mixed
from etlrun.run.balanced import BalancedCrossentropy
from etlrun.run.class_score import ClassScore
from etlrun.stages.metrics import is_score, score_and_class
from etlrun.stages.mix import mixed_crossentropy
from etlrun.stages.trainer import Trainer


@keras.saving.register_keras_serializable("etlrun")
class SmoothedCrossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Crossentropy of probabilities and smoothed labels, or targets of mixed images; or the focal one.

    Attributes:
        label_smoothing: Share of each target that is spread over all classes.
        focal_gamma: Exponent of the focal crossentropy; None for the plain one.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        focal_gamma: float | None = None,
        name: str = "smoothed_crossentropy",
        **others: Any,
    ) -> None:
        super().__init__(name=name, **others)
        self.label_smoothing, self.focal_gamma = label_smoothing, focal_gamma

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of each example."""
        return mixed_crossentropy(y_true, y_pred, self.label_smoothing, self.focal_gamma)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this loss again."""
        own = {"label_smoothing": self.label_smoothing, "focal_gamma": self.focal_gamma}
        return {**super().get_config(), **own}


def objective(
    trainer: Trainer,
    *,
    classes: Sequence[str] | None,
    class_weights: Sequence[float] | None = None,
    mixes: bool = False,
) -> dict[str, Any]:
    """Return the loss and the metrics for classes, by their names, or for numbers, as arguments of `compile`."""
    if classes is None:
        return {"loss": "mean_squared_error"}
    loss: Any = "sparse_categorical_crossentropy"
    if class_weights:
        loss = BalancedCrossentropy(class_weights, **trainer.loss_arguments)
    elif trainer.loss_arguments:
        loss = SmoothedCrossentropy(**trainer.loss_arguments)
    elif mixes:
        loss = mixed.LOSS
    return {"loss": loss, "metrics": metrics(trainer, classes, mixes=mixes)}


def metrics(trainer: Trainer, classes: Sequence[str], *, mixes: bool = False) -> list[Any]:
    """Return the metrics of classes, in the order of the config."""
    return [_metric(name, classes, mixes=mixes) for name in trainer.metrics]


def _metric(name: str, classes: Sequence[str], *, mixes: bool) -> Any:
    if is_score(name):
        score, of = score_and_class(name)
        return ClassScore(score, None if of is None else classes.index(of), name=name)
    if name == "accuracy":
        return mixed.accuracy() if mixes else name
    k = int(name.split("_")[1])
    return mixed.top_accuracy(name, k) if mixes else keras.metrics.SparseTopKCategoricalAccuracy(k, name=name)
