"""Losses, metrics and layers that a checkpoint of Keras holds; programs contain the text of these classes."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from etlrun.stages import keras_objects
from etlrun.stages.installed import aligned
from etlrun.stages.made import make
from etlrun.stages.mix import mixed_accuracy, mixed_crossentropy, mixed_top_accuracy
from etlrun.stages.plugins import LOSSES, METRICS, PLUGINS
from etlrun.stages.trainer import Trainer
from etlrun.system.errors import WorldError


class ClassScore(keras.metrics.F1Score):  # type: ignore[misc]
    """Precision, recall or F1 of labels (batch,) and probabilities (batch, classes), whose largest is the prediction.

    It is the mean over the classes that occur, as labels or as predictions, which is scikit-learn's macro average. A
    share of no examples is 0.
    """

    def __init__(self, score: str, name: str | None = None, dtype: str | None = None) -> None:
        super().__init__(name=name or score, dtype=dtype)
        self.score = score

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
        occurring = keras.ops.sum(keras.ops.cast(predicted + labelled > 0, "float32"))
        return keras.ops.sum(scores) / keras.ops.maximum(occurring, 1.0)

    def get_config(self) -> dict[str, object]:
        """Return what makes this metric again."""
        return {"name": self.name, "dtype": self.dtype, "score": self.score}


class Crossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Crossentropy of probabilities and labels, or targets of mixed images.

    Each example may be weighted by its class.
    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016.
    """

    def __init__(
        self, class_weights: list[float] | None = None, label_smoothing: float = 0.0, **others: object
    ) -> None:
        super().__init__(**others)
        self.class_weights, self.label_smoothing = class_weights, label_smoothing

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example."""
        losses = mixed_crossentropy(y_true, y_pred, self.label_smoothing)
        if self.class_weights is None:
            return losses
        weights = keras.ops.convert_to_tensor(self.class_weights, "float32")
        return losses * keras.ops.take(weights, keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32"))

    def get_config(self) -> dict[str, object]:
        """Return what makes this loss again."""
        of_labels = {"class_weights": self.class_weights, "label_smoothing": self.label_smoothing}
        return {**super().get_config(), **of_labels}


class Scaled(keras.losses.Loss):  # type: ignore[misc]
    """The loss that `function` gives for targets and predictions in units of `scale`."""

    def __init__(self, function: Callable[..., Any], scale: float = 1.0, **others: Any) -> None:
        super().__init__(**others)
        if isinstance(function, dict):  # of a saved model
            function = keras.saving.deserialize_keras_object(function)
        self.function, self.scale = function, scale

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example."""
        targets, found = aligned(y_true, y_pred), y_pred
        if self.scale != 1.0:
            targets, found = targets / self.scale, found / self.scale
        return self.function(targets, found)

    def get_config(self) -> dict[str, Any]:
        """Return what makes this loss again."""
        function = keras.saving.serialize_keras_object(self.function)
        return {**super().get_config(), "function": function, "scale": self.scale}


