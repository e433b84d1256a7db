"""Mixing of the images of a batch in pairs: MixUp and CutMix.

The target of a mixed example is float32 (3,): the class of the image, the class of its partner, and the share of the
first. The loss is linear in the targets, so that this says the same as one-hot targets that are mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from etlrun.stages.augment import rounded, within
from etlrun.stages.base import DATA, TRAINING, Factor, Parallelism, Scope, Speed, Stage, single
from etlrun.stages.flow import Feature, Flow, UnfitError
from etlrun.stages.image import require_decoded
from etlrun.stages.lazy import keras, tf
from etlrun.stages.made import Call, Parallel, Partial, PassSeed
from etlrun.system.values import frozen

MIXED = Feature(dtype="float32", shape=(3,))
"""Target of a mixed example: its class, the class of its partner, and the share of the first in [0, 1]."""


def beta(alpha: float, seed: tf.Tensor) -> tf.Tensor:
    """Return a float32 scalar drawn from Beta(alpha, alpha) by a seed of shape (2,)."""
    pair = tf.random.stateless_gamma((2,), seed, alpha)
    return pair[0] / tf.maximum(tf.reduce_sum(pair), 1e-30)


def mixed_up(images: tf.Tensor, partners: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Return `share * images + (1 - share) * partners`; uint8 is rounded."""
    one, other = tf.cast(images, tf.float32), tf.cast(partners, tf.float32)
    return rounded(share * one + (1.0 - share) * other, images.dtype)


