"""Loss and metrics of models that train on mixed images, and are validated on plain ones."""

from __future__ import annotations

from typing import Any

import keras

from etlrun.stages.mix import mixed_accuracy, mixed_crossentropy

_SAVED = keras.saving.register_keras_serializable("etlrun")


def objective() -> dict[str, Any]:
    """Return the loss and the metrics with which a model is compiled; a saved model refers to them by name."""
    return {"loss": _LOSS, "metrics": [keras.metrics.MeanMetricWrapper(_ACCURACY, name="accuracy")]}


_LOSS, _ACCURACY = _SAVED(mixed_crossentropy), _SAVED(mixed_accuracy)