class MeanOfHeads(keras.layers.Layer):  # type: ignore[misc]
    """The mean of heads (batch, heads, units): of logits if an activation is behind it, else of numbers.

    The mean of the heads' losses is the loss of their mean and how much they differ, which needs no target: it is added
    in training, times `weight`. For squared errors it is their variance (Krogh and Vedelsby, "Neural network ensembles,
    cross validation, and active learning", NIPS 1995); for crossentropies the mean of their log partition functions
    less that of the mean (Heskes, "Selecting weighting factors in logarithmic opinion pools", NIPS 1998).
    """

    def __init__(self, activation: str | None = None, weight: float = 1.0, **others: object) -> None:
        super().__init__(**others)
        self.activation, self.weight = activation, weight

    def call(self, heads: tf.Tensor, training: bool = False) -> tf.Tensor:  # noqa: FBT001, FBT002 - Keras's own
        """Return the mean (batch, units)."""
        mean = keras.ops.mean(heads, axis=1)
        if training:
            self.add_loss(self.weight * keras.ops.mean(self.spread(heads, mean)))
        return mean

    def spread(self, heads: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """Return by how much the mean of the heads' losses is above the loss of their mean, of each example."""
        if self.activation == "softmax":
            return keras.ops.mean(keras.ops.logsumexp(heads, axis=-1), axis=1) - keras.ops.logsumexp(mean, axis=-1)
        if self.activation == "sigmoid":
            return keras.ops.mean(keras.ops.softplus(heads), axis=1) - keras.ops.softplus(mean)
        return keras.ops.var(heads, axis=1)

    def get_config(self) -> dict[str, object]:
        """Return what makes this layer again."""
        return {**super().get_config(), "activation": self.activation, "weight": self.weight}


class OwnMetric(keras.metrics.Metric):  # type: ignore[misc]
    """The mean over examples of what `function` gives, or with `is_metric` the metric of Keras that it returns."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        is_metric: bool = False,
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if isinstance(function, dict):  # of a saved model
            function = keras.saving.deserialize_keras_object(function)
        self.function, self.is_metric = function, is_metric
        self.metric = function() if is_metric else keras.metrics.Mean(dtype=dtype)

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Add a batch."""
        targets = aligned(y_true, y_pred)
        if self.is_metric:
            self.metric.update_state(targets, y_pred, sample_weight)
        else:
            self.metric.update_state(self.function(targets, y_pred), sample_weight)

    def result(self) -> tf.Tensor:
        """Return its value so far."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Forget all batches."""
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        """Return what makes this metric again."""
        function = keras.saving.serialize_keras_object(self.function)
        given = {"function": function, "is_metric": self.is_metric}
        return {"name": self.name, "dtype": self.dtype, **given}


def own_callbacks(trainer: Trainer) -> list[keras.callbacks.Callback]:
    """Return new callbacks of installed packages; `WorldError` for a function that makes none."""
    made = [make(value) for value in keras_objects.callbacks(trainer)]
    for place, callback in enumerate(made):
        if not isinstance(callback, keras.callbacks.Callback):
            where = f"{trainer.key('callbacks')}[{place}]"
            found = f"{trainer.callbacks[place]}, which returns {callback!r}"
            raise WorldError(where, found, "a callback of Keras", "repair the function")
    return made


def register() -> None:
    """Let Keras load models whose losses and metrics are functions of installed packages."""
    for plugin in PLUGINS.values():
        if plugin.group in (LOSSES, METRICS):
            keras.saving.register_keras_serializable(plugin.package)(plugin.made)


class R2(keras.metrics.R2Score):  # type: ignore[misc]
    """R2 of numbers (batch,) or (batch, numbers), of which `origin` is subtracted: sums in float32 then lose nothing.

    It is the mean over the numbers of an example, and at most 1; 0 if all targets are the same.
    """

    def __init__(self, origin: float = 0.0, name: str = "r2", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.origin = origin

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Add the errors and the squares of a batch."""
        found = keras.ops.cast(y_pred, "float32") - self.origin
        targets = keras.ops.cast(y_true, "float32") - self.origin
        if len(targets.shape) < len(found.shape):
            targets = keras.ops.expand_dims(targets, -1)
        super().update_state(targets + keras.ops.zeros_like(found), found, sample_weight)

    def get_config(self) -> dict[str, object]:
        """Return what makes this metric again."""
        return {"name": self.name, "dtype": self.dtype, "origin": self.origin}


_OF_MIXES = (mixed_crossentropy, mixed_accuracy, mixed_top_accuracy)
for of_saved_models in (ClassScore, Crossentropy, MeanOfHeads, OwnMetric, R2, Scaled, *_OF_MIXES):
    keras.saving.register_keras_serializable("etlrun")(of_saved_models)
