"""Losses and metrics with which a model is compiled, as Keras objects that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from etlrun.run import mixed
from etlrun.run.balanced import BalancedCrossentropy
from etlrun.run.macro_f1 import MacroF1
from etlrun.stages.mix import mixed_crossentropy
from etlrun.stages.trainer import Trainer


@keras.saving.register_keras_serializable("etlrun")
class SmoothedCrossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Crossentropy of probabilities and smoothed labels, or targets of mixed images.

    Attributes:
        label_smoothing: Share of each target that is spread over all classes.
    """

    def __init__(self, label_smoothing: float, name: str = "smoothed_crossentropy", **others: Any) -> None:
        super().__init__(name=name, **others)
        self.label_smoothing = label_smoothing

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of each example."""
        return mixed_crossentropy(y_true, y_pred, self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this loss again."""
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


def objective(
    trainer: Trainer, *, is_class: bool, class_weights: Sequence[float] | None = None, mixes: bool = False
) -> dict[str, Any]:
    """Return the loss and the metrics for classes or for numbers, as arguments of `compile`."""
    if not is_class:
        return {"loss": "mean_squared_error"}
    loss: Any = "sparse_categorical_crossentropy"
    if class_weights:
        loss = BalancedCrossentropy(class_weights, trainer.label_smoothing)
    elif trainer.label_smoothing:
        loss = SmoothedCrossentropy(trainer.label_smoothing)
    elif mixes:
        loss = mixed.LOSS
    return {"loss": loss, "metrics": metrics(trainer, mixes=mixes)}


def metrics(trainer: Trainer, *, mixes: bool = False) -> list[Any]:
    """Return the metrics of classes, in the order of the config."""
    return [_metric(name, mixes=mixes) for name in trainer.metrics]


def _metric(name: str, *, mixes: bool) -> Any:
    if name == "f1":
        return MacroF1(average="macro", name=name)
    if name == "accuracy":
        return mixed.accuracy() if mixes else name
    k = int(name.split("_")[1])
    return mixed.top_accuracy(name, k) if mixes else keras.metrics.SparseTopKCategoricalAccuracy(k, name=name)
