"""RandAugment: random operations of one strength, on uint8 images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from etlrun.stages.augment import drawn, require_colours, rounded
from etlrun.stages.base import DATA
from etlrun.stages.flow import Feature, UnfitError
from etlrun.stages.geometry import affine, rotated
from etlrun.stages.lazy import tf
from etlrun.stages.step import Step


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


@dataclass(frozen=True, kw_only=True)
class RandAugment(Step):
    """Applies `num_layers` operations, drawn from 14 with replacement, of one strength, as torchvision does.

    They are: identity, shear x, shear y, translate x, translate y, rotate, brightness, color, contrast, sharpness,
    posterize, solarize, autocontrast and equalize, as Pillow computes them; those that go in two directions draw one.
    Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space", CVPRW 2020.

    Attributes:
        num_layers: Operations for each image; the paper has 1 to 3.
        magnitude: Strength from 0 to 30, as the 31 bins of torchvision: 30 shears by 0.3, moves by 45 % of the side,
            rotates by 30 degrees, changes colours by a factor of 0.1 or 1.9, keeps 4 bits, and inverts all pixels.
    """

    path = "transform.rand_augment"
    random = True
    is_costly = True
    calls = (
        drawn, rounded, affine, rotated, sheared, moved_by, blended, grey_of, mean_of, smoothed,
        looked_up, stretched, equalized, augmented,
    )  # fmt: skip

    num_layers: Annotated[int, Field(ge=1, le=14), DATA]
    magnitude: Annotated[int, Field(ge=0, le=30), DATA]

    def gives(self, incoming: Feature) -> Feature:
        require_colours(incoming)
        if incoming.dtype != "uint8":
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
