"""Steps that change the colours of an image, and RandAugment: of pixels in [0, 255], uint8 or float32."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from etlrun.stages.augment import affine, clipped, drawn, require_colours, rotated, rounded
from etlrun.stages.base import DATA, Data, Factor, Fraction, Number, PositiveNumber, Rescaling, selectable
from etlrun.stages.flow import Faults, Feature, UnfitError
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step
from etlrun.system.values import frozen


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


class _Colour(Step):
    """Base of the random steps: same shape, dtype and range."""

    random = True

    def gives(self, incoming: Feature) -> Feature:
        return require_colours(incoming)


@selectable
class RandomBrightness(_Colour):
    """Adds one number to all pixels of an image, as `tf.image.random_brightness` does.

    Attributes:
        max_delta: Largest change up or down, as a share of the range 255.
    """

    path = "transform.random_brightness"
    calls = (drawn, clipped, brightened)

    max_delta: Data[Fraction]

    @staticmethod
    def op(image: tf.Tensor, *, max_delta: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a change in [-max_delta, max_delta] * 255."""
        return brightened(image, max_delta * (2 * drawn(image, seed, "random_brightness", 1)[0] - 1))


@frozen
class _ByFactor(_Colour):
    """Base of the steps that draw a factor between two ends.

    Attributes:
        lower: Smallest factor; 1 changes nothing.
        upper: Largest factor.
    """

    lower: Data[Factor]
    upper: Data[Factor]

    def rules(self) -> Faults:
        if self.lower > self.upper:
            yield "lower", self.lower, f"at most upper, which is {self.upper}", "swap the two"


