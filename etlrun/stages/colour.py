"""Steps that change the colours of an image, as `tf.image` does: of pixels in [0, 255], uint8 or float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from etlrun.stages.augment import clipped, drawn, require_colours, rounded
from etlrun.stages.base import DATA, Expected, Factor, Fraction, Number, PositiveNumber, Share
from etlrun.stages.flow import Faults, Feature
from etlrun.stages.lazy import tf
from etlrun.stages.rescaling import Rescaling
from etlrun.stages.step import Step

Means = Annotated[tuple[Number, Number, Number], Expected("[red, green, blue], three finite numbers")]
Deviations = Annotated[
    tuple[PositiveNumber, PositiveNumber, PositiveNumber], Expected("[red, green, blue], three positive numbers")
]


def brightened(image: tf.Tensor, delta: tf.Tensor) -> tf.Tensor:
    """Add `delta`, as a share of 255, to pixels in [0, 255]; same shape and dtype, clipped."""
    return clipped(tf.cast(image, tf.float32) + 255.0 * delta, image.dtype)


def contrasted(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scale the distance of pixels in [0, 255] from the mean of their channel; same shape and dtype, clipped.

    The mean is a sum of float64, whose result does not depend on the number of threads. Whole rows are added, since
    TensorFlow is several times as slow along an axis of three channels.
    """
    sides = tf.shape(image)
    rows = tf.reshape(tf.cast(image, tf.float32), (sides[0], -1))
    total = tf.reduce_sum(tf.reshape(tf.reduce_sum(tf.cast(rows, tf.float64), axis=0), (-1, 3)), axis=0)
    mean = tf.cast(total / tf.cast(sides[0] * sides[1], tf.float64), tf.float32)
    pixels = tf.reshape(rows * factor + tf.tile(mean - mean * factor, sides[1:2]), sides)
    return tf.ensure_shape(clipped(pixels, image.dtype), image.shape)


