"""Loss of labels, which are smoothed: a share of each target is spread over all classes; or which are focused.

Runs call this function; programs contain its text.
"""

from __future__ import annotations

from etlrun.stages.lazy import keras, tf


def smoothed_crossentropy(
    labels: tf.Tensor, probabilities: tf.Tensor, label_smoothing: float = 0.0, focal_gamma: float | None = None
) -> tf.Tensor:
    """Return the crossentropy (batch,) of labels (batch,), of which `label_smoothing` is spread over all classes.

    With `focal_gamma` it is Keras's focal crossentropy.
    Sources: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016; Lin et al., "Focal
    Loss for Dense Object Detection", ICCV 2017.
    """
    if not label_smoothing and focal_gamma is None:
        return keras.losses.sparse_categorical_crossentropy(labels, probabilities)
    one_hot = keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(labels, (-1,)), "int32"), probabilities.shape[-1])
    if focal_gamma is None:
        return keras.losses.categorical_crossentropy(one_hot, probabilities, label_smoothing=label_smoothing)
    return keras.losses.categorical_focal_crossentropy(
        one_hot, probabilities, gamma=focal_gamma, label_smoothing=label_smoothing
    )
