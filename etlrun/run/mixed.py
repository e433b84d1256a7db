"""Loss and metrics of models that train on mixed images, and are validated on plain ones.

A saved model refers to them by name.
"""

from __future__ import annotations

from typing import Any

import keras

from etlrun.stages.mix import mixed_accuracy, mixed_crossentropy, mixed_top_accuracy

_SAVED = keras.saving.register_keras_serializable("etlrun")


def accuracy() -> Any:
    """Return the metric `accuracy`."""
    return keras.metrics.MeanMetricWrapper(_ACCURACY, name="accuracy")


def top_accuracy(name: str, k: int) -> Any:
    """Return the metric of that name: the share of classes among the `k` most probable ones."""
    return keras.metrics.MeanMetricWrapper(_TOP_ACCURACY, name=name, k=k)


LOSS, _ACCURACY, _TOP_ACCURACY = _SAVED(mixed_crossentropy), _SAVED(mixed_accuracy), _SAVED(mixed_top_accuracy)