def saturated(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scale the saturation (HSV) of pixels in [0, 255]; same shape and dtype, clipped."""
    pixels = tf.image.adjust_saturation(tf.cast(image, tf.float32), factor)
    return clipped(pixels, image.dtype)


def recoloured(image: tf.Tensor, delta: tf.Tensor) -> tf.Tensor:
    """Turn the hue (HSV) of pixels in [0, 255] by `delta`, as a share of the circle; same shape and dtype."""
    pixels = tf.image.adjust_hue(tf.cast(image, tf.float32), delta)
    return clipped(pixels, image.dtype)


def greyed(image: tf.Tensor) -> tf.Tensor:
    """Return an image in three equal channels of its brightness; same shape and dtype."""
    weights = tf.constant([[0.2989] * 3, [0.587] * 3, [0.114] * 3])
    pixels = tf.matmul(tf.reshape(tf.cast(image, tf.float32), (-1, 3)), weights)
    return tf.ensure_shape(tf.reshape(rounded(pixels, image.dtype), tf.shape(image)), image.shape)


class _Colour(Step):
    """Base of the random steps: same shape, dtype and range."""

    random = True

    def gives(self, incoming: Feature) -> Feature:
        require_colours(incoming)
        return incoming


@dataclass(frozen=True, kw_only=True)
class RandomBrightness(_Colour):
    """Adds one number to all pixels of an image, as `tf.image.random_brightness` does.

    Attributes:
        max_delta: Largest change up or down, as a share of the range 255.
    """

    path = "transform.random_brightness"
    calls = (drawn, clipped, brightened)

    max_delta: Annotated[Fraction, DATA]

    @staticmethod
    def op(image: tf.Tensor, *, max_delta: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a change in [-max_delta, max_delta] * 255."""
        return brightened(image, max_delta * (2 * drawn(image, seed, "random_brightness", 1)[0] - 1))


@dataclass(frozen=True, kw_only=True)
class _ByFactor(_Colour):
    """Base of the steps that draw a factor between two ends.

    Attributes:
        lower: Smallest factor; 1 changes nothing.
        upper: Largest factor.
    """

    lower: Annotated[Factor, DATA]
    upper: Annotated[Factor, DATA]

    def rules(self) -> Faults:
        if self.lower > self.upper:
            yield "lower", str(self.lower), f"at most upper, which is {self.upper}", "swap the two"


@dataclass(frozen=True, kw_only=True)
class RandomContrast(_ByFactor):
    """Scales the distance of each pixel from the mean of its channel, as `tf.image.random_contrast` does."""

    path = "transform.random_contrast"
    calls = (drawn, clipped, contrasted)

    @staticmethod
    def op(image: tf.Tensor, *, lower: float, upper: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a factor in [lower, upper]."""
        return contrasted(image, lower + (upper - lower) * drawn(image, seed, "random_contrast", 1)[0])


@dataclass(frozen=True, kw_only=True)
class RandomSaturation(_ByFactor):
    """Scales the saturation of an image in HSV, as `tf.image.random_saturation` does.

    Attributes:
        lower: Smallest factor; 0 is grey, 1 changes nothing.
    """

    path = "transform.random_saturation"
    calls = (drawn, clipped, saturated)

    @staticmethod
    def op(image: tf.Tensor, *, lower: float, upper: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a factor in [lower, upper]."""
        return saturated(image, lower + (upper - lower) * drawn(image, seed, "random_saturation", 1)[0])


@dataclass(frozen=True, kw_only=True)
class RandomHue(_Colour):
    """Turns the hue of an image in HSV, as `tf.image.random_hue` does.

    Attributes:
        max_delta: Largest turn in both directions, as a share of the colour circle.
    """

    path = "transform.random_hue"
    calls = (drawn, clipped, recoloured)

    max_delta: Annotated[float, Field(ge=0, le=0.5), DATA]

    @staticmethod
    def op(image: tf.Tensor, *, max_delta: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a turn in [-max_delta, max_delta]."""
        return recoloured(image, max_delta * (2 * drawn(image, seed, "random_hue", 1)[0] - 1))


@dataclass(frozen=True, kw_only=True)
class RandomGrey(_Colour):
    """Makes images grey, in three equal channels, as `tf.image.rgb_to_grayscale` does: 0.2989 R + 0.587 G + 0.114 B.

    Attributes:
        probability: Probability for each image; 1 makes all grey, of validation, too, and nothing is random.
    """

    path = "transform.random_grey"
    calls = (drawn, rounded, greyed)

    probability: Annotated[Share, DATA]

    @property
    def random(self) -> bool:  # type: ignore[override] # of the others all instances are
        return self.probability < 1

    @staticmethod
    def op(image: tf.Tensor, *, probability: float, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Same shape, dtype and range; all images are grey without a seed."""
        if seed is None:
            return greyed(image)
        return tf.cond(drawn(image, seed, "random_grey", 1)[0] < probability, lambda: greyed(image), lambda: image)


@dataclass(frozen=True, kw_only=True)
class Normalize(Step):
    """Computes `(image / 255 - mean) / std` of each channel as float32, as `Normalize` of torchvision does.

    Attributes:
        mean: Means of red, green and blue, of pixels that are scaled to [0, 1].
        std: Standard deviations of red, green and blue, of pixels that are scaled to [0, 1].
    """

    path = "transform.normalize"

    mean: Annotated[Means, DATA]
    std: Annotated[Deviations, DATA]

    def gives(self, incoming: Feature) -> Feature:
        require_colours(incoming)
        low, high = ([(end - m) / s for m, s in zip(self.mean, self.std, strict=True)] for end in (0.0, 1.0))
        return incoming.replace(dtype="float32", low=min(low), high=max(high), is_normalized=True)

    @property
    def rescaling(self) -> Rescaling:
        offset = [-mean / of for mean, of in zip(self.mean, self.std, strict=True)]
        return Rescaling(scale=[1 / 255 / of for of in self.std], offset=offset)

    @staticmethod
    def op(image: tf.Tensor, *, mean: tuple[float, float, float], std: tuple[float, float, float]) -> tf.Tensor:
        """[0, 255] (height, width, 3) -> float32, same shape."""
        return (tf.cast(image, tf.float32) / 255.0 - mean) / std


@dataclass(frozen=True, kw_only=True)
class ZeroCenterBgr(Step):
    """Reverses red, green and blue, and subtracts ImageNet's mean of each, as Keras's ResNet and VGG require."""

    path = "transform.zero_center_bgr"

    def gives(self, incoming: Feature) -> Feature:
        require_colours(incoming)
        return incoming.replace(dtype="float32", low=-123.68, high=255 - 103.939)

    @property
    def rescaling(self) -> Rescaling:
        return Rescaling(scale=[1.0, 1.0, 1.0], offset=[-103.939, -116.779, -123.68], reverses=True)

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """[0, 255] (height, width, 3) -> float32, as `keras.applications.resnet.preprocess_input` does."""
        return tf.cast(image, tf.float32)[..., ::-1] - [103.939, 116.779, 123.68]