def cut_mixed(
    images: tf.Tensor, partners: tf.Tensor, share: tf.Tensor, centre: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return images with a rectangle of their partners, and the share of the pixels that stay.

    Its sides are those of the image by `sqrt(1 - share)`; its `centre` (2,) is in [0, 1), and what lies outside is cut.
    """
    sides = tf.shape(images)[1:3]
    half = tf.cast(tf.cast(sides, tf.float32) * tf.sqrt(1.0 - share), tf.int32) // 2
    middle = tf.cast(tf.cast(sides, tf.float32) * centre, tf.int32)
    start, end = tf.maximum(middle - half, 0), tf.minimum(middle + half, sides)
    stays = 1.0 - tf.cast(tf.reduce_prod(end - start), tf.float32) / tf.cast(tf.reduce_prod(sides), tf.float32)
    return tf.where(within(sides, start, end), partners, images), stays


def smoothed_crossentropy(labels: tf.Tensor, probabilities: tf.Tensor, label_smoothing: float = 0.0) -> tf.Tensor:
    """Return the crossentropy (batch,) of labels (batch,), of which `label_smoothing` is spread over all classes.

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016.
    """
    if not label_smoothing:
        return keras.losses.sparse_categorical_crossentropy(labels, probabilities)
    one_hot = keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(labels, (-1,)), "int32"), probabilities.shape[-1])
    return keras.losses.categorical_crossentropy(one_hot, probabilities, label_smoothing=label_smoothing)


def by_share(measure: Callable[..., tf.Tensor], targets: tf.Tensor, *others: Any) -> tf.Tensor:
    """Return a measure of labels (batch,); of the targets (batch, 3) of mixed images, its mean by their shares."""
    if tuple(targets.shape)[1:] != (3,):
        return measure(targets, *others)
    one, other, share = keras.ops.unstack(targets, 3, axis=-1)
    of_one, of_other = (keras.ops.cast(measure(of, *others), share.dtype) for of in (one, other))
    return share * of_one + (1.0 - share) * of_other


def mixed_crossentropy(targets: tf.Tensor, probabilities: tf.Tensor, label_smoothing: float = 0.0) -> tf.Tensor:
    """Return the crossentropy of each example: of labels (batch,), or of the targets (batch, 3) of mixed images."""
    return by_share(smoothed_crossentropy, targets, probabilities, label_smoothing)


def mixed_accuracy(targets: tf.Tensor, probabilities: tf.Tensor) -> tf.Tensor:
    """Return the accuracy of each example; of a mixed one, the share of the class that is predicted."""
    return by_share(keras.metrics.sparse_categorical_accuracy, targets, probabilities)


def mixed_top_accuracy(targets: tf.Tensor, probabilities: tf.Tensor, k: int) -> tf.Tensor:
    """Return whether the class of each example is among the `k` most probable; of a mixed one, the share of those."""
    return by_share(keras.metrics.sparse_top_k_categorical_accuracy, targets, probabilities, k)


def mix(
    image: tf.Tensor, labels: tf.Tensor, *, mixup_alpha: float, cutmix_alpha: float, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """(batch, height, width, 3), int64 (batch,) -> the same shape and dtype, float32 (batch, 3)."""
    is_float = image.dtype == tf.float32
    numbers = tf.bitcast(image, tf.int32) if is_float else tf.reduce_sum(tf.cast(image, tf.int32), axis=0)
    whole = tf.stack([seed, tf.reduce_sum(tf.cast(numbers, tf.int64))])
    of_share, of_order, of_centre, of_choice = (tf.random.fold_in(whole, salt) for salt in range(1, 5))
    order = tf.argsort(tf.random.stateless_uniform(tf.shape(labels), of_order))
    partners = tf.gather(image, order)
    share = beta(mixup_alpha or cutmix_alpha, of_share)
    centre = tf.random.stateless_uniform((2,), of_centre)
    if mixup_alpha and cutmix_alpha:
        of_cut = beta(cutmix_alpha, of_share)
        image, share = tf.cond(
            tf.random.stateless_uniform((), of_choice, 0, 2, tf.int32) == 0,
            lambda: (mixed_up(image, partners, share), share),
            lambda: cut_mixed(image, partners, of_cut, centre),
        )
    elif mixup_alpha:
        image = mixed_up(image, partners, share)
    else:
        image, share = cut_mixed(image, partners, share, centre)
    targets = [tf.cast(labels, tf.float32), tf.cast(tf.gather(labels, order), tf.float32)]
    return image, tf.stack([*targets, tf.fill(tf.shape(targets[0]), share)], axis=1)


def mixed(
    batch: Mapping[str, tf.Tensor], mix: Callable[..., tuple[tf.Tensor, tf.Tensor]], feature: str, target: str
) -> dict[str, tf.Tensor]:
    """Return a batch by name with the images and the targets that `mix` makes of its own."""
    images, targets = mix(batch[feature], batch[target])
    return {**batch, feature: tf.ensure_shape(images, batch[feature].shape), target: targets}


@frozen
class Mix(Stage):
    """Mixes each image of a batch with another one, by MixUp or by CutMix, or by one of the two at the same odds.

    The share of a batch is drawn from Beta(alpha, alpha), and its partners are in random order, both by the seed of the
    pass and a checksum of the batch.
    Sources: Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; Yun et al., "CutMix: Regularization
    Strategy to Train Strong Classifiers with Localizable Features", ICCV 2019.

    Attributes:
        mixup_alpha: Alpha of MixUp; 0 for none.
        cutmix_alpha: Alpha of CutMix; 0 for none.
        num_parallel_calls: Batches mixed in parallel, as many as `transform.num_parallel_calls`; null for one after the
            other. They stay in order: mixing takes each of them as long.
        target: Name of the class to predict.
    """

    path = "load.mix"
    feature: ClassVar[str] = "image"
    nodes = (single("Map", "ParallelMap"),)
    scope = Scope.EACH
    random = True

    mixup_alpha: Annotated[Factor, DATA, TRAINING]
    cutmix_alpha: Annotated[Factor, DATA, TRAINING]
    num_parallel_calls: Speed[Parallelism]
    target: str

    def flow(self, incoming: Flow) -> Flow:
        remedy = "set load.mixup_alpha=0 and load.cutmix_alpha=0"
        if self.feature not in incoming.features:
            raise UnfitError("images", remedy)
        require_decoded(incoming.feature(self.feature))
        if not incoming.features[incoming.target].is_class:
            raise UnfitError("a class to predict", remedy)
        if len(incoming.targets) > 1 or incoming.weight:
            raise UnfitError("a class as the only target, without weights of examples", remedy)
        return incoming.with_feature(incoming.target, MIXED)

    def call(self) -> Call:
        alphas = {"mixup_alpha": self.mixup_alpha, "cutmix_alpha": self.cutmix_alpha}
        mixing = Partial(mix, {**alphas, "seed": PassSeed()})
        mapped = Partial(mixed, {"mix": mixing, "feature": self.feature, "target": self.target})
        calls = {"num_parallel_calls": Parallel(self.num_parallel_calls), "deterministic": True}
        return Call("map", (mapped,), calls if self.num_parallel_calls is not None else {})