@selectable
class RandomContrast(_ByFactor):
    """Scales the distance of each pixel from the mean of its channel, as `tf.image.random_contrast` does."""

    path = "transform.random_contrast"
    calls = (drawn, clipped, contrasted)

    @staticmethod
    def op(image: tf.Tensor, *, lower: float, upper: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a factor in [lower, upper]."""
        return contrasted(image, lower + (upper - lower) * drawn(image, seed, "random_contrast", 1)[0])


@selectable
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


@selectable
class RandomHue(_Colour):
    """Turns the hue of an image in HSV, as `tf.image.random_hue` does.

    Attributes:
        max_delta: Largest turn either way, as a share of the colour circle.
    """

    path = "transform.random_hue"
    calls = (drawn, clipped, recoloured)

    max_delta: Annotated[float, Field(ge=0, le=0.5), DATA]

    @staticmethod
    def op(image: tf.Tensor, *, max_delta: float, seed: tf.Tensor) -> tf.Tensor:
        """Same shape and dtype; a turn in [-max_delta, max_delta]."""
        return recoloured(image, max_delta * (2 * drawn(image, seed, "random_hue", 1)[0] - 1))


@selectable
class Normalize(Step):
    """Computes `(image / 255 - mean) / std` of each channel as float32, as `Normalize` of torchvision does.

    Attributes:
        mean: Means of red, green and blue, scaled to [0, 1].
        std: Their standard deviations, scaled to [0, 1].
    """

    path = "transform.normalize"

    mean: Data[tuple[Number, Number, Number]]
    std: Data[tuple[PositiveNumber, PositiveNumber, PositiveNumber]]

    def gives(self, incoming: Feature) -> Feature:
        require_colours(incoming)
        low, high = ([(end - m) / s for m, s in zip(self.mean, self.std, strict=True)] for end in (0.0, 1.0))
        return incoming.replace(dtype="float32", low=min(low), high=max(high), is_normalized=True)

    @property
    def rescaling(self) -> Rescaling:  # type: ignore[override]
        offset = [-mean / of for mean, of in zip(self.mean, self.std, strict=True)]
        return Rescaling(scale=[1 / 255 / of for of in self.std], offset=offset)

    @staticmethod
    def op(image: tf.Tensor, *, mean: tuple[float, float, float], std: tuple[float, float, float]) -> tf.Tensor:
        """[0, 255] (height, width, 3) -> float32, same shape."""
        return (tf.cast(image, tf.float32) / 255.0 - mean) / std


@selectable
class ZeroCenterBgr(Step):
    """Reverses red, green and blue, and subtracts ImageNet's mean of each, as Keras's ResNet and VGG require."""

    path = "transform.zero_center_bgr"
    rescaling = Rescaling(scale=[1.0, 1.0, 1.0], offset=[-103.939, -116.779, -123.68], reverses=True)

    def gives(self, incoming: Feature) -> Feature:
        return require_colours(incoming).replace(dtype="float32", low=-123.68, high=255 - 103.939)

    @staticmethod
    def op(image: tf.Tensor) -> tf.Tensor:
        """[0, 255] (height, width, 3) -> float32, as `keras.applications.resnet.preprocess_input` does."""
        return tf.cast(image, tf.float32)[..., ::-1] - [103.939, 116.779, 123.68]


def sheared(image: tf.Tensor, right: tf.Tensor, down: tf.Tensor) -> tf.Tensor:
    """Shear a uint8 image from its upper left corner, to the nearest pixel; 0 outside."""
    return affine(image, [1.0, right, right / 2, down, 1.0, down / 2], "constant", "nearest")


def moved_by(image: tf.Tensor, right: tf.Tensor, down: tf.Tensor) -> tf.Tensor:
    """Move a uint8 image by whole pixels, whose fractions are dropped; 0 outside."""
    rows = [
        1.0,
        0.0,
        tf.cast(tf.cast(right, tf.int32), tf.float32),
        0.0,
        1.0,
        tf.cast(tf.cast(down, tf.int32), tf.float32),
    ]
    return affine(image, rows, "constant", "nearest")


def blended(image: tf.Tensor, other: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Return `other` for a factor of 0, a uint8 image for 1, and a blend for others; fractions are dropped."""
    other = tf.cast(other, tf.float32)
    return tf.cast(tf.clip_by_value(other + factor * (tf.cast(image, tf.float32) - other), 0.0, 255.0), tf.uint8)


def grey_of(image: tf.Tensor) -> tf.Tensor:
    """Return the brightness of a uint8 image, int32 (height, width, 1), as Pillow's mode L."""
    red, green, blue = tf.split(tf.cast(image, tf.int32), 3, axis=-1)
    return tf.bitwise.right_shift(19_595 * red + 38_470 * green + 7_471 * blue + 32_768, 16)


def mean_of(grey: tf.Tensor) -> tf.Tensor:
    """Return the mean of an image of whole numbers as the next whole one, float64."""
    return tf.floor(tf.reduce_mean(tf.cast(grey, tf.float64)) + 0.5)


def smoothed(image: tf.Tensor) -> tf.Tensor:
    """Blur a uint8 image as Pillow's filter SMOOTH does, but for its outermost pixels; float32."""
    pixels = tf.cast(image, tf.float32)
    kernel = tf.constant([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    kernel = tf.tile(kernel[..., tf.newaxis, tf.newaxis], (1, 1, 3, 1))
    inner = tf.nn.depthwise_conv2d(pixels[tf.newaxis], kernel, (1, 1, 1, 1), "VALID")[0]
    inside = tf.pad(tf.ones_like(inner, tf.bool), [(1, 1), (1, 1), (0, 0)])
    return tf.where(inside, tf.pad(tf.round(inner), [(1, 1), (1, 1), (0, 0)]), pixels)


def looked_up(image: tf.Tensor, tables: list[tf.Tensor]) -> tf.Tensor:
    """Replace the values of each channel of a uint8 image by those of its table (256,)."""
    channels = zip(tables, tf.unstack(tf.cast(image, tf.int32), axis=-1), strict=True)
    return tf.stack([tf.gather(tf.cast(table, tf.uint8), channel) for table, channel in channels], axis=-1)


def stretched(image: tf.Tensor) -> tf.Tensor:
    """Stretch each channel of a uint8 image to [0, 255], of float64 whose fractions are dropped, as in Pillow."""
    tables, values = [], tf.range(256, dtype=tf.float64)
    for channel in tf.unstack(image, axis=-1):
        low, high = (tf.cast(of(channel), tf.float64) for of in (tf.reduce_min, tf.reduce_max))
        scale = 255.0 / tf.maximum(high - low, 1.0)
        table = tf.clip_by_value(tf.cast(values * scale - low * scale, tf.int32), 0, 255)
        tables.append(tf.where(high > low, table, tf.range(256)))
    return looked_up(image, tables)


def equalized(image: tf.Tensor) -> tf.Tensor:
    """Equalize the histogram of each channel of a uint8 image; integers throughout, as in Pillow."""
    tables = []
    for channel in tf.unstack(tf.cast(image, tf.int32), axis=-1):
        counts = tf.math.bincount(tf.reshape(channel, (-1,)), minlength=256, maxlength=256)
        last = counts[tf.reduce_max(channel)]
        step = (tf.reduce_sum(counts) - last) // 255
        table = (tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1)
        tables.append(tf.where(step > 0, tf.minimum(table, 255), tf.range(256)))
    return looked_up(image, tables)


def augmented(image: tf.Tensor, operation: tf.Tensor, magnitude: int, sign: tf.Tensor) -> tf.Tensor:
    """Apply one of 14 operations to a uint8 image; `sign` is 1 or -1, for those that go in two directions."""
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
    strength = magnitude / 30
    signed = sign * strength
    bits = 8 - round(4 * strength)
    factor = tf.where(sign > 0, 1 + 0.9 * strength, 1 - 0.9 * strength)
    changed = tf.switch_case(
        operation,
        [
            lambda: image,
            lambda: sheared(image, 0.3 * signed, tf.zeros(())),
            lambda: sheared(image, tf.zeros(()), 0.3 * signed),
            lambda: moved_by(image, 150 / 331 * signed * width, tf.zeros(())),
            lambda: moved_by(image, tf.zeros(()), 150 / 331 * signed * height),
            lambda: rotated(image, 30 * signed, "constant", "nearest"),
            lambda: blended(image, tf.zeros_like(image), factor),
            lambda: blended(image, grey_of(image), factor),
            lambda: blended(image, mean_of(grey_of(image)), factor),
            lambda: blended(image, smoothed(image), factor),
            lambda: tf.bitwise.bitwise_and(image, tf.constant(256 - 2 ** (8 - bits), tf.uint8)),
            lambda: tf.where(tf.cast(image, tf.float32) >= 255 * (1 - strength), 255 - image, image),
            lambda: stretched(image),
            lambda: equalized(image),
        ],
    )
    return tf.ensure_shape(changed, image.shape)


@selectable
class RandAugment(Step):
    """Applies `num_layers` operations, drawn from 14 with replacement, of one strength, as torchvision does.

    They are: identity, shear x, shear y, translate x, translate y, rotate, brightness, color, contrast, sharpness,
    posterize, solarize, autocontrast and equalize, as Pillow computes them; those that go in two directions draw one.
    Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space", CVPRW 2020.

    Attributes:
        num_layers: Operations for each image; the paper has 1 to 3.
        magnitude: Strength of the operations, as the 31 bins of torchvision.
    """

    path = "transform.rand_augment"
    random = True
    calls = (
        drawn, rounded, affine, rotated, sheared, moved_by, blended, grey_of, mean_of, smoothed,
        looked_up, stretched, equalized, augmented,
    )  # fmt: skip

    num_layers: Annotated[int, Field(ge=1, le=14), DATA]
    magnitude: Annotated[int, Field(ge=0, le=30), DATA]

    def gives(self, incoming: Feature) -> Feature:
        if require_colours(incoming).dtype != "uint8":
            raise UnfitError("uint8 pixels", "put it behind `decode`, or set transform.resize.dtype=uint8")
        return incoming

    @staticmethod
    def op(image: tf.Tensor, *, num_layers: int, magnitude: int, seed: tf.Tensor) -> tf.Tensor:
        """uint8 (height, width, 3) -> the same."""
        draws = drawn(image, seed, "rand_augment", 2 * num_layers)
        for number in range(num_layers):
            sign = tf.where(2 * draws[2 * number + 1] < 1, 1.0, -1.0)
            image = augmented(image, tf.cast(14 * draws[2 * number], tf.int32), magnitude, sign)
        return image
